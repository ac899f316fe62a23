"""From nodes of the physical plan to operators: each kind of operation makes its own. It makes no decisions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import polars as pl

from cluster.fjord.batch import empty_rows
from cluster.fjord.graph import Dataflow, RunningOperator
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operator import Operator
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.queues import Queue
from cluster.fjord.running_kind import RuntimeContext
from cluster.fjord.running_kinds import running_kind
from cluster.operators.columns import AggregateCall, Schema
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Operation


def operator_of(operation: Operation, tables: Tables | None = None) -> Operator:
    """Return the operator of a node that does not depend on subscribers.

    Parameters
    ----------
    operation
        The operation of the node.
    tables
        The tables of lookups; None for operators that are only tried.

    Raises
    ------
    TypeError
        If it depends on them.
    """
    return running_kind(operation).instantiate(operation, RuntimeContext(tables=tables))


def subscribed_operator(operation: Operation, fragment: Fragment, tables: Tables | None = None) -> Operator:
    """Return the operator of a node of a fragment.

    Parameters
    ----------
    operation
        The operation of the node.
    fragment
        The fragment, whose subscribers are parameters of some operators.
    tables
        As for :func:`operator_of`.
    """
    return running_kind(operation).instantiate(operation, RuntimeContext(fragment, tables))


def operator_of_node(node: OperatorNode, fragment: Fragment, tables: Tables | None = None) -> Operator:
    """Return the operator of a node of a fragment, which passes on the origins of pieces where these are needed.

    Which nodes do is decided by :mod:`cluster.physical.rules.pieces`.

    Parameters
    ----------
    node
        The node.
    fragment, tables
        As for :func:`subscribed_operator`.
    """
    kind, context = running_kind(node.operation), RuntimeContext(fragment, tables)
    match node.origins:
        case "none":
            return kind.instantiate(node.operation, context)
        case "kept":
            return kind.with_origins(node.operation, context)
        case "dropped":
            return kind.dropping_origins(node.operation, context)


def add_behind(
    dataflow: Dataflow, fragment: Fragment, arrivals: Mapping[str, Queue], tables: Tables | None = None
) -> RunningOperator:
    """Add to a dataflow the operators behind the exchanges of a fragment; return the operator with its answers.

    Parameters
    ----------
    dataflow
        The dataflow.
    fragment
        The fragment.
    arrivals
        By exchange: the queue for the rows that cross it.
    tables
        The tables of lookups.
    """
    placed: dict[str, RunningOperator] = {}
    for node in fragment.behind:
        inputs = [arrivals[each] if each in arrivals else placed[each] for each in node.inputs]
        placed[node.id] = dataflow.add(
            node.id, operator_of_node(node, fragment, tables), inputs, owner=fragment.identity
        )
    return placed[fragment.sink.inputs[0]]


def empty_crossing(fragment: Fragment, exchange: OperatorNode) -> pl.DataFrame:
    """Return an empty table with the columns that cross an exchange of a fragment."""
    assert isinstance(exchange.operation, kinds.Exchange)  # noqa: S101 - what an exchange is
    below = fragment.by_id[exchange.inputs[0]].operation
    if isinstance(below, kinds.PartialAggregate):
        return _no_partial_rows(exchange.operation.columns, below.keys, below.calls)
    return empty_rows(exchange.operation.columns)


@lru_cache(maxsize=64)
def _no_partial_rows(columns: Schema, keys: tuple[str, ...], calls: tuple[AggregateCall, ...]) -> pl.DataFrame:
    """Made once for all buckets of a process."""
    return PartialAggregate(keys, calls).empty(empty_rows(columns))
