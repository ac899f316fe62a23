"""Windows by count that queries share: each has the last samples that it sees, and no more are kept than that takes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import polars as pl
import pytest

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.count_window import SharedCountWindow
from cluster.fjord.operators.live_marks import LiveMarks, marks_of
from cluster.fjord.operators.shared_extents import CountedExtents, SharedExtents
from cluster.operators.columns import QUERY_GROUP, RUN_BEGIN, RUN_END, SUPERSEDED_UNTIL, VISIBLE_FROM
from cluster.operators.extent import Coalescing

COLUMNS = pl.DataFrame(
    schema={START: pl.Int64, END: pl.Int64, "k": pl.String}
    | dict.fromkeys(("x", "t", QUERY_GROUP.name, VISIBLE_FROM.name), pl.Int64)
)
MARKED = COLUMNS.with_columns(pl.lit(0, pl.Int64).alias(SUPERSEDED_UNTIL.name))
HOW = Coalescing(("x",), "t", ("k", "x"), (RUN_BEGIN.name, RUN_END.name))
KEYS = ("k", QUERY_GROUP.name)


def window_of(epochs: Mapping[int, Sequence[int]], rows: int = 2, lag_us: int = 1_000_000) -> SharedCountWindow:
    return SharedCountWindow(COLUMNS, rows, KEYS, epochs, lag_us=lag_us)


def taken(subject: SharedCountWindow, rows: list[tuple[int, str, int, int]], until: int) -> list[tuple[int | str, ...]]:
    """Return start, end, key, and the queries, of what leaves; given stamp, key, group and mark of samples."""
    samples = [(at, at + 1, key, 0, at, group, mark) for at, key, group, mark in rows]
    found = subject.transition(0, Batch(pl.DataFrame(samples, COLUMNS.schema, orient="row"), until)).rows
    return found.select(START, END, "k", SUPERSEDED_UNTIL.name, VISIBLE_FROM.name).rows()


def test_a_sample_leaves_earlier_for_queries_that_see_more_samples_behind_it() -> None:
    subject = window_of({7: (1, 4)})
    b, a, c, d = (10, "k", 7, 4), (20, "k", 7, 1), (30, "k", 7, 4), (40, "k", 7, 4)
    assert taken(subject, [b, a], 30) == []
    assert taken(subject, [c], 40) == [(10, 30, "k", -1, 3)]
    assert taken(subject, [d], 50) == [(10, 40, "k", 3, 4), (20, 40, "k", -1, 3)]
    assert taken(subject, [], NEVER) == [(30, NEVER, "k", -1, 4), (40, NEVER, "k", -1, 4)]


def test_of_equal_stamps_the_first_leaves_first_and_is_not_seen_if_there_are_too_many() -> None:
    subject = window_of({7: (1,)}, rows=1)
    assert taken(subject, [(10, "k", 7, 1), (10, "k", 7, 1)], 20) == []
    assert taken(subject, [(30, "k", 7, 1)], 40) == [(10, 30, "k", -1, 1)]


def test_samples_that_stay_are_cut_once_they_lag() -> None:
    subject = window_of({7: (1,)}, lag_us=100)
    assert taken(subject, [(10, "a", 7, 1), (50, "b", 7, 1)], 110) == []
    assert taken(subject, [], 120) == [(10, 120, "a", -1, 1)]
    assert taken(subject, [], 151) == [(50, 151, "b", -1, 1)]
    assert taken(subject, [], NEVER) == [(120, NEVER, "a", -1, 1), (151, NEVER, "b", -1, 1)]


def test_all_samples_of_a_key_are_cut_at_once() -> None:
    subject = window_of({7: (1,)}, lag_us=100)
    taken(subject, [(10, "a", 7, 1), (60, "a", 7, 1), (60, "b", 7, 1)], 70)
    assert taken(subject, [], 120) == [(10, 120, "a", -1, 1), (60, 120, "a", -1, 1)]


def test_samples_that_wait_have_the_marks_of_the_queries_there_are() -> None:
    before, after = (CountedExtents(MARKED, KEYS, {3: HOW}, {7: epochs}, eager=True) for epochs in ((1, 5), (1,)))
    rows = [(10, 90, "k", 1, 10, 7, 5, -1), (20, 92, "k", 2, 20, 7, 1, -1)]
    before.transition(0, Batch(pl.DataFrame(rows, MARKED.schema, orient="row"), 5))
    after.restore(before.save())
    assert after.save()["early"][VISIBLE_FROM.name].to_list() == [1, 1]


def test_extents_keep_samples_with_the_marks_that_the_window_has_raised() -> None:
    """Else each group that came with another mark adds one more time at which an extent goes through all samples."""
    epochs = {7: (1,), 8: (2, 5), 9: (5,)}
    subject, above = window_of(epochs, lag_us=10), CountedExtents(MARKED, KEYS, {3: HOW}, epochs, eager=True)
    samples = [(10, 11, "k", 1, 10, group, mark) for group, mark in ((7, 1), (8, 2), (8, 5), (9, 5))]
    cut = subject.transition(0, Batch(pl.DataFrame(samples, COLUMNS.schema, orient="row"), 30))
    above.transition(0, cut)
    kept = above.save()["kept"]
    assert isinstance(kept, pl.DataFrame)
    assert sorted(kept.select(QUERY_GROUP.name, VISIBLE_FROM.name).rows()) == [(7, 5), (8, 4), (8, 5), (9, 5)]


def test_no_more_samples_are_kept_than_are_in_windows() -> None:
    dice, subject = random.Random("kept"), window_of({7: (1,), 8: (1, 3, 5)}, rows=3)
    for number in range(100):
        marks = {7: 1, 8: 1 if number < 20 else 3 if number < 40 else 5}
        group = dice.choice((7, 8))
        taken(subject, [(10 * number, dice.choice("ab"), group, marks[group])], 10 * number + 10)
        assert subject.save()["waiting"].height <= 3 * 2 * 2
    waiting = subject.save()["waiting"]
    assert marks_of(waiting) == [5]  # whatever their groups, and although those of group 7 came with another mark


def test_queries_that_end_take_with_them_what_only_they_have_seen() -> None:
    subject = window_of({7: (1, 4)})
    taken(subject, [(10, "k", 7, 1), (20, "silent", 7, 1), (30, "k", 7, 4)], 40)
    after = window_of({7: (4,)})
    after.restore(subject.save())
    assert after.save()["waiting"]["t"].to_list() == [30]
    again = window_of({7: (1,)})
    again.restore(subject.save())
    assert again.save()["waiting"]["t"].to_list() == [10, 20, 30]
    assert marks_of(again.save()["waiting"]) == [1]


def test_marks_are_raised_up_to_the_next_query_of_the_group() -> None:
    live = LiveMarks({7: (2, 6), 8: (4,), -3: (9,)})
    ends = [(7, 1, -1), (8, 3, -1), (7, 5, 3), (5, 9, -1)]  # no query sees these
    stays = [(7, 2, -1), (7, 5, -1), (7, 6, -1), (8, 4, -1), (-3, 9, -1), (7, 6, 3)]
    names = (QUERY_GROUP.name, VISIBLE_FROM.name, SUPERSEDED_UNTIL.name)
    found = live.of(pl.DataFrame([*ends, *stays], dict.fromkeys(names, pl.Int64), orient="row"))
    assert found.rows() == [(7, 5, -1), (7, 5, -1), (7, 9, -1), (8, 9, -1), (-3, 9, -1), (7, 9, 5)]
    assert live.of(found).rows() == found.rows()


@pytest.mark.parametrize("middle", [1, 2])
@pytest.mark.parametrize("counted", [True, False])
def test_neighbours_of_samples_that_no_query_sees_any_more_are_compared(*, counted: bool, middle: int) -> None:
    def made(epochs: tuple[int, ...]) -> SharedExtents:
        if counted:
            return CountedExtents(MARKED, KEYS, {3: HOW}, {7: epochs}, eager=True)
        return SharedExtents(COLUMNS, KEYS, {3: HOW}, {7: epochs}, eager=True)

    schema = MARKED.schema if counted else COLUMNS.schema
    rows = [(10, 90, "k", 1, 10, 7, 5), (20, 92, "k", middle, 20, 7, 1), (30, 94, "k", 1, 30, 7, 5)]
    batch = pl.DataFrame([(*row, -1) if counted else row for row in rows], schema, orient="row")
    before, after = made((1, 5)), made((5,))
    before.transition(0, Batch(batch, 40))
    after.restore(before.save())
    found = after.transition(0, Batch(batch.clear(), NEVER)).rows
    shown = found.select(START, END, "x", RUN_BEGIN.name, RUN_END.name).sort(START).rows()
    assert shown == [(30, 90, 1, 10, 30), (90, 94, 1, 30, 30)]


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="a window of 0 rows"):
        window_of({7: (1,)}, rows=0)
