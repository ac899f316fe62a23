"""Snapshot evaluation: the rows of a plan of relations at one instant, from the top down, when they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.lookup_tables import LookupTable
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.lookup import Lookup as LookupOperator
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.running_kinds import operator_of
from cluster.fjord.scalars import compile_scalar
from cluster.operators import Aggregate, Filter, Lookup, Node, Project, Relation
from cluster.physical.rules.operations import operation_of

Scans = Mapping[Relation, pl.LazyFrame]
"""Access to each relation of a plan."""


ANY_INSTANT_US = 0
"""Relations do not change while a plan is evaluated: all its rows are valid from the same instant, for ever."""


def evaluate_snapshot(node: Node, scans: Scans) -> pl.DataFrame:
    """Return the rows of a plan of relations, without intervals.

    Parameters
    ----------
    node
        The plan. Conditions and columns directly above a relation become part of its scan.
    scans
        Access to each relation it reads.
    """
    return _evaluated(node, scans, {})


def _evaluated(node: Node, scans: Scans, done: dict[int, pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of a subplan; `done` holds those of subplans that have been evaluated."""
    if id(node) not in done:
        done[id(node)] = _made(node, scans, done)
    return done[id(node)]


def _made(node: Node, scans: Scans, done: dict[int, pl.DataFrame]) -> pl.DataFrame:
    scanned = _scanned(node, scans)
    if scanned is not None:
        return scanned.collect()
    inputs = [_lasting(_evaluated(each, scans, done)) for each in node.inputs]
    if isinstance(node, Lookup):
        table = LookupTable(_evaluated(node.table, scans, done))
        return _run(LookupOperator(node, frozenset(), _Unchanging(table)), inputs).drop(START, END)
    if isinstance(node, Aggregate):
        partial = _run(PartialAggregate(node.keys, node.calls), inputs)
        merge = MergeAggregate(node.schema[: len(node.keys)], node.calls)
        return _run(merge, [Batch(partial, NEVER)]).drop(START, END)
    return _run(operator_of(operation_of(node)), inputs).drop(START, END)


def is_scan(node: Node) -> bool:
    """Return whether a plan makes each of its rows from one row of one relation."""
    return isinstance(node.below_filters, Relation)


def _scanned(node: Node, scans: Scans) -> pl.LazyFrame | None:
    match node:
        case Relation():
            return scans[node].select(column.name for column in node.columns)
        case Filter():
            below = _scanned(node.input, scans)
            return None if below is None else below.filter(compile_scalar(node.predicate))
        case Project():
            below = _scanned(node.input, scans)
            outputs = [compile_scalar(output.scalar).alias(output.name) for output in node.outputs]
            # A selection of constants alone has one row in Polars, whatever the number of rows.
            return None if below is None else below.with_columns(outputs).select(each.name for each in node.outputs)
        case _:
            return None


def _lasting(rows: pl.DataFrame) -> Batch:
    interval = [pl.lit(ANY_INSTANT_US, pl.Int64).alias(START), pl.lit(NEVER, pl.Int64).alias(END)]
    return Batch(rows.select(*interval, *rows.columns), NEVER)


def _run(operator: Operator, inputs: Sequence[Batch]) -> pl.DataFrame:
    return pl.concat([operator.transition(port, batch).rows for port, batch in enumerate(inputs)])


class _Unchanging:
    """A table that never changes."""

    def __init__(self, table: LookupTable) -> None:
        self._table = table

    def pieces(
        self, table: Node, key: str | None, streams: frozenset[str], first_us: int, last_us: int
    ) -> Sequence[tuple[int, LookupTable]]:
        del table, key, streams, last_us
        return [(first_us, self._table)]
