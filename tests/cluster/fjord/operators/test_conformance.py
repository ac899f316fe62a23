"""Every operator under the contract of queues and nothing more: answers depend on neither cuts, order nor restarts.

batch 1    rows 10 20      watermark 5          the same as one batch with 6 8 10 20,
batch 2    rows 6 8        watermark 30         at every instant
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from inspect import isabstract
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import PlanError
from cluster.fjord import operators
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.lookup_tables import LookupTable
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.asof_joining import AsofJoin
from cluster.fjord.operators.changes import Changes
from cluster.fjord.operators.count_window import CountWindow
from cluster.fjord.operators.device_aggregates import AggregateRecipient, DeviceAggregates
from cluster.fjord.operators.distinct import Distinct, DistinctPieces
from cluster.fjord.operators.extent import Extent
from cluster.fjord.operators.filtering import Filter
from cluster.fjord.operators.granularity import Granularity
from cluster.fjord.operators.grid_window import GridWindow
from cluster.fjord.operators.grouped_filter import GroupedFilter
from cluster.fjord.operators.held_rows import Held
from cluster.fjord.operators.joining import Join
from cluster.fjord.operators.kept_extent import KeptExtent
from cluster.fjord.operators.lookup import Lookup, PiecewiseLookup
from cluster.fjord.operators.multiplexing import Multiplex
from cluster.fjord.operators.multiplicities import Multiplicities, difference, intersection
from cluster.fjord.operators.origins import OriginJoin, OriginUnion, WithoutOrigins
from cluster.fjord.operators.pane_aggregation import PaneAggregate, WindowSubscriber
from cluster.fjord.operators.panes import Panes
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.operators.pattern_match import PatternMatch
from cluster.fjord.operators.per_query_filter import PerQueryFilter
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.operators.piece_windows import PieceIntervals
from cluster.fjord.operators.preaggregated_filter import PreaggregatedFilter
from cluster.fjord.operators.projection import PieceProject, Project
from cluster.fjord.operators.ranking import Ranked
from cluster.fjord.operators.reordering import Reorder
from cluster.fjord.operators.row_boundaries import BoundedAggregate, BoundedMultiplicities, CountedPartialAggregate
from cluster.fjord.operators.sampling import Sample
from cluster.fjord.operators.semi_joining import SemiJoin
from cluster.fjord.operators.sequence import Sequence as Ordered
from cluster.fjord.operators.session_window import SessionWindow
from cluster.fjord.operators.shared_count_window import SharedCountWindow
from cluster.fjord.operators.shared_extents import CountedExtents, SharedExtents
from cluster.fjord.operators.splitting import Split
from cluster.fjord.operators.stamp_joining import StampJoin
from cluster.fjord.operators.time_window import TimeWindow
from cluster.fjord.operators.union import Union
from cluster.fjord.operators.until_next import UntilNext
from cluster.fjord.operators.window_bounds import WindowBounds
from cluster.fjord.operators.zipping import Zip
from cluster.operators import Node, Relation, TableLookup
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, AggregateCall, Column, Ordering, Output, Scalar, Schema
from cluster.operators.extent import Coalescing, Keeping, Link
from cluster.operators.kept_extent import KeptTuples
from cluster.operators.mark_columns import SUPERSEDED_UNTIL
from cluster.operators.pattern_match import Definition, Lag, PatternElement, Reach, RowPattern, Skip, SkipKind
from cluster.operators.scalar_expressions import passed_on
from cluster.operators.sequence import SequenceCall
from cluster.operators.window_shapes import Grid, Session, Span
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.batches import (
    COVERED_BY_COLUMN,
    EXPECTED_COLUMN,
    FINGERPRINT_COLUMN,
    MISSING_COLUMN,
    PANE_COLUMN,
    SAMPLES_COLUMN,
    measure_column,
)
from protocols.wire.programs import Measure
from protocols.wire.streams import FieldType
from tests.cluster.fjord.operators import test_pieces as pieces
from tests.cluster.fjord.operators.conformance import Case, at_once, frame, physical, run, snapshots

INTEGER, TEXT = FieldType.INTEGER, FieldType.TEXT
LEFT, RIGHT = frame([]), frame([], 1)
COLUMNS: Schema = (Column("k", TEXT), Column("n", INTEGER))
KEY = COLUMNS[:1]
BY_BOTH = (Ordering("n", descending=True), Ordering("k", nulls_first=True))
CALLS = (
    AggregateCall("c", "count", None, INTEGER),
    AggregateCall("s", "sum", read_scalar('"n"', INTEGER), INTEGER),
    AggregateCall("m", "max", read_scalar('"n"', INTEGER), INTEGER),
)
NO_LESS = Link(read_scalar('"n" >= "before"', FieldType.BOOLEAN), (("before", "n"),))
GROUP_KEYS = (*KEY, QUERY_GROUP, VISIBLE_FROM)


def condition(sql: str) -> Scalar:
    return read_scalar(sql, FieldType.BOOLEAN)


def merged(keys: Schema) -> MergeAggregate:
    return MergeAggregate(keys, CALLS)


def counted(keys: Schema) -> Case:
    """Partial rows are as many as batches; what counts is what they add up to."""
    names = tuple(key.name for key in keys)
    return Case(
        lambda: PartialAggregate(names, CALLS),
        settled=lambda rows: merged(keys).transition(0, Batch(rows.sort(START), NEVER)).rows,
    )


def coalesced(kept: Keeping, link: Link | None = None, lag_us: int | None = None, *, windowed: bool = False) -> Case:
    """Runs of each k: of stamps as they are, or of numbers taken for stamps, which rows enter in any order."""
    stamp = "t" if windowed else "n"
    how = Coalescing(("n",), stamp, ("k", "n"), ("since", "until"), link, kept)
    columns = LEFT.with_columns(pl.lit(0, pl.Int64).alias("t"))
    stamped = Project(
        (*passed_on(COLUMNS), Output("t", read_scalar(f'"{START}"' if windowed else '"n"', FieldType.INTEGER)))
    )
    below = [stamped, TimeWindow(7, 2)] if windowed else [stamped]
    return Case(lambda: Extent(columns, ("k",), how, lag_us=lag_us), chronons=windowed, below=lambda: below)


def shared(kept: Keeping, *links: Link | None) -> Case:
    """Runs of each k for queries of epochs 0 and 1, of which the later one sees the samples with n = 1 only."""
    ways = [Coalescing(("n",), "t", ("k", "n"), ("fjord_run_begin", "fjord_run_end"), link, kept) for link in links]
    marks = {"t": f'"{START}"', QUERY_GROUP.name: "7", VISIBLE_FROM.name: '"n"'}
    stamped = Project((*passed_on(COLUMNS), *(Output(name, read_scalar(sql, INTEGER)) for name, sql in marks.items())))
    added = dict.fromkeys(marks, pl.lit(0, pl.Int64))
    keys = ("k", QUERY_GROUP.name)
    eager = kept == "eager"
    return Case(
        lambda: SharedExtents(LEFT.with_columns(**added), keys, dict(enumerate(ways)), {7: (0, 1)}, eager=eager),
        chronons=True,
        below=lambda: [stamped, TimeWindow(7, 2)],
        settled=seen,
    )


def seen(rows: pl.DataFrame) -> pl.DataFrame:
    """Which queries an answer is for depends on which samples there are, and on cuts; what each sees does not."""
    epochs = pl.DataFrame({"epoch": [0, 1]})
    own = (pl.col("epoch") > pl.col(SUPERSEDED_UNTIL.name)) & (pl.col("epoch") <= pl.col(VISIBLE_FROM.name))
    return rows.join(epochs, how="cross").filter(own).drop(SUPERSEDED_UNTIL.name, VISIBLE_FROM.name)


def counted_for_two(rows: int, lag_us: int, *, partitioned: bool) -> Case:
    """The last rows for queries of epochs 0 and 1, of which the later one sees the samples with n = 1 only."""
    marks = {QUERY_GROUP.name: "7", VISIBLE_FROM.name: '"n"'}
    marked = Project((*passed_on(COLUMNS), *(Output(name, read_scalar(sql, INTEGER)) for name, sql in marks.items())))
    columns = LEFT.with_columns(**dict.fromkeys(marks, pl.lit(0, pl.Int64)))
    keys = (*(("k",) if partitioned else ()), QUERY_GROUP.name)
    return Case(
        lambda: SharedCountWindow(columns, rows, keys, {7: (0, 1)}, lag_us=lag_us),
        chronons=True,
        below=lambda: [marked],
        settled=seen,
    )


def coalesced_for_two(link: Link | None) -> Case:
    """Runs for such queries, of samples of which some have left for the earlier one."""
    how = Coalescing(("n",), "t", ("k", "n"), ("fjord_run_begin", "fjord_run_end"), link)
    after = """CASE WHEN "k" = 'a' AND "n" >= 1 THEN 0 ELSE -1 END"""
    marks = {"t": f'"{START}"', QUERY_GROUP.name: "7", VISIBLE_FROM.name: '"n"', SUPERSEDED_UNTIL.name: after}
    stamped = Project((*passed_on(COLUMNS), *(Output(name, read_scalar(sql, INTEGER)) for name, sql in marks.items())))
    columns = LEFT.with_columns(**dict.fromkeys(marks, pl.lit(0, pl.Int64)))
    return Case(
        lambda: CountedExtents(columns, ("k", QUERY_GROUP.name), {0: how}, {7: (0, 1)}, eager=True),
        chronons=True,
        below=lambda: [stamped, TimeWindow(7, 2)],
        settled=seen,
    )


def matched(elements: tuple[PatternElement, ...], skip: SkipKind, within_us: int | None = 7) -> Case:
    """A pattern of rows, with conditions that read the row, the one before it, and those of variables."""
    definitions = (
        Definition("A", condition('"n" > 0 OR "lag" > 0')),
        Definition("B", condition('"n" >= 0'), condition('"n" <= "last" OR "count" > 1 OR "last" IS NULL')),
    )
    last = Reach("last", "last", "A", read_scalar('"n"', INTEGER))
    count = Reach("count", "aggregate", "B", call=AggregateCall("count", "count", None, INTEGER))
    measures = tuple(Output(name, read_scalar(f'"{name}"', INTEGER)) for name in ("last", "count"))
    lags = (Lag("lag", read_scalar('"n"', INTEGER), 1),)
    pattern = RowPattern(elements, definitions, measures, lags, (last, count), ("k", "n"), within_us, Skip(skip, "A"))
    return Case(lambda: PatternMatch(LEFT, ("k",), pattern), chronons=True)


class Relations:
    """A relation of which another version holds from instant 9 on."""

    VERSIONS = ((-(2**62), [("a", "old"), ("a", "older")]), (9, [("a", "new"), ("b", "new")]))

    def pieces(
        self, table: Node, key: str | None, streams: frozenset[str], first_us: int, last_us: int
    ) -> Sequence[tuple[int, LookupTable | PlanError]]:
        found = []
        for since, rows in self.VERSIONS:
            if since <= last_us:
                found.append((since, LookupTable(pl.DataFrame(rows, schema=["id", "name"], orient="row"))))
        return found[1:] if len(found) > 1 and found[1][0] <= first_us else found


def held(begins_us: int, groups: tuple[int, ...] | None = None) -> Case:
    table = Relation("r", "r@1", (Column("id", TEXT), Column("name", TEXT)))
    return Case(lambda: Held(table, frozenset(), Relations(), begins_us=begins_us, waits_us=2, groups=groups))


def looked_up(kind: str) -> Case:
    columns = (Column("id", TEXT), Column("name", TEXT))
    table = Relation("r", "r@1", columns)
    lookup = TableLookup(table, condition('"k" = "id"'), kind)
    return Case(lambda: Lookup(lookup, frozenset(), Relations()))


class OneSampleAggregates(Operator):
    """Makes of each row an aggregate of one sample, as a device would: with the fingerprint f, in a pane of 2."""

    def transition(self, port: int, batch: Batch) -> Batch:
        number = pl.col("n")
        rows = batch.rows.select(
            START, (pl.col(START) + 1).alias(END), "k",
            pl.lit("f").alias(FINGERPRINT_COLUMN), pl.lit(1, pl.Int64).alias(PANE_COLUMN),
            *(pl.lit(1, pl.Int64).alias(name) for name in (SAMPLES_COLUMN, EXPECTED_COLUMN)),
            pl.lit(0, pl.Int64).alias(MISSING_COLUMN),
            pl.lit(1, pl.Int64).alias(measure_column(Measure.COUNT, "n")),
            *(number.alias(measure_column(each, "n")) for each in (Measure.SUM, Measure.MIN, Measure.MAX)),
        )  # fmt: skip
        return Batch(rows, batch.watermark_us)


class Excepted(Operator):
    """Marks the rows of which the key is a as covered by aggregates with the fingerprints f and g."""

    def transition(self, port: int, batch: Batch) -> Batch:
        covered = pl.when(pl.col("k") == "a").then(pl.lit("f g")).otherwise(pl.lit(None, pl.String))
        return Batch(batch.rows.with_columns(covered.alias(COVERED_BY_COLUMN)), batch.watermark_us)


def grouped(*, newest: bool = False) -> GroupedFilter:
    conditions = ((1, None), (2, condition('"n" > 0')))
    return GroupedFilter(conditions, COLUMNS, {1: 7, 2: 8} if newest else None)


def device_aggregates() -> DeviceAggregates:
    measures = (("n", (Measure.SUM, Measure.MAX)),)
    recipient = AggregateRecipient(1, "f", None, 7, 4, measures)
    return DeviceAggregates([recipient], KEY, keys=(Output("k", read_scalar('"k"', TEXT)),), calls=CALLS, pane_us=2)


def panes() -> list[Operator]:
    return [grouped(newest=True), Panes(2), PartialAggregate(tuple(key.name for key in GROUP_KEYS), CALLS)]


def asof(low: int | None, high: int, kind: str, *keys: tuple[str, str]) -> Case:
    return Case(lambda: AsofJoin(LEFT, RIGHT, keys=keys, low_us=low, high_us=high, kind=kind))


def near(low: int, high: int, kind: str, predicate: str | None, *keys: tuple[str, str]) -> Case:
    also = None if predicate is None else condition(predicate)
    return Case(lambda: StampJoin(LEFT, RIGHT, keys=keys, predicate=also, bounds_us=(low, high), kind=kind))


def zipped(low: int, high: int, kind: str, *keys: tuple[str, str]) -> Case:
    make = lambda: Zip(LEFT, RIGHT, keys=keys, bounds_us=(low, high), kind=kind, apart="apart")  # noqa: E731 - a recipe
    return Case(make, chronons=True)


def in_order(*calls: SequenceCall) -> Case:
    return Case(lambda: Ordered(LEFT, ("k",), ("k", "n"), calls), chronons=True)


def kept(most: int, *, lag_us: int | None = 1, keys: tuple[str, ...] = ("k",), **window: Any) -> Case:
    """What an extent keeps; runs are of equal numbers."""
    tuples = KeptTuples(most, keys, "n", "n", ("since", "until"), "quality", **window)
    return Case(lambda: KeptExtent(LEFT, tuples, lag_us=lag_us), chronons=True)


CASES: dict[type[Operator], tuple[Case, ...]] = {
    Changes: (Case(lambda: Changes(LEFT, insertions=True)), Case(lambda: Changes(LEFT, insertions=False))),
    CountWindow: (
        Case(lambda: CountWindow(LEFT, 2, 1), chronons=True),
        Case(lambda: CountWindow(LEFT, 3, 2), chronons=True),
        Case(lambda: CountWindow(LEFT, 1, 3, ("k",)), chronons=True),
        Case(lambda: CountWindow(LEFT, 2, 1, ("k",)), chronons=True),
        Case(lambda: CountWindow(LEFT, None, 2, ("k",)), chronons=True),
        Case(lambda: CountWindow(LEFT, 2, 1, lag_us=0), chronons=True),
        Case(lambda: CountWindow(LEFT, 2, 2, ("k",), lag_us=0), chronons=True),
        Case(lambda: CountWindow(LEFT, 3, 1, ("k", "n"), lag_us=3), chronons=True),
        Case(lambda: CountWindow(LEFT, 2, 1, ("k",), lag_us=None), chronons=True),
    ),
    Distinct: (Case(lambda: Distinct(LEFT)), Case(lambda: Distinct(LEFT.drop("n")), below=lambda: [Project(ONLY_K)])),
    Filter: (Case(lambda: Filter(condition('"n" > 0'))),),
    Granularity: (Case(lambda: Granularity(3), granule=3),),
    GridWindow: (
        Case(lambda: GridWindow(Grid(Span("us", 4), 3, size=Span("us", 6)), 4)),
        Case(lambda: GridWindow(Grid(Span("us", 5), 2), 1)),
        Case(lambda: GridWindow(Grid(Span("us", 7)), 3)),
        Case(lambda: GridWindow(Grid(Span("day", 1), 9, size=Span("month", 1)), 1)),
    ),
    GroupedFilter: (Case(grouped), Case(lambda: grouped(newest=True))),
    Join: (
        Case(lambda: Join(LEFT, RIGHT, condition('"k" = "k2" AND "n" <= "n2"'))),
        Case(lambda: Join(LEFT, RIGHT, None)),
    ),
    Lookup: tuple(map(looked_up, ("inner", "left", "semi", "anti"))),
    PerQueryFilter: (
        Case(lambda: PerQueryFilter({1: condition('"n" = 0')}), below=lambda: [grouped()]),
        Case(lambda: PerQueryFilter({1: condition('"n" = 0'), 2: condition("\"k\" = 'a'")}), below=lambda: [grouped()]),
    ),
    MergeAggregate: (
        Case(lambda: merged(KEY), below=lambda: [PartialAggregate(("k",), CALLS)]),
        Case(lambda: merged(()), below=lambda: [PartialAggregate((), CALLS)]),
        Case(lambda: merged(KEY), chronons=True, below=lambda: [PartialAggregate(("k",), CALLS)]),
        Case(
            lambda: MergeAggregate(KEY, CALLS, slide_us=3),
            chronons=True,
            below=lambda: [TimeWindow(5, 3), PartialAggregate(("k",), CALLS)],
        ),
    ),
    Multiplex: (Case(Multiplex),),
    Multiplicities: (Case(lambda: difference(LEFT)), Case(lambda: intersection(LEFT))),
    PaneAggregate: (
        Case(
            lambda: PaneAggregate(
                KEY, CALLS, [WindowSubscriber(1, 6, 4, 7), WindowSubscriber(1, 2, 2, 7), WindowSubscriber(2, 4, 4, 8)]
            ),
            chronons=True,
            below=panes,
        ),
    ),
    Panes: (Case(lambda: Panes(4)),),
    PartialAggregate: (counted(KEY), counted(())),
    Project: (Case(lambda: Project(ONLY_K)),),
    Ranked: (
        Case(lambda: Ranked(LEFT, keys=(), order=BY_BOTH, most=2)),
        Case(lambda: Ranked(LEFT, keys=("k",), order=BY_BOTH, above=1, most=2, name="place")),
        Case(lambda: Ranked(LEFT, keys=(), order=BY_BOTH[:1], function="rank", name="place", lag_us=4)),
    ),
    Reorder: (Case(lambda: Reorder(COLUMNS)),),
    Sample: (Case(lambda: Sample(3)), Case(lambda: Sample(None))),
    SemiJoin: (
        Case(lambda: SemiJoin(LEFT, RIGHT, condition('"k" = "k2"'), anti=False)),
        Case(lambda: SemiJoin(LEFT, RIGHT, condition('"n" < "n2"'), anti=True)),
    ),
    SessionWindow: (
        Case(lambda: SessionWindow(LEFT, (), Session(3, 30)), chronons=True),
        Case(lambda: SessionWindow(LEFT, ("k",), Session(2, 7)), chronons=True),
        Case(lambda: SessionWindow(LEFT, ("k", "n"), Session(4, 4, early=True)), chronons=True),
        Case(lambda: SessionWindow(LEFT, ("k",), Session(3, 9, early=True), lag_us=0), chronons=True),
        Case(lambda: SessionWindow(LEFT, (), Session(3, 60, early=True), lag_us=2), chronons=True),
        Case(lambda: SessionWindow(LEFT, ("k",), Session(5, 60, early=True), lag_us=None), chronons=True),
    ),
    KeptExtent: (
        kept(2, size_us=7),
        kept(3, size_us=20, lag_us=2),
        kept(1, size_us=9, slide_us=4),
        kept(2, size_us=5, lag_us=None, keys=()),
        kept(3, rows=5, lag_us=0),
        kept(2, rows=4, slide_rows=3, apart=("k",)),
    ),
    Ordered: (
        in_order(
            SequenceCall("before", "lag", "n", INTEGER, rows=2), SequenceCall("s", "sum", "n", INTEGER, peers=True)
        ),
        in_order(
            SequenceCall("behind", "lead", "n", INTEGER, rows=1, within_us=4),
            SequenceCall("most", "max", "k", TEXT, range_us=5, peers=True),
        ),
        in_order(
            SequenceCall("old", "sum", "n", INTEGER, peers=True, until_us=3),
            SequenceCall("earlier", "last", "n", INTEGER, until_rows=2),
            SequenceCall("between", "count", None, INTEGER, rows=3, until_rows=1),
        ),
    ),
    Split: (Case(lambda: Split(LEFT, 1)), Case(lambda: Split(LEFT, 4))),
    TimeWindow: (Case(lambda: TimeWindow(5)), Case(lambda: TimeWindow(4, 6)), Case(lambda: TimeWindow(None, 3))),
    DeviceAggregates: (
        Case(
            device_aggregates,
            chronons=True,
            below=lambda: [OneSampleAggregates()],
            settled=lambda rows: merged(GROUP_KEYS).transition(0, Batch(rows.sort(START), NEVER)).rows,
        ),
    ),
    Union: (Case(lambda: Union(LEFT)),),
    Extent: (
        coalesced("eager", windowed=True),
        coalesced("lazy", windowed=True),
        coalesced("eager", NO_LESS, 3, windowed=True),
        coalesced("lazy", NO_LESS, 2, windowed=True),
        coalesced("eager"),
        coalesced("lazy", NO_LESS),
        coalesced("eager", NO_LESS, 4),
    ),
    SharedCountWindow: (
        counted_for_two(2, 3, partitioned=True),
        counted_for_two(3, 9, partitioned=False),
        counted_for_two(1, 1_000, partitioned=True),
    ),
    CountedExtents: (coalesced_for_two(None), coalesced_for_two(NO_LESS)),
    SharedExtents: (shared("eager", None), shared("lazy", None, NO_LESS), shared("eager", NO_LESS)),
    UntilNext: (
        Case(lambda: UntilNext(LEFT, ("k",), 5, ("since", "until"), False), chronons=True),
        Case(lambda: UntilNext(LEFT, (), 3, ("since", "until")), chronons=True),
        Case(lambda: UntilNext(LEFT, ("k",), 7), chronons=True),
        Case(lambda: UntilNext(LEFT, ("k", "n"), None, lag_us=2), chronons=True),
        Case(lambda: UntilNext(LEFT, (), None, lag_us=None), chronons=True),
    ),
    WindowBounds: (
        Case(lambda: WindowBounds(Grid(Span("us", 4), 3, size=Span("us", 6)), "s", "e")),
        Case(lambda: WindowBounds(Grid(Span("day", 1), 9, size=Span("month", 1)), "s", "e")),
    ),
    PreaggregatedFilter: (Case(lambda: PreaggregatedFilter({1: "f", 2: "h"}), below=lambda: [Excepted(), grouped()]),),
    PatternMatch: (
        matched((PatternElement("A"), PatternElement("B", 1, None)), "past last row"),
        matched((PatternElement("A", 0, 2), PatternElement("B", 1, 3, reluctant=True)), "to next row"),
        matched((PatternElement("B"), PatternElement("A"), PatternElement("B")), "to first", within_us=None),
    ),
    Held: (held(0), held(11, (1, 2))),
    AsofJoin: (asof(None, 0, "inner"), asof(-4, -1, "left", ("k", "k2"))),
    StampJoin: (near(-3, 3, "inner", None), near(0, 4, "full", None, ("k", "k2")), near(-5, -1, "left", '"n" < "n2"')),
    OriginUnion: (pieces.CASES["union"],),
    OriginJoin: (pieces.CASES["join"], pieces.CASES["product"]),
    WithoutOrigins: (Case(lambda: WithoutOrigins(Distinct(LEFT))),),
    PieceProject: (pieces.CASES["project"],),
    ChainedPieces: tuple(pieces.COMPARED[name] for name in ("semi", "anti", "ranked", "bounds")),
    PieceIntervals: (pieces.COMPARED["granularity"], Case(lambda: pieces.in_window(TimeWindow(4, 3)))),
    CountedPartialAggregate: (
        Case(
            lambda: CountedPartialAggregate(PartialAggregate(("k",), CALLS), ("k",)),
            settled=lambda rows: merged(KEY).transition(0, Batch(rows.sort(START), NEVER)).rows,
        ),
    ),
    BoundedAggregate: (pieces.CASES["groups"], pieces.CASES["all"]),
    BoundedMultiplicities: (pieces.CASES["difference"], pieces.CASES["intersection"]),
    DistinctPieces: (pieces.CASES["distinct"],),
    PiecewiseLookup: tuple(
        Case(lambda kind=kind, keeps=keeps: PiecewiseLookup(looked_up(kind).make(), keeps=keeps))
        for kind, keeps in (("inner", True), ("left", False))
    ),
    Zip: (zipped(-3, 3, "inner"), zipped(0, 4, "full", ("k", "k2")), zipped(-5, -1, "left")),
}
ONLY_K = (Output("k", read_scalar('"k"', TEXT)),)


def every_operator() -> Iterator[type[Operator]]:
    """Yield the operators of the package."""
    for module in pkgutil.iter_modules(operators.__path__):
        for each in vars(importlib.import_module(f"{operators.__name__}.{module.name}")).values():
            if isinstance(each, type) and issubclass(each, Operator) and not isabstract(each):
                yield each


def test_every_operator_has_a_case() -> None:
    assert {each.__name__ for each in every_operator()} == {each.__name__ for each in CASES}


INSTANTANEOUS = (
    "Distinct 0",
    "Filter 0",
    "Project 0",
    "Lookup 0",
    "Join 0",
    "SemiJoin 0",
    "SemiJoin 1",
    "Changes 0",
    "Changes 1",
    "Multiplicities 0",
    "Multiplicities 1",
    "MergeAggregate 0",
    "MergeAggregate 1",
    "SessionWindow 0",
    "SessionWindow 1",
    "UntilNext 0",
    "Sequence 0",
    "Sequence 1",
    "Zip 1",
    "PatternMatch 0",
    "Ranked 0",
    "Ranked 1",
    "Ranked 2",
)
"""What answers rows that are valid at one instant if those of the left are: see :attr:`Node.is_instantaneous`."""
CASES_BY_NAME = {
    f"{operator.__name__} {place}": case for operator, cases in CASES.items() for place, case in enumerate(cases)
}


@pytest.mark.parametrize("case", CASES_BY_NAME.values(), ids=CASES_BY_NAME)
@settings(max_examples=40)
@given(data=st.data())
def test_answers_depend_on_neither_cuts_nor_order_nor_restarts(case: Case, data: st.DataObject) -> None:
    ports = range(case.make().input_count)
    inputs = [data.draw(physical(chronons=case.chronons, port=port), label=f"port {port}") for port in ports]
    found = run(case, inputs, data)
    expected = run(case, [at_once(batches) for batches in inputs], None)
    assert snapshots(case, found) == snapshots(case, expected)


@pytest.mark.parametrize("name", INSTANTANEOUS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_window_above_may_take_each_row_for_one_instant(name: str, data: st.DataObject) -> None:
    case = CASES_BY_NAME[name]
    inputs = [
        data.draw(physical(chronons=port == 0 or case.chronons, port=port)) for port in range(case.make().input_count)
    ]
    found = run(case, inputs, data)
    assert (found[END] - found[START] == 1).all()
