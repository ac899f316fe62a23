"""
files        [0 ... 9][10 ... 19][20 ... 29][30 ... 39]      of ten rows and 100 bytes each
wanted       ----------------------|                         everything before goes
passed       ------------|                                   as far as all have read it
"""  # fmt: skip

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.storage.budgets import Budget, TableFile, dropping, wanted_from


def file(number: int) -> TableFile:
    return TableFile(f"f{number}", 10, 100, 10 * number, 10 * number + 9)


FOUR = [file(number) for number in range(4)]


@pytest.mark.parametrize(
    ("budget", "watermark_us", "wanted"),
    [
        (Budget(), 40, None),
        (Budget(age_us=15), 40, 25),
        (Budget(age_us=15), None, None),
        (Budget(bytes=400), 40, None),
        (Budget(bytes=399), 40, 10),
        (Budget(bytes=200), 40, 20),
        (Budget(bytes=150), 40, 30),
        (Budget(bytes=1), 40, 40),
        (Budget(age_us=15, bytes=100), 40, 30),
        (Budget(age_us=5, bytes=300), 40, 35),
    ],
)
def test_a_budget_gives_the_instant_from_which_rows_are_kept(
    budget: Budget, watermark_us: int | None, wanted: int | None
) -> None:
    assert wanted_from(FOUR[::-1], budget, watermark_us) == wanted


@pytest.mark.parametrize(
    ("wanted_us", "passed_us", "goes", "blocked"),
    [
        (25, 40, "f0 f1", ""),
        (30, 40, "f0 f1 f2", ""),
        (29, 40, "f0 f1", ""),
        (30, 15, "f0", "f1 f2"),
        (30, 20, "f0 f1", "f2"),
        (30, 19, "f0", "f1 f2"),
        (30, -(2**62), "", "f0 f1 f2"),
    ],
)
def test_files_older_than_wanted_are_dropped_or_blocked_by_a_reader(
    wanted_us: int, passed_us: int, goes: str, blocked: str
) -> None:
    found = dropping(FOUR, wanted_us, passed_us)
    assert [each.path for each in found.files] == goes.split()
    assert [each.path for each in found.blocked] == blocked.split()
    assert found.from_us == min(wanted_us, passed_us)


instants = st.integers(-1_000, 1_000)
spans = st.tuples(instants, st.integers(0, 300))
files = st.lists(spans, max_size=12).map(
    lambda found: [TableFile(f"f{place}", 1, 50, at, at + span) for place, (at, span) in enumerate(found)]
)


@given(files, instants, instants)
def test_nothing_goes_that_is_wanted_or_not_yet_read(stored: list[TableFile], wanted_us: int, passed_us: int) -> None:
    found = dropping(stored, wanted_us, passed_us)
    for each in found.files:
        assert each.last_us < wanted_us
        assert each.last_us < passed_us
    for each in set(stored) - set(found.files):
        assert each.last_us >= found.from_us, "what is left is everything from some instant on, and whole files before"
    assert not set(found.files) & set(found.blocked)


@given(files, st.integers(1, 700), instants)
def test_what_is_wanted_fits_the_budget_and_no_more_goes_than_must(
    stored: list[TableFile], most: int, watermark_us: int
) -> None:
    wanted_us = wanted_from(stored, Budget(bytes=most), watermark_us)
    if wanted_us is None:
        assert sum(each.bytes for each in stored) <= most
        return
    left = [each for each in stored if each.last_us >= wanted_us]
    assert sum(each.bytes for each in left) <= most
    newest = [each for each in stored if each.last_us == wanted_us - 1]
    assert newest, "it lies behind a file"
    assert sum(each.bytes for each in [*left, *newest]) > most
