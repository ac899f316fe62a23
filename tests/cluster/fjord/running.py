"""Runs a plan through edges and operators, as the Spark hosts do, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.compilation import add_downstream, upstream_operators
from cluster.fjord.edges import edges_of, empty_rows
from cluster.fjord.graph import Fjord
from cluster.fjord.queues import PushQueue
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.language.algebra import Node
from cluster.plan.epoch import PlannedQuery
from cluster.plan.rewrite import rewrite

Streams = Mapping[str, Sequence[tuple[int, tuple[Any, ...]]]]


def run_plan(
    node: Node,
    streams: Streams,
    *,
    cuts: Sequence[int] = (),
    shuffle: Callable[[list[Any]], list[Any]] = list,
    restart: Callable[[], bool] = lambda: False,
) -> list[tuple[Any, ...]]:
    """Return the answer's rows: start, end, payload.

    Parameters
    ----------
    node
        The plan.
    streams
        By stream: stamped tuples.
    cuts
        Where one micro-batch ends and the next begins; each watermark is a cut.
    shuffle
        Disturbs the order within a micro-batch.
    restart
        Asked between micro-batches: True saves all operators and goes on with new ones.
    """
    query = PlannedQuery("q", 1, node)
    low, found, states, promised = 0, [], {}, ALWAYS
    fjord, arrivals, outlet = _build(query, states)
    for high in [*sorted({cut for cut in cuts if cut > 0}), NEVER]:
        for edge in edges_of(query):
            rows = [(at, row) for at, row in streams[edge.stream] if low <= at < high]
            arrivals[edge.name].put(_upstream(edge, shuffle(rows), high))
        fjord.run()
        assert not fjord.failures, fjord.failures
        while (batch := outlet.get()) is not None:
            starts = batch.rows[START].to_list()
            assert starts == sorted(starts), "in start order"
            assert all(start >= promised for start in starts), "never before an earlier watermark"
            assert batch.watermark_us >= promised
            promised = batch.watermark_us
            found.extend(batch.rows.rows())
        low = high
        if restart():
            states = {placed.name: pack_state(placed.operator.save()) for placed in fjord.operators}
            fjord, arrivals, outlet = _build(query, states)
    assert all(row[0] < row[1] for row in found), "no empty interval"
    return found


def run_rewritten(node: Node, streams: Streams, **how: Any) -> list[tuple[Any, ...]]:
    """As :func:`run_plan`, after rewriting."""
    return run_plan(rewrite(node).node, streams, **how)


def _build(query: PlannedQuery, states: Mapping[str, bytes]) -> tuple[Fjord, dict[str, PushQueue], PushQueue]:
    fjord = Fjord()
    arrivals = {edge.name: PushQueue() for edge in edges_of(query)}
    outlet = fjord.outlet(add_downstream(fjord, query, arrivals))
    for placed in fjord.operators:
        state = unpack_state(states[placed.name]) if placed.name in states else {}
        if state:
            placed.operator.restore(state)
    return fjord, arrivals, outlet


def _upstream(edge: Any, rows: list[tuple[int, tuple[Any, ...]]], watermark: int) -> Batch:
    columns = edge.source.columns
    frame = empty_rows(columns)
    if rows:
        frame = pl.DataFrame(
            [(at, at + 1, *row) for at, row in rows], schema=frame.schema, orient="row"
        ).sort(START, maintain_order=True)  # fmt: skip
    batch = Batch(frame.select(START, END, *(column.name for column in columns)), watermark)
    for operator in upstream_operators(edge):
        batch = operator.transition(0, batch)
    return batch
