"""Sessions: where they end, what is cut, and what is kept."""

from __future__ import annotations

import random
from collections.abc import Iterable

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operators.session_window import SessionWindow
from cluster.operators.window_shapes import Session

COLUMNS = pl.DataFrame(schema={START: pl.Int64, END: pl.Int64, "k": pl.String, "n": pl.Int64})


def sessions_of(stamps: list[int], session: Session) -> list[tuple[list[int], int]]:
    """Return the sessions of one key's stamps, which are in order: the stamps of each, and when it closes."""
    runs: list[list[int]] = []
    for stamp in stamps:
        run = runs[-1] if runs else []
        if run and stamp - run[-1] <= session.gap_us and stamp - run[0] < session.longest_us:
            run.append(stamp)
        else:
            runs.append([stamp])
    return [(run, min(run[-1] + session.gap_us, run[0] + session.longest_us)) for run in runs]


def rows(*tuples: tuple[int, str | None]) -> pl.DataFrame:
    made = [(stamp, stamp + 1, key, number) for number, (stamp, key) in enumerate(tuples)]
    return pl.DataFrame(made, schema=COLUMNS.schema, orient="row").sort(START)


def found(batch: Batch) -> list[tuple[int, int, str | None]]:
    return batch.rows.select(START, END, "k").rows()


def test_a_session_closes_a_gap_after_its_last_tuple() -> None:
    """
    k    10   13      19         gap 5: 13 + 5 is 18, before 19
         |----|----)             closes at 18
    """
    window = SessionWindow(COLUMNS, ("k",), Session(5, 100))
    assert found(window.transition(0, Batch(rows((10, "k"), (13, "k")), 18))) == []
    closing = window.transition(0, Batch(rows((19, "k")), 19))
    assert found(closing) == [(18, 19, "k"), (18, 19, "k")]
    assert closing.watermark_us == 19


def test_a_tuple_exactly_a_gap_later_belongs_to_the_session() -> None:
    window = SessionWindow(COLUMNS, ("k",), Session(5, 100))
    window.transition(0, Batch(rows((10, "k")), 15))
    assert found(window.transition(0, Batch(rows((15, "k"), (21, "k")), NEVER))) == [
        (20, 21, "k"), (20, 21, "k"), (26, 27, "k")
    ]  # fmt: skip


def test_a_session_is_cut_where_it_would_get_too_long() -> None:
    window = SessionWindow(COLUMNS, (), Session(3, 6))
    given_ = rows(*((stamp, "k") for stamp in (0, 2, 4, 6, 8, 20)))
    assert found(window.transition(0, Batch(given_, NEVER))) == [
        (6, 7, "k"), (6, 7, "k"), (6, 7, "k"), (11, 12, "k"), (11, 12, "k"), (23, 24, "k")
    ]  # fmt: skip


def test_null_is_a_key_and_keys_do_not_wait_for_each_other() -> None:
    window = SessionWindow(COLUMNS, ("k",), Session(2, 50))
    given_ = rows((1, None), (2, "a"), (3, None), (4, "a"), (6, "a"), (8, "a"))
    assert found(window.transition(0, Batch(given_, 9))) == [(5, 6, None), (5, 6, None)]


KEYED = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(("a", "b", None))), max_size=30)


@settings(max_examples=120, deadline=None)
@given(tuples=KEYED, gap=st.integers(1, 6), more=st.integers(0, 15), early=st.booleans(), seed=st.integers(0, 99))
def test_random_disorder_and_batches_give_the_sessions_of_the_order_of_stamps(
    tuples: list[tuple[int, str | None]], gap: int, more: int, early: bool, seed: int
) -> None:
    session = Session(gap, gap + more, early)
    dice = random.Random(seed)
    window = SessionWindow(COLUMNS, ("k",), session, lag_us=dice.choice((0, 3, None)))
    answers = list(_delivered(window, tuples, dice))
    instants = {
        (instant, key, number)
        for start, end, key, number in answers
        for instant in range(start, end)
    }  # fmt: skip
    assert len(instants) == sum(end - start for start, end, _, _ in answers)
    expected = set()
    for key in ("a", "b", None):
        own = [(stamp, number) for number, (stamp, each) in enumerate(tuples) if each == key]
        for stamps, closes in sessions_of(sorted({stamp for stamp, _ in own}), session):
            for stamp, number in own:
                if stamp in stamps:
                    expected |= {(at, key, number) for at in (range(stamp, closes) if early else (closes,))}
    assert instants == expected


def _delivered(
    window: SessionWindow, tuples: list[tuple[int, str | None]], dice: random.Random
) -> Iterable[tuple[int, int, str | None, int]]:
    """Deliver tuples up to 8 later than they are stamped, in batches, under the watermark that this allows."""
    numbered = rows(*tuples)
    late = pl.Series([stamp + dice.randint(0, 8) for stamp in numbered[START]], dtype=pl.Int64)
    before = ALWAYS
    for at in [*sorted({dice.randint(0, 70) for _ in range(6)}), NEVER]:
        batch = numbered.filter((late >= before) & (late < at))
        watermark_us = NEVER if at == NEVER else at - 8
        answer = window.transition(0, Batch(batch.sort(START), watermark_us))
        assert answer.watermark_us <= watermark_us
        yield from answer.rows.rows()
        before = at


def test_state_is_bounded_by_the_longest_session() -> None:
    window = SessionWindow(COLUMNS, ("k",), Session(5, 100))
    kept = []
    for first in range(0, 5_000, 50):
        window.transition(0, Batch(rows(*((stamp, "k") for stamp in range(first, first + 50))), first + 50))
        kept.append(sum(table.height for table in window.save().values() if isinstance(table, pl.DataFrame)))
    assert max(kept) <= 100 + 1


def test_an_open_session_is_cut_some_tens_of_times_however_long_it_lasts() -> None:
    window = SessionWindow(COLUMNS, ("k",), Session(10, 10**9, early=True), lag_us=10)
    pieces = 0
    for first in range(0, 20_000, 10):
        answer = window.transition(0, Batch(rows((first, "k")), first + 10))
        pieces += answer.rows.filter(pl.col("n") == 0, pl.col(START) < pl.col(END), pl.col(END) > 0).height > 0
        assert answer.watermark_us >= first - first // 8 - 20  # what waits above goes on
    assert pieces < 100


@pytest.mark.parametrize("session", [Session(0, 5), Session(5, 4)])
def test_a_session_without_a_meaning_is_refused(session: Session) -> None:
    with pytest.raises(PlanError):
        SessionWindow(COLUMNS, (), session)
