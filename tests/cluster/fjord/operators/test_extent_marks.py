"""Marks of samples that queries of several groups share: one for all that see the same, and those of earlier states."""

from __future__ import annotations

import random
from collections import Counter

import polars as pl
import pytest

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.extent import Extent
from cluster.fjord.operators.shared_extents import SharedExtents
from cluster.operators.columns import QUERY_GROUP, RUN_BEGIN, RUN_END, SUPERSEDED_UNTIL, VISIBLE_FROM
from cluster.operators.extent import Coalescing

COLUMNS = pl.DataFrame(
    schema={
        **dict.fromkeys((START, END), pl.Int64), "k": pl.String,
        **dict.fromkeys(("x", "t", QUERY_GROUP.name, VISIBLE_FROM.name), pl.Int64),
    }
)  # fmt: skip
HOW = Coalescing(("x",), "t", ("k", "x"), (RUN_BEGIN.name, RUN_END.name))
KEYS = ("k", QUERY_GROUP.name)
BEGAN = ((7, 1), (8, 3), (7, 5), (9, 6))
"""Query groups, and the epochs of their queries, each of which begins at ten times its epoch."""
Row = tuple[int, int, str, int, int, int, int]


class AsTheyCame(SharedExtents):
    """Leaves marks as they were at arrival, as earlier versions did."""

    def _add(self, rows: pl.DataFrame) -> None:
        Extent._add(self, rows)


def epochs_at(instant: int) -> dict[int, list[int]]:
    """Return the epochs of queries that have begun, by group."""
    return {group: [each for other, each in BEGAN if other == group and 10 * each <= instant] for group, _ in BEGAN}


def drawn(dice: random.Random) -> list[Row]:
    """Draw samples of groups that have queries, marked with the newest."""
    rows = []
    for stamp in sorted(dice.sample(range(10, 100), 50)):
        known = {group: found for group, found in epochs_at(stamp).items() if found}
        group = dice.choice(list(known))
        rows.append((stamp, stamp + 25, dice.choice("ab"), dice.randrange(2), stamp, group, max(known[group])))
    return rows


def answers(rows: list[Row], kind: type[SharedExtents], later: type[SharedExtents], *, eager: bool) -> Counter[object]:
    """Return what each query sees at each instant; with each new query the operator is built anew."""
    found: Counter[object] = Counter()
    state = None
    borders = [10 * epoch for _, epoch in BEGAN]
    for since, until in zip(borders, [*borders[1:], NEVER], strict=True):
        live = {group: each for group, each in epochs_at(since).items() if each}
        made = kind if since < 50 else later
        subject = made(COLUMNS, KEYS, {3: HOW}, live, eager=eager)
        if state is not None:
            subject.restore(state)
        piece = pl.DataFrame([row for row in rows if since <= row[0] < until], COLUMNS.schema, orient="row")
        emitted = subject.transition(0, Batch(piece, until)).rows
        shown = (START, END, "k", "x", RUN_BEGIN.name, RUN_END.name)
        marks = (QUERY_GROUP.name, SUPERSEDED_UNTIL.name, VISIBLE_FROM.name)
        for start, end, *row, group, after, mark in emitted.select(*shown, *marks).rows():
            for epoch in live[group]:
                if after < epoch <= mark:
                    found.update((group, epoch, instant, *row) for instant in range(start, end))
        state = subject.save()
    return found


def brute_force(rows: list[Row]) -> Counter[object]:
    """Return the same, instant by instant."""
    found: Counter[object] = Counter()
    for group, epoch in BEGAN:
        own = [row for row in rows if row[5] == group and row[0] >= 10 * epoch]
        for instant in range(130):
            for key in "ab":
                there = [row for row in own if row[2] == key and row[0] <= instant < row[1]]
                at = 0
                while at < len(there):
                    last = at
                    while last + 1 < len(there) and there[last + 1][3] == there[at][3]:
                        last += 1
                    end = there[min(last + 1, len(there) - 1)][4]
                    found[group, epoch, instant, key, there[at][3], there[at][4], end] += 1
                    at = last + 1
    return found


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("kind", [SharedExtents, AsTheyCame])
@pytest.mark.parametrize("seed", range(20))
def test_each_query_sees_the_samples_since_it_began(seed: int, kind: type[SharedExtents], *, eager: bool) -> None:
    """Also of states in which marks are as they came."""
    rows = drawn(random.Random(f"marks/{seed}"))
    assert answers(rows, kind, SharedExtents, eager=eager) == brute_force(rows)


def test_samples_of_groups_that_began_at_different_times_have_one_mark() -> None:
    """Else each group adds one more time at which the samples of all of them are gone through."""
    subject = SharedExtents(COLUMNS, KEYS, {3: HOW}, {group: (group,) for group in range(40)}, eager=True)
    rows = [(10 + group, 90, "a", 1, 10 + group, group, group) for group in range(40)]
    found = subject.transition(0, Batch(pl.DataFrame(rows, COLUMNS.schema, orient="row"), 60)).rows
    kept = subject.save()["kept"]
    assert isinstance(kept, pl.DataFrame)
    assert kept[VISIBLE_FROM.name].unique().to_list() == [39]
    assert found.height == 0
    ends = subject.transition(0, Batch(COLUMNS, NEVER)).rows
    assert sorted(ends[QUERY_GROUP.name]) == list(range(40))
