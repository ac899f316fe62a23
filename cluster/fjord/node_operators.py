"""From the nodes of a fragment to operators that pass on the origins of pieces, where these are needed.

Which nodes do is decided by :mod:`cluster.physical.rules.pieces`. All other nodes have the operators of their
operations (:mod:`cluster.fjord.instantiation`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from cluster.fjord.batch import empty_rows, types_of
from cluster.fjord.graph import Dataflow, RunningOperator
from cluster.fjord.instantiation import held_operator, subscribed_operator
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operator import Operator
from cluster.fjord.operators.count_window import CountWindow
from cluster.fjord.operators.distinct import DistinctPieces
from cluster.fjord.operators.lookup import Lookup, PiecewiseLookup
from cluster.fjord.operators.origins import (
    MADE_OF,
    MADE_OF_COLUMN,
    RIGHT_ORIGIN_COLUMN,
    OriginJoin,
    OriginUnion,
    WithoutOrigins,
)
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.operators.piece_windows import PieceIntervals
from cluster.fjord.operators.projection import PieceProject
from cluster.fjord.operators.row_boundaries import BoundedAggregate, BoundedMultiplicities, CountedPartialAggregate
from cluster.fjord.operators.session_window import SessionWindow
from cluster.fjord.operators.until_next import UntilNext
from cluster.fjord.queues import Queue
from cluster.operators.columns import Ordering
from cluster.operators.mark_columns import ORIGIN
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Operation


def operator_of_node(node: OperatorNode, fragment: Fragment, tables: Tables | None = None) -> Operator:
    """Return the operator of a node of a fragment.

    Parameters
    ----------
    node
        The node.
    fragment
        The fragment, whose subscribers are parameters of some operators.
    tables
        The tables of lookups; None for operators that are only tried, not run.
    """
    operation = node.operation
    if node.origins == "none":
        return subscribed_operator(operation, fragment, tables)
    if isinstance(operation, kinds.Lookup):
        found = Lookup(operation.table, frozenset(operation.streams), tables)
        return PiecewiseLookup(found, keeps=node.origins == "kept")
    if node.origins == "dropped":
        return WithoutOrigins(subscribed_operator(operation, fragment, tables))

    return _with_origins(operation, fragment, tables)


def _with_origins(operation: Operation, fragment: Fragment, tables: Tables | None) -> Operator:  # noqa: C901, PLR0911, PLR0912 - a case per kind
    def plain(other: Operation) -> Operator:
        return subscribed_operator(other, fragment, tables)

    match operation:
        case kinds.Filter() | kinds.PerQueryFilter():
            return plain(operation)
        case kinds.Project():
            return PieceProject(operation.outputs)
        case kinds.CountWindow():
            rows, shape = empty_rows(operation.columns), (operation.rows, operation.slide_rows, operation.keys)
            return CountWindow(rows, *shape, lag_us=operation.lag_us, origins=True)
        case kinds.SessionWindow():
            rows = empty_rows(operation.columns)
            return SessionWindow(rows, operation.keys, operation.session, lag_us=operation.lag_us, origins=True)
        case kinds.UntilNext():
            rows, held = empty_rows(operation.columns), (operation.bounds, operation.lasts)
            return UntilNext(
                rows, operation.keys, operation.longest_us, *held, lag_us=operation.lag_us, origins=True
            )  # fmt: skip
        case kinds.Held():
            return held_operator(operation, fragment, tables, origins=True)
        case kinds.Extent() | kinds.KeptExtent():
            return ChainedPieces(plain(operation), made_of=False)
        case kinds.WindowBounds():
            return ChainedPieces(plain(operation), made_of=True)
        case kinds.Ranked():
            # Of equal rows that are numbered, the one that began first comes first, wherever it was cut.
            ties = (Ordering(MADE_OF),) if operation.function == "row_number" else ()
            columns, order = (*operation.columns, MADE_OF_COLUMN), (*operation.order, *ties)
            return ChainedPieces(plain(replace(operation, columns=columns, order=order)), made_of=True)
        case kinds.SemiJoin():
            return ChainedPieces(plain(replace(operation, left=(*operation.left, MADE_OF_COLUMN))), made_of=True)
        case kinds.TimeWindow() | kinds.GridWindow():
            return PieceIntervals(plain(operation), windowed=True)
        case kinds.Granularity():
            return PieceIntervals(plain(operation), windowed=False)
        case kinds.PartialAggregate():
            return CountedPartialAggregate(plain(operation), operation.keys)
        case kinds.MergeAggregate():
            return BoundedAggregate(plain(operation), types_of(operation.keys))
        case kinds.Difference() | kinds.Intersection():
            return BoundedMultiplicities(plain(operation), types_of(operation.columns))
        case kinds.Union():
            return OriginUnion(plain(replace(operation, columns=(*operation.columns, ORIGIN))))
        case kinds.Join():
            sides = {"left": (*operation.left, ORIGIN), "right": (*operation.right, RIGHT_ORIGIN_COLUMN)}
            return OriginJoin(plain(replace(operation, **sides)))
        case kinds.Distinct():
            return DistinctPieces(empty_rows(operation.columns))
        case _:
            raise TypeError(f"{operation.kind_name()} passes on no origins")


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
