"""Patterns of rows: what is held back, kept and given up; which matches there are is in tests/cluster/oracle."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from cluster.errors import StateError
from cluster.fjord import pattern_rows, row_automaton
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.pattern_match import PatternMatch
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators.columns import AggregateCall, Output
from cluster.operators.pattern_match import (
    Definition,
    Lag,
    PatternElement,
    Reach,
    RowPattern,
    Skip,
    SkipKind,
    pattern_text,
)
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType

INTEGER, BOOLEAN = FieldType.INTEGER, FieldType.BOOLEAN
SCHEMA = {START: pl.Int64, END: pl.Int64, "k": pl.String, "x": pl.Int64}
A, B, BS = PatternElement("A"), PatternElement("B"), PatternElement("B", 1, None)
FIRST = Reach("first", "first", None, read_scalar('"x"', INTEGER))
LAST = Reach("last", "last", None, read_scalar('"x"', INTEGER))
COUNT = Reach("count", "aggregate", None, call=AggregateCall("count", "count", None, INTEGER))
MEASURES = tuple(Output(name, read_scalar(f'"{name}"', INTEGER)) for name in ("first", "last", "count"))


def frame(*rows: tuple[int, str | None, int | None]) -> pl.DataFrame:
    return pl.DataFrame([(at, at + 1, key, x) for at, key, x in rows], schema=SCHEMA, orient="row")


def defined(variable: str, row: str | None, reaching: str | None = None) -> Definition:
    scalars = (None if each is None else read_scalar(each, BOOLEAN) for each in (row, reaching))
    return Definition(variable, *scalars)


HIGH_LOW = (defined("A", '"x" > 5'), defined("B", '"x" < 5'))


def make(
    *elements: PatternElement,
    definitions: tuple[Definition, ...] = HIGH_LOW,
    within_us: int | None = 10,
    skip: SkipKind = "past last row",
    lags: tuple[Lag, ...] = (),
    reaches: tuple[Reach, ...] = (),
) -> PatternMatch:
    pattern = RowPattern(
        elements, definitions, MEASURES, lags, (FIRST, LAST, COUNT, *reaches), ("k", "x"), within_us, Skip(skip)
    )
    return PatternMatch(frame(), ("k",), pattern)


def step(subject: PatternMatch, watermark_us: int, *rows: tuple[int, str | None, int | None]) -> tuple[list[Any], int]:
    answer = subject.transition(0, Batch(frame(*rows), watermark_us))
    assert (answer.rows[END] - answer.rows[START] == 1).all()
    return answer.rows.drop(END).rows(), answer.watermark_us


def kept(subject: PatternMatch) -> int:
    rows = subject.save()["rows"]
    assert isinstance(rows, pl.DataFrame)
    return rows.height


def test_a_match_that_may_grow_waits_for_the_row_that_ends_it() -> None:
    subject = make(A, BS)
    assert step(subject, 4, (1, "a", 9), (2, "a", 1), (3, "a", 2)) == ([], 3)  # not earlier than its last B
    assert step(subject, 5, (4, "a", 3)) == ([], 4)
    assert step(subject, 8, (7, "a", 9)) == ([(4, "a", 9, 3, 4)], 8)


def test_time_ends_a_match_of_a_partition_that_falls_silent() -> None:
    subject = make(A, BS)
    step(subject, 4, (1, "a", 9), (3, "a", 2))
    assert step(subject, 10) == ([], 3)
    assert step(subject, 11) == ([(3, "a", 9, 2, 2)], 11)
    assert kept(subject) == 0


@pytest.mark.parametrize(("at", "count"), [(10, 2), (11, None)])
def test_within_is_less_than_its_duration(at: int, count: int | None) -> None:
    subject = make(A, B)
    found, _ = step(subject, NEVER, (1, "a", 9), (at, "a", 2))
    assert [row[-1] for row in found] == ([count] if count else [])


def test_what_can_only_end_with_a_row_to_come_holds_nothing_back() -> None:
    subject = make(A, B, within_us=None)
    assert step(subject, 5, (1, "a", 9), (2, "b", 9)) == ([], 5)
    assert step(subject, 900_000) == ([], 900_000)
    assert kept(subject) == 2
    assert step(subject, 900_002, (900_001, "a", 1)) == ([(900_001, "a", 9, 1, 2)], 900_002)
    assert step(subject, NEVER) == ([], NEVER)
    assert kept(subject) == 0


def test_rows_that_begin_no_match_are_forgotten_at_once() -> None:
    subject = make(A, BS)
    step(subject, 9, *((at, "a", 1) for at in range(9)))
    assert kept(subject) == 0
    assert step(subject, 20, (15, None, 9), (16, None, 2)) == ([], 16)
    assert kept(subject) == 2


def test_previous_rows_are_kept_as_long_as_the_pattern_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_rows, "_COMPACTED_AT", 1)
    lag = Lag("before", read_scalar('"x"', INTEGER), 2)
    subject = make(A, definitions=(defined("A", '"before" = 7'),), lags=(lag,))
    assert step(subject, 6, (1, "a", 7), (2, "a", 0), (3, "a", 0), (4, "a", 7), (5, "a", 7)) == ([(3, "a", 0, 0, 1)], 6)
    assert kept(subject) == 2
    assert step(subject, 7, (6, "a", 1))[0] == [(6, "a", 1, 1, 1)]
    assert step(subject, 16, (15, "a", 2))[0] == []  # 10 behind the row of 5, which is out of reach
    step(subject, 40)
    assert kept(subject) == 0


def test_a_restored_search_finds_what_was_before_its_rows() -> None:
    lag = Lag("before", read_scalar('"x"', INTEGER), 1)
    first = defined("A", '"before" = 7')
    subject = make(A, BS, definitions=(first, defined("B", '"x" < 5')), lags=(lag,))
    step(subject, 10, (1, "a", 7), (9, "a", 9))
    assert step(subject, 15, (12, "a", 1)) == ([], 12)  # 1 is out of reach of rows to come
    restored = make(A, BS, definitions=(first, defined("B", '"x" < 5')), lags=(lag,))
    restored.restore(unpack_state(pack_state(subject.save())))
    assert step(restored, 20) == ([(12, "a", 9, 1, 2)], 20)


X = read_scalar('"x"', INTEGER)
ROWS_OF_A = Reach("r", "aggregate", "A", call=AggregateCall("r", "count", None, INTEGER))


@pytest.mark.parametrize(("reach", "condition", "numbers"), [
    (ROWS_OF_A, '"r" = 1', (1, 1, 1, 9)),
    (Reach("r", "last", "A", X), '"r" = 5', (5, 1, 1, 9)),
    (Reach("r", "last", "A", X, 1), '"r" IS NULL', (1, 1, 1, 9)),
    (Reach("r", "first", "B", X), '"r" = 7', (1, 7, 1, 9)),
    (Reach("r", "first", "B", X, 1), '"r" = 7', (1, 1, 7, 9)),
    (Reach("r", "last", "B", X, 1), '"r" = 7', (1, 7, 1, 9)),
])  # fmt: skip
def test_runs_that_a_later_condition_can_tell_apart_stay_apart(
    reach: Reach, condition: str, numbers: tuple[int, ...]
) -> None:
    """At the third row, the preferred run has two rows in A and one in B; C needs the other one."""
    elements = (PatternElement("A", 1, None), BS, PatternElement("C"))
    subject = make(*elements, definitions=(defined("C", '"x" = 9', condition),), reaches=(reach,))
    found, _ = step(subject, NEVER, *((at, "a", number) for at, number in enumerate(numbers)))
    assert found == [(3, "a", numbers[0], 9, 4)]


def exploding() -> PatternMatch:
    """Return a search whose runs all differ: where C reads the sum of every element, no two have one future."""
    names = [f"V{place}" for place in range(6)]
    number = read_scalar('"x"', INTEGER)
    sums = tuple(
        Reach(f"s{place}", "aggregate", name, call=AggregateCall(f"s{place}", "sum", number, INTEGER))
        for place, name in enumerate(names)
    )
    total = " + ".join(f'"s{place}"' for place in range(6))
    last = defined("C", '"x" = 0', f"{total} = 1000000")
    elements = (*(PatternElement(name, 1, None) for name in names), PatternElement("C"))
    return make(*elements, definitions=(last,), within_us=1_000, reaches=sums)


def test_a_search_with_too_many_ways_is_given_up_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_automaton, "MOST_RUNS", 200)
    rows = [(at, "a", int(at % 4 > 0)) for at in range(1, 41)]  # a C may come, but its condition on sums is never met
    whole, cut = exploding(), exploding()
    assert step(whole, NEVER, *rows)[0] == []
    assert "given up" in str(whole.warning)
    warned = []
    for at, *row in rows:
        assert step(cut, at + 1, (at, *row))[0] == []
        warned.append(cut.warning is not None)
        cut_again = exploding()
        cut_again.restore(unpack_state(pack_state(cut.save())))
        cut = cut_again
    assert 1 < sum(warned) < 10, "each search is given up once, and the next begins behind it"


def test_a_greedy_pattern_takes_work_that_grows_with_its_rows() -> None:
    """Of A* A* ... A* C, where every row is an A, backtracking would take exponential time."""
    stars = tuple(PatternElement("A", 0, None) for _ in range(20))
    subject = make(*stars, PatternElement("C"), definitions=(defined("C", '"x" = 0'),), within_us=1_000)
    found, _ = step(subject, NEVER, *((at, "a", 1) for at in range(60)))
    assert found == []
    assert subject.warning is None


def test_rows_are_compacted_while_a_search_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_rows, "_COMPACTED_AT", 4)
    subject = make(A, BS, within_us=100)
    step(subject, 2, (1, "a", 9))
    for at in range(2, 60, 2):  # 88 rows, of which 30 are still needed
        step(subject, at + 2, (at, "a", 1), (at, "b", 1), (at + 1, "c", 1))
    assert subject._rows.table.height < 66
    assert step(subject, NEVER) == ([(58, "a", 9, 1, 30)], NEVER)


def test_a_foreign_state_is_refused() -> None:
    with pytest.raises(StateError, match="no table 'held'"):
        make(A).restore({"early": frame()})


def test_patterns_are_written_as_they_are_read() -> None:
    bounds = [(1, 1), (0, 1), (0, None), (1, None), (2, 2), (2, None), (0, 3), (2, 3)]
    elements = tuple(PatternElement("A", least, most) for least, most in bounds)
    assert pattern_text(elements) == "A A? A* A+ A{2} A{2,} A{0,3} A{2,3}"
    assert pattern_text((PatternElement("A", 0, None, reluctant=True),)) == "A*?"
