"""Runs a plan through its real pipelines and operators, as the Spark hosts do, without Spark.

Input comes as it does from proxies: in micro-batches, each read in one or more parts, with disorder as far as each
stream's watermark allows; all operators may be saved between micro-batches and built anew.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from cluster.fjord.batch import ALWAYS, NEVER, START, Batch, empty_rows
from cluster.fjord.dataflow import Dataflow, PushQueue
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.running_kinds import add_behind, operator_of, subscribed_operator
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators import Node, Source
from cluster.operators.columns import COVERED_BY, MARKS
from cluster.physical.lowering import lower
from cluster.physical.nodes import Fragment, Host, OperatorNode, Subscriber
from cluster.physical.operations import Scan
from cluster.physical.rules.folded_queries import nodes_of
from cluster.physical.rules.pieces import MOST_LAG_US
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.pane_query import pane_query_of
from cluster.scalars.real_values import settled_rows
from tests.cluster.oracle.definition import Row, Streams
from tests.cluster.published_tuples import columns_beside, stored_rows

Stamped = tuple[int, Row]


@dataclass(frozen=True)
class Arrival:
    """What one micro-batch brings of one stream: parts in order of arrival, and the low watermark after it."""

    parts: tuple[tuple[Stamped, ...], ...]
    watermark: int


MicroBatch = Mapping[str, Arrival]


class BrokenPromiseError(AssertionError):
    """Rows out of order, before an announced watermark, or never valid."""


def all_at_once(streams: Streams) -> list[MicroBatch]:
    """One micro-batch, with everything."""
    return [{name: Arrival((tuple(rows),), NEVER) for name, rows in streams.items()}]


def one_by_one(streams: Streams) -> list[MicroBatch]:
    """A micro-batch per instant, each stream's watermark just behind it."""
    stamps = sorted({stamp for rows in streams.values() for stamp, _ in rows})
    batches: list[MicroBatch] = [
        {name: Arrival((tuple(row for row in rows if row[0] == stamp),), stamp + 1) for name, rows in streams.items()}
        for stamp in stamps
    ]
    return [*batches, {name: Arrival(((),), NEVER) for name in streams}]


def tuple_by_tuple(streams: Streams, dice: random.Random) -> list[MicroBatch]:
    """One tuple per micro-batch, with watermarks as high as they may be, or lagging now and then."""
    to_come = {name: list(rows) for name, rows in streams.items()}
    beyond = max((stamp for rows in streams.values() for stamp, _ in rows), default=0) + 9
    in_step, lagging = dice.random() < 0.7, 0.4 if dice.random() < 0.3 else 0.0
    watermarks = dict.fromkeys(streams, ALWAYS)
    batches: list[MicroBatch] = []
    while waiting := [name for name, rows in to_come.items() if rows]:
        name = min(waiting, key=lambda each: to_come[each][0][0]) if in_step else dice.choice(waiting)
        row = to_come[name].pop(0)
        for each, rows in to_come.items():
            if dice.random() >= lagging:
                watermarks[each] = max(watermarks[each], min((stamp for stamp, _ in rows), default=beyond))
        batches.append({each: Arrival(((row,) if each == name else (),), watermarks[each]) for each in streams})
    return [*batches, {name: Arrival(((),), NEVER) for name in streams}]


def deliveries(streams: Streams, dice: random.Random, most: int = 4) -> list[MicroBatch]:
    """Cut streams, given in order of arrival, into micro-batches: at most `most`, or one per tuple.

    Watermarks are honest. Some streams lag, some bring rows far beyond their watermark, some bring only progress. Rows
    that devices published come with their neighbours.
    """
    streams = {name: stored_rows(rows) for name, rows in streams.items()}
    if dice.random() < 0.3:
        return tuple_by_tuple(streams, dice)
    count = dice.randint(1, most)
    batches: list[dict[str, Arrival]] = [{} for _ in range(count)]
    for name, rows in streams.items():
        cuts = [0, *sorted(dice.randint(0, len(rows)) for _ in range(count - 1)), len(rows)]
        watermark = ALWAYS
        for number in range(count):
            arrived, to_come = rows[cuts[number] : cuts[number + 1]], rows[cuts[number + 1] :]
            # Nothing that comes later may be stamped before the watermark.
            highest = min((stamp for stamp, _ in to_come), default=max((s for s, _ in rows), default=0) + 9)
            lowest = max(watermark, -1)
            if number == count - 1:
                watermark = NEVER
            elif dice.random() < 0.8:
                watermark = max(
                    watermark, highest if dice.random() < 0.6 else dice.randint(min(lowest, highest), highest)
                )
            middle = dice.randint(0, len(arrived)) if dice.random() < 0.3 else len(arrived)
            parts = (tuple(arrived[:middle]), tuple(arrived[middle:])) if middle < len(arrived) else (tuple(arrived),)
            batches[number][name] = Arrival(parts, watermark)
    return list(batches)


def stream_read(source: Source | Scan) -> str:
    """Return under what name a source's tuples come: events have a stream of their own for each detector."""
    detector = source.detector
    if detector is None:
        return source.stream
    return f"{source.stream} above {detector.above:g} below {detector.below:g}"


def run_plan(
    node: Node,
    batches: Sequence[MicroBatch],
    *,
    restart_after: frozenset[int] = frozenset(),
    tables: Tables | None = None,
    lag_us: int = MOST_LAG_US,
) -> list[Row]:
    """Return the rows of the answer: start, end, values.

    Parameters
    ----------
    node
        The plan.
    batches
        The micro-batches; the last one's watermarks are NEVER.
    restart_after
        Numbers of micro-batches after which all operators are saved and built anew.
    tables
        What tuples are looked up in; None if nothing is.
    lag_us
        How far windows by count may stay behind where other operators wait for them.

    Raises
    ------
    BrokenPromiseError
        If rows come out of order, before a watermark announced earlier, or with an empty interval.
    UnsupportedPlanError
        If the plan cannot be run.
    """
    fragment = fragment_alone(node, lag_us=lag_us)
    build = partial(_build, fragment, tables)
    dataflow, arrivals, outlet = build({})
    found: list[Row] = []
    promised = ALWAYS
    for number, batch in enumerate(batches):
        for exchange in fragment.exchanges:
            arrivals[exchange.id].put(crossing_of(fragment, exchange, batch, tables))
        dataflow.run()
        for failure in dataflow.failures.values():
            raise failure
        while (emitted := outlet.get()) is not None:
            rows = _finished(fragment, emitted.rows).rows()
            _check(rows, emitted.watermark_us, promised)
            promised = emitted.watermark_us
            found.extend(rows)
        if number in restart_after:
            states = {placed.name: pack_state(placed.operator.save()) for placed in dataflow.operators}
            dataflow, arrivals, outlet = build(states)
    if promised != NEVER:
        raise BrokenPromiseError(f"the inputs have ended, but the answer has come to {promised} only")
    return found


def _check(rows: list[Row], watermark: int, promised: int) -> None:
    starts = [row[0] for row in rows]
    if starts != sorted(starts):
        raise BrokenPromiseError(f"rows are not in the order of their starts: {rows}")
    if starts and starts[0] < promised:
        raise BrokenPromiseError(f"row {rows[0]} starts before the watermark {promised} announced earlier")
    if watermark < promised:
        raise BrokenPromiseError(f"the watermark went back from {promised} to {watermark}")
    for row in rows:
        if row[0] >= row[1]:
            raise BrokenPromiseError(f"row {row} is never valid")


def fragment_alone(node: Node, *, lag_us: int = MOST_LAG_US) -> Fragment:
    """Return what runs a plan as if no other query could ever join it: nothing is marked, but where panes are."""
    query, paned = PlannedQuery("query", 1, node), pane_query_of(node)
    # Motes count events themselves; here they come as tuples.
    if paned is not None and paned.source.detector is None:
        (fragment,) = lower(Plan(1, (query,))).fragments
        return fragment
    nodes = nodes_of(query.identity, node, Host.STATEFUL, lag_us=lag_us)
    return Fragment(query.identity, Host.STATEFUL, nodes, (Subscriber(query.name, 1, 0, ()),), shares_rows=False)


def _build(
    fragment: Fragment, tables: Tables | None, states: Mapping[str, bytes]
) -> tuple[Dataflow, dict[str, PushQueue], PushQueue]:
    dataflow = Dataflow()
    arrivals = {exchange.id: PushQueue() for exchange in fragment.exchanges}
    outlet = dataflow.outlet(add_behind(dataflow, fragment, arrivals, tables))
    for placed in dataflow.operators:
        state = unpack_state(states[placed.name]) if placed.name in states else {}
        if state:
            placed.operator.restore(state)
    return dataflow, arrivals, outlet


def _finished(fragment: Fragment, rows: pl.DataFrame) -> pl.DataFrame:
    (subscriber,) = fragment.subscribers
    for step in subscriber.finish:
        rows = operator_of(step).transition(0, Batch(rows, ALWAYS)).rows
    return rows.drop([mark.name for mark in MARKS], strict=False)


def crossing_of(fragment: Fragment, exchange: OperatorNode, batch: MicroBatch, tables: Tables | None) -> Batch:
    """Run a pipeline over each part of what has arrived, and put the parts together as the bucket does."""
    scan, *nodes = fragment.pipeline(exchange)
    assert isinstance(scan.operation, Scan)
    arrival = batch[stream_read(scan.operation)]
    operators = [subscribed_operator(each.operation, fragment, tables) for each in nodes]
    pieces = []
    watermark = arrival.watermark
    for part in arrival.parts:
        passed = Batch(_frame(scan.operation, part), arrival.watermark)
        for operator in operators:
            passed = operator.transition(0, passed)
        pieces.append(passed.rows)
        watermark = passed.watermark_us
    rows = pieces[0] if len(pieces) == 1 else pl.concat(pieces)
    return Batch(rows.sort(START, maintain_order=True), watermark)


def _frame(scan: Scan, rows: Sequence[Stamped]) -> pl.DataFrame:
    whole = empty_rows(scan.columns)
    empty = whole.drop(COVERED_BY.name, strict=False)
    stamped = [(stamp, stamp + 1, *row) for stamp, row in rows]
    frame = pl.DataFrame(stamped, schema=empty.schema, orient="row") if rows else empty
    frame = frame.with_columns(columns_beside(rows))
    if whole.width > empty.width:
        frame = frame.with_columns(pl.lit(None, pl.String).alias(COVERED_BY.name))
    # As a scan reads them.
    return settled_rows(frame.sort(START, maintain_order=True))
