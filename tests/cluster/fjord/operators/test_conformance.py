"""Every operator under the contract of queues and nothing more: answers depend on neither cuts, order nor restarts.

batch 1    rows 10 20      watermark 5          the same as one batch with 6 8 10 20,
batch 2    rows 6 8        watermark 30         at every instant
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from inspect import isabstract

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord import operators
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.count_window import SharedCountWindow
from cluster.fjord.operators.device_aggregates import AggregateRecipient, DeviceAggregates
from cluster.fjord.operators.filtering import GroupedFilter, PerQueryFilter, PreaggregatedFilter
from cluster.fjord.operators.lookup import PiecewiseLookup
from cluster.fjord.operators.multiplexing import Multiplex
from cluster.fjord.operators.origins import OriginJoin, OriginUnion, WithoutOrigins
from cluster.fjord.operators.pane_aggregation import PaneAggregate, Panes, WindowSubscriber
from cluster.fjord.operators.partial_aggregation import (
    BoundedAggregate,
    BoundedMultiplicities,
    CountedPartialAggregate,
    PartialAggregate,
)
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.operators.projection import PieceProject, Project
from cluster.fjord.operators.reordering import Reorder
from cluster.fjord.operators.sampling import Sample
from cluster.fjord.operators.set_operations import Distinct, DistinctPieces
from cluster.fjord.operators.shared_extents import CountedExtents, SharedExtents
from cluster.fjord.operators.splitting import Split
from cluster.fjord.operators.time_window import PieceIntervals, TimeWindow
from cluster.operators.columns import QUERY_GROUP, SUPERSEDED_UNTIL, VISIBLE_FROM, Output
from cluster.operators.extent import Coalescing, Keeping, Link
from cluster.operators.scalar_expressions import passed_on
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
from tests.cluster.fjord.operators import test_pieces as pieces
from tests.cluster.fjord.operators.conformance import (
    CALLS,
    COLUMNS,
    KEY,
    LEFT,
    NO_LESS,
    Case,
    at_once,
    condition,
    merged,
    physical,
    run,
    snapshots,
)
from tests.cluster.specimens import SPECIMENS
from tests.cluster.specimens.drawing import INTEGER, TEXT
from tests.cluster.specimens.relation import looked_up

GROUP_KEYS = (*KEY, QUERY_GROUP, VISIBLE_FROM)


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


PHYSICAL: dict[type[Operator], tuple[Case, ...]] = {
    GroupedFilter: (Case(grouped), Case(lambda: grouped(newest=True))),
    PerQueryFilter: (
        Case(lambda: PerQueryFilter({1: condition('"n" = 0')}), below=lambda: [grouped()]),
        Case(lambda: PerQueryFilter({1: condition('"n" = 0'), 2: condition("\"k\" = 'a'")}), below=lambda: [grouped()]),
    ),
    Multiplex: (Case(Multiplex),),
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
    Reorder: (Case(lambda: Reorder(COLUMNS)),),
    Sample: (Case(lambda: Sample(3)), Case(lambda: Sample(None))),
    Split: (Case(lambda: Split(LEFT, 1)), Case(lambda: Split(LEFT, 4))),
    DeviceAggregates: (
        Case(
            device_aggregates,
            chronons=True,
            below=lambda: [OneSampleAggregates()],
            settled=lambda rows: merged(GROUP_KEYS).transition(0, Batch(rows.sort(START), NEVER)).rows,
        ),
    ),
    SharedCountWindow: (
        counted_for_two(2, 3, partitioned=True),
        counted_for_two(3, 9, partitioned=False),
        counted_for_two(1, 1_000, partitioned=True),
    ),
    CountedExtents: (coalesced_for_two(None), coalesced_for_two(NO_LESS)),
    SharedExtents: (shared("eager", None), shared("lazy", None, NO_LESS), shared("eager", NO_LESS)),
    PreaggregatedFilter: (Case(lambda: PreaggregatedFilter({1: "f", 2: "h"}), below=lambda: [Excepted(), grouped()]),),
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
        Case(lambda kind=kind, keeps=keeps: PiecewiseLookup(looked_up(kind), keeps=keeps))
        for kind, keeps in (("inner", True), ("left", False))
    ),
}
"""Of operators that no node of the algebra stands for, but rules of the physical plan make."""
CASES = {**PHYSICAL, **{kind: cases for each in SPECIMENS.values() for kind, cases in each.conformance.items()}}
assert len(CASES) == len(PHYSICAL) + sum(len(each.conformance) for each in SPECIMENS.values()), "one list for each"
CASES_BY_NAME = {
    f"{operator.__name__} {place}": case for operator, cases in CASES.items() for place, case in enumerate(cases)
}


def every_operator() -> Iterator[type[Operator]]:
    """Yield the operators of the package."""
    for module in pkgutil.iter_modules(operators.__path__):
        for each in vars(importlib.import_module(f"{operators.__name__}.{module.name}")).values():
            if isinstance(each, type) and issubclass(each, Operator) and not isabstract(each):
                yield each


def test_every_operator_has_a_case() -> None:
    assert {each.__name__ for each in every_operator()} == {each.__name__ for each in CASES}


@pytest.mark.parametrize("case", CASES_BY_NAME.values(), ids=CASES_BY_NAME)
@settings(max_examples=40)
@given(data=st.data())
def test_answers_depend_on_neither_cuts_nor_order_nor_restarts(case: Case, data: st.DataObject) -> None:
    ports = range(case.make().input_count)
    inputs = [data.draw(physical(chronons=case.chronons, port=port), label=f"port {port}") for port in ports]
    found = run(case, inputs, data)
    expected = run(case, [at_once(batches) for batches in inputs], None)
    assert snapshots(case, found) == snapshots(case, expected)


INSTANTANEOUS = [name for name, case in CASES_BY_NAME.items() if case.instantaneous]


def test_operators_that_answer_rows_of_one_instant_are_marked() -> None:
    assert len(INSTANTANEOUS) == 23


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
