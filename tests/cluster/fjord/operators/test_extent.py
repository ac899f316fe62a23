"""Extents: rows that stay the same are not cut, and samples that have gone are forgotten."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators import extent
from cluster.fjord.operators.extent import Extent
from cluster.fjord.operators.shared_extents import SharedExtents
from cluster.operators.columns import EXTENT, QUERY_GROUP, RUN_BEGIN, RUN_END, SUPERSEDED_UNTIL, VISIBLE_FROM
from cluster.operators.extent import Coalescing, Keeping

COLUMNS = pl.DataFrame(schema={START: pl.Int64, END: pl.Int64, "k": pl.String, "x": pl.Int64, "t": pl.Int64})
HOW = Coalescing(("x",), "t", ("k", "x"), ("since", "until"))
Sample = tuple[int, int, str, int, int]


def extent_of(kept: Keeping, lag_us: int | None = None) -> Extent:
    how = Coalescing(HOW.columns, HOW.stamp, HOW.ties, HOW.bounds, kept=kept)
    return Extent(COLUMNS, ("k",), how, lag_us=lag_us)


def samples(dice: random.Random, count: int, size: int, slide: int) -> list[Sample]:
    stamps = sorted(dice.sample(range(60), count))

    def boundary(instant: int) -> int:
        return -(-instant // slide) * slide - 1

    found = [(boundary(t + 1), boundary(t + size + 1), dice.choice("ab"), dice.randrange(2), t) for t in stamps]
    return [each for each in found if each[0] < each[1]]


def fed(subject: Extent, rows: list[Sample], cuts: list[int]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for since, until in zip([-10, *cuts], [*cuts, NEVER], strict=True):
        piece = [row for row in rows if since <= row[0] < until]
        batch = pl.DataFrame(piece, COLUMNS.schema, orient="row")
        found += subject.transition(0, Batch(batch, until)).rows.rows()
    return found


@pytest.mark.parametrize("kept", ["eager", "lazy"])
@pytest.mark.parametrize("seed", range(40))
def test_rows_end_where_they_change_and_nowhere_else(kept: Keeping, seed: int) -> None:
    dice = random.Random(f"uncut/{seed}")
    rows = samples(dice, 20, dice.choice((3, 10, 25)), dice.choice((1, 4)))
    found = fed(extent_of(kept), rows, sorted(dice.sample(range(90), dice.randrange(8))))
    by_row = defaultdict(list)
    for start, end, *row in found:
        by_row[tuple(row)].append((start, end))
    for row, spans in by_row.items():
        spans.sort()
        assert all(one[1] < other[0] for one, other in pairwise(spans)), (row, spans)
    assert sorted(found) == sorted(fed(extent_of("eager"), rows, []))


@pytest.mark.parametrize("kept", ["eager", "lazy"])
def test_a_row_that_others_wait_for_is_cut_at_the_watermark(kept: Keeping) -> None:
    rows = [(0, 50, "a", 1, 0), (2, 52, "b", 1, 2)]
    subject = extent_of(kept, lag_us=5)
    first = subject.transition(0, Batch(pl.DataFrame(rows, COLUMNS.schema, orient="row"), 4))
    assert (first.rows.height, first.watermark_us) == (0, 0)
    second = subject.transition(0, Batch(COLUMNS, 6))
    assert second.rows.select(START, END, "k").rows() == [(0, 6, "a")]
    assert second.watermark_us == 2
    rest = subject.transition(0, Batch(COLUMNS, NEVER)).rows
    assert rest.select(START, END, "k").rows() == [(2, 52, "b"), (6, 50, "a")]


@pytest.mark.parametrize("kept", ["eager", "lazy"])
def test_what_is_there_is_known_ahead_however_far_rows_have_come(kept: Keeping) -> None:
    rows = pl.DataFrame([(0, 50, "a", 1, 0), (2, 52, "a", 1, 2)], COLUMNS.schema, orient="row")
    subject = extent_of(kept)
    subject.transition(0, Batch(rows, 4))
    copy = extent_of(kept)
    copy.restore(subject.save())
    found = copy.ahead(4, [COLUMNS])
    assert found.rows.rows() == [(2, 4, "a", 1, 0, 2)]
    assert found.watermark_us == 4


def test_samples_that_have_left_are_not_kept() -> None:
    dice = random.Random("kept")
    subject = extent_of("eager")
    for cut in range(1, 60, 4):
        rows = [row for row in samples(dice, 40, 6, 1) if cut - 4 <= row[0] < cut]
        subject.transition(0, Batch(pl.DataFrame(rows, COLUMNS.schema, orient="row"), cut))
        kept = subject.save()["kept"]
        assert isinstance(kept, pl.DataFrame)
        assert (kept[END] >= cut).all()


@pytest.mark.parametrize("kept", ["eager", "lazy"])
@pytest.mark.parametrize("seed", range(10))
def test_each_sample_that_enters_counts_those_of_its_key(kept: Keeping, seed: int) -> None:
    dice = random.Random(f"companions/{seed}")
    rows = samples(dice, 30, 25, dice.choice((1, 4)))
    cuts = sorted(dice.sample(range(90), 5))
    subject = extent_of(kept)
    fed(subject, rows, cuts)
    expected = 0
    for since, until in pairwise([-10, *cuts]):
        there = [row for row in rows if row[0] < until <= row[1]]
        expected += sum(row[2] == each[2] for row in rows if since <= row[0] < until for each in there)
    assert subject.companions == expected


@pytest.mark.parametrize("kept", ["eager", "lazy"])
def test_neighbours_that_are_linked_are_counted(kept: Keeping) -> None:
    """Of 40 samples of one key, every fourth has another value than the one before."""
    subject = extent_of(kept)
    rows = [(at, at + 100, "a", at // 4, at) for at in range(40)]
    for at in range(40):
        subject.transition(0, Batch(pl.DataFrame(rows[at : at + 1], COLUMNS.schema, orient="row"), at + 1))
    assert subject.neighbours >= 39
    assert subject.linked / subject.neighbours == pytest.approx(0.75, abs=0.05)


def test_a_sample_that_was_cut_goes_on_as_one() -> None:
    subject = extent_of("eager")
    pieces = [(0, 4, "a", 1, 0), (2, 4, "a", 1, 2)]
    subject.transition(0, Batch(pl.DataFrame(pieces, COLUMNS.schema, orient="row"), 4))
    pieces = [(4, 9, "a", 1, 0), (4, 11, "a", 1, 2)]
    found = subject.transition(0, Batch(pl.DataFrame(pieces, COLUMNS.schema, orient="row"), NEVER)).rows
    assert found.rows() == [(2, 9, "a", 1, 0, 2), (9, 11, "a", 1, 2, 2)]
    kept = extent_of("eager")
    kept.transition(0, Batch(pl.DataFrame([(0, 4, "a", 1, 0)], COLUMNS.schema, orient="row"), 4))
    kept.transition(0, Batch(pl.DataFrame([(4, 9, "a", 1, 0)], COLUMNS.schema, orient="row"), 5))
    table = kept.save()["kept"]
    assert isinstance(table, pl.DataFrame)
    assert table.select(START, END).rows() == [(0, 9)]


def test_what_is_coalesced_at_once_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random("steps")
    rows = samples(dice, 40, 25, 1)
    expected = sorted(fed(extent_of("lazy"), rows, []))
    most = []
    found = extent.of_snapshots

    def counted(*given: Any) -> Any:
        most.append(extent.pairs_of_snapshots(given[0], given[2], given[3]))
        return found(*given)

    monkeypatch.setattr(extent, "of_snapshots", counted)
    monkeypatch.setattr(extent, "_MOST_PAIRS", 200)
    assert sorted(fed(extent_of("lazy"), rows, [])) == expected
    assert len(most) > 1


@pytest.mark.parametrize("kept", ["eager", "lazy"])
@pytest.mark.parametrize("cuts", [[], [10, 25]])
def test_a_row_that_goes_and_comes_again_is_another_one(kept: Keeping, cuts: list[int]) -> None:
    """The sample between two equal ones leaves first: the last one has a row of its own before and behind that."""
    rows = [(0, 30, "a", 1, 0), (1, 20, "a", 2, 1), (2, 40, "a", 1, 2)]
    found = sorted((start, end, x, since, until) for start, end, _, x, since, until in fed(extent_of(kept), rows, cuts))
    assert found == [
        (0, 1, 1, 0, 0),
        (1, 2, 2, 1, 1),
        (1, 20, 1, 0, 1),
        (2, 20, 1, 2, 2),
        (2, 20, 2, 1, 2),
        (20, 30, 1, 0, 2),
        (30, 40, 1, 2, 2),
    ]


def test_neighbours_of_a_sample_that_leaves_out_of_turn_are_compared() -> None:
    subject = extent_of("eager")
    rows = [(0, 10, "a", 1, 0), (1, 3, "a", 2, 1), (2, 12, "a", 1, 2)]
    subject.transition(0, Batch(pl.DataFrame(rows, COLUMNS.schema, orient="row"), 4))
    found = subject.transition(0, Batch(COLUMNS, NEVER)).rows
    assert found.rows() == [(3, 10, "a", 1, 0, 2), (10, 12, "a", 1, 2, 2)]


@pytest.mark.parametrize("eager", [True, False])
def test_queries_see_the_same_rows_once_the_window_has_passed_their_beginnings(*, eager: bool) -> None:
    how = Coalescing(("x",), "t", ("k", "x"), (RUN_BEGIN.name, RUN_END.name))
    columns = COLUMNS.with_columns(pl.lit(0, pl.Int64).alias(name) for name in (QUERY_GROUP.name, VISIBLE_FROM.name))
    subject = SharedExtents(columns, ("k", QUERY_GROUP.name), {7: how}, {9: (0, 1)}, eager=eager)

    def taken(rows: list[tuple[Any, ...]], until: int) -> list[tuple[Any, ...]]:
        batch = Batch(pl.DataFrame(rows, columns.schema, orient="row"), until)
        found = subject.transition(0, batch).rows
        assert (found[EXTENT.name] == 7).all()
        shown = (START, END, RUN_BEGIN.name, RUN_END.name, SUPERSEDED_UNTIL.name, VISIBLE_FROM.name)
        return sorted(found.select(shown).rows())

    assert taken([(0, 5, "a", 1, 0, 9, 0)], 1) == []
    assert taken([(3, 8, "a", 1, 3, 9, 1)], 4) == [(0, 3, 0, 0, -1, 0)]
    # What the later query has seen is cut where the earlier one begins to see the same.
    assert taken([], 6) == [(3, 5, 0, 3, -1, 0), (3, 6, 3, 3, 0, 1), (5, 6, 3, 3, -1, 0)]
    assert taken([], NEVER) == [(6, 8, 3, 3, -1, 1)]
