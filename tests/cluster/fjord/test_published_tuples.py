"""Of published tuples a query reads the first of each mote and period: live or later, however they are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operators.sampling import Sample
from cluster.fjord.stream_scan import RowsInFile, RowsInMemory, StoredRows, StreamScan
from cluster.fjord.upstream_dataflow import UpstreamDataflow
from cluster.operators.columns import Column
from protocols.wire.batches import (
    COVERED_BY_COLUMN,
    FINGERPRINT_COLUMN,
    NEXT_COLUMN,
    NO_NEIGHBOUR_US,
    PREVIOUS_COLUMN,
)
from protocols.wire.streams import FieldType
from tests.cluster.fjord.test_scan_conditions import NO_TABLES, plan
from tests.cluster.published_tuples import Published, Stamped, columns_beside, stored_rows, taken

NARROW, WIDE = st.integers(-12, 12), st.integers(-(2**62) + 1, 2**62 - 1)
PERIODS = st.integers(1, 7) | st.sampled_from([2**40, 2**62])


@st.composite
def arrivals(draw: st.DrawFn, stamps: st.SearchStrategy[int] = NARROW | WIDE) -> list[Stamped]:
    """Draw tuples of a stream in the order of arrival: of three motes, and samples; each has its place as its value."""
    found: list[Stamped] = []
    for place, (stamp, mote) in enumerate(draw(st.lists(st.tuples(stamps, st.sampled_from(["m", "n", "o", None]))))):
        default_us = {"m": 0, "n": 3}.get(mote or "", 5)
        found.append((stamp, (place,) if mote is None else Published((place,), mote, default_us)))
    return found


def frame(rows: Sequence[Stamped]) -> pl.DataFrame:
    schema = {START: pl.Int64, "fjord_default_rate": pl.Boolean, "k": pl.Int64}
    found = pl.DataFrame([(at, True, *row) for at, row in rows], schema=schema, orient="row")
    others = [
        pl.lit(None, pl.Float64).alias("x"),
        pl.lit(None, pl.String).alias("t"),
        pl.lit(None, pl.Boolean).alias("b"),
    ]
    return found.with_columns(*columns_beside(rows), *others)


@given(arrivals(), st.none() | PERIODS)
def test_it_takes_the_first_that_came_of_each_mote_and_period(rows: list[Stamped], period_us: int | None) -> None:
    stored = frame(stored_rows(rows))
    batch = Batch(stored.with_columns((pl.col(START) + 1).alias(END)), 0)
    found = Sample(period_us).transition(0, batch).rows["k"].to_list()
    assert found == [place for place, kept in enumerate(taken(rows, period_us)) if kept]


@pytest.mark.parametrize(
    ("start", "previous", "following", "is_taken"),
    [
        (7, NO_NEIGHBOUR_US, None, True),
        (7, 4, None, True),
        (7, 5, None, False),
        (7, 7, None, False),  # two tuples of one instant
        (-1, -5, None, False),  # periods are counted down, not toward zero
        (-5, -6, None, True),
        (1, -1, None, True),
        (7, 4, 10, True),
        (7, 4, 9, False),  # one that is stamped later came before
        (-7, NO_NEIGHBOUR_US, -6, False),
        (-3, NO_NEIGHBOUR_US, 1, True),
        (7, None, None, False),  # a sample
        (5, None, None, True),
    ],
)
def test_examples(start: int, previous: int | None, following: int | None, is_taken: bool) -> None:
    schema = {START: pl.Int64, PREVIOUS_COLUMN: pl.Int64, NEXT_COLUMN: pl.Int64}
    rows = pl.DataFrame([(start, previous, following)], schema=schema, orient="row")
    assert Sample(5).transition(0, Batch(rows, 0)).rows.height == is_taken


def pieces_of(rows: Sequence[Stamped], cuts: Sequence[int], folder: Path | None) -> list[StoredRows]:
    """Return rows in pieces, in files or in memory: a piece without published tuples has none of their columns."""
    found: list[StoredRows] = []
    ends = [*sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        piece = frame(rows[begin:end])
        if folder is None:
            found.append(RowsInMemory(piece))
        else:
            piece.write_parquet(folder / f"{len(found)}.parquet")
            found.append(RowsInFile(str(folder / f"{len(found)}.parquet")))
    return found


@given(
    arrivals(NARROW),
    st.lists(st.integers(0, 20), max_size=4),
    st.lists(st.sampled_from(["", "SAMPLE EVERY 3 US", "SAMPLE EVERY 7 US"]), min_size=1, max_size=3, unique=True),
    st.sampled_from(["", "WHERE k > 3", "WHERE k = 5"]),
)
def test_a_query_reads_the_same_whatever_is_read_beside_it(
    rows: list[Stamped], cuts: list[int], samples: list[str], condition: str
) -> None:
    together = plan(*(f"SELECT k FROM s {each} {condition}" for each in samples))
    scan = StreamScan(pieces_of(stored_rows(rows), cuts, None), 100)
    emitted = UpstreamDataflow(together, lambda *_: scan, NO_TABLES).run()
    found = sorted(sorted(each.rows["k"].to_list()) if each.rows is not None else [] for each in emitted)
    wanted = {"": lambda _: True, "WHERE k > 3": lambda k: k > 3, "WHERE k = 5": lambda k: k == 5}[condition]
    periods = [int(each.split()[2]) if each else None for each in samples]
    assert found == sorted(
        [place for place, kept in enumerate(taken(rows, period)) if kept and wanted(place)] for period in periods
    )


@pytest.mark.parametrize("in_files", [True, False])
def test_pieces_with_and_without_the_columns_are_one_batch(tmp_path: Path, in_files: bool) -> None:
    rows = stored_rows([(1, (0,)), (2, Published((1,), "m")), (3, (2,)), (9, (3,))])
    pieces = pieces_of(rows, [1, 2], tmp_path if in_files else None)
    columns = (Column("k", FieldType.INTEGER),)
    found = StreamScan(pieces, 10).samples(columns, neighbours=True).rows
    assert found.select("k", PREVIOUS_COLUMN, NEXT_COLUMN).rows() == [
        (0, None, None), (1, NO_NEIGHBOUR_US, None), (2, None, None), (3, None, None),
    ]  # fmt: skip
    assert PREVIOUS_COLUMN not in StreamScan(pieces, 10).samples(columns).rows.columns
    assert PREVIOUS_COLUMN not in StreamScan(pieces[:1], 10).samples(columns, neighbours=True).rows.columns


def test_they_stand_beside_aggregates() -> None:
    rows = stored_rows([(1, (0,)), (2, Published((1,), "m")), (3, (2,))])
    sampled, published = frame(rows[:1]), frame(rows[1:])
    marks = [pl.lit(None, pl.String).alias(name) for name in (FINGERPRINT_COLUMN, COVERED_BY_COLUMN)]
    columns = (Column("k", FieldType.INTEGER), Column(COVERED_BY_COLUMN, FieldType.TEXT))
    for pieces in ((sampled, published.with_columns(marks)), (sampled.with_columns(marks), published)):
        found = StreamScan([RowsInMemory(each) for each in pieces], 10).samples(columns, neighbours=True).rows
        assert found.select("k", PREVIOUS_COLUMN).rows() == [(0, None), (1, NO_NEIGHBOUR_US), (2, None)]
        assert found[COVERED_BY_COLUMN].to_list() == [None] * 3


class Recorded(RowsInMemory):
    """Rows that know which columns were read of them."""

    def __init__(self, rows: pl.DataFrame) -> None:
        super().__init__(rows)
        self.read_columns: set[str] = set()

    def read(
        self, columns: Sequence[str], between_us: tuple[int, int] | None = None, wanted: pl.Expr | None = None
    ) -> pl.DataFrame:
        self.read_columns |= set(columns)
        return super().read(columns, between_us, wanted)


@pytest.mark.parametrize(("text", "reads"), [("SAMPLE EVERY 3 US", True), ("", False)])
def test_neighbours_are_read_only_for_a_period(text: str, reads: bool) -> None:
    rows = Recorded(frame(stored_rows([(2, Published((1,), "m"))])))
    UpstreamDataflow(plan(f"SELECT k FROM s {text}"), lambda *_: StreamScan([rows], 100), NO_TABLES).run()
    assert (PREVIOUS_COLUMN in rows.read_columns) is reads
