"""``GRANULARITY(1 MINUTE)``: what is valid at whole multiples of a duration."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from cluster.language.item_clause import ItemClause
from cluster.language.range_clauses import granule
from cluster.operators import Aggregate, Distinct, Filter, Granularity, Node, Project, Ranked, SessionWindow

if TYPE_CHECKING:
    from cluster.language.context import Context


class GranularityClause(exp.Expression):
    """``GRANULARITY(g)``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


def _to_node(node: Node, clause: GranularityClause, context: Context) -> Node:
    if _above_closed_sessions(node):
        context.warn(
            "GRANULARITY leaves almost nothing of sessions: it keeps what is valid at whole multiples of a "
            "duration, and tuples of a session are valid only when it closes; leave it out, or count the sessions "
            "that close in an hour by FROM (SELECT ...) AS s WINDOW(RANGE 1 HOUR SLIDE 1 HOUR)"
        )
    return Granularity(node, *granule(clause.this, context))


def _above_closed_sessions(node: Node) -> bool:
    """Return whether rows are valid only at the instants at which sessions close."""
    while isinstance(node, Filter | Project | Aggregate | Ranked | Distinct):
        node = node.input
    return isinstance(node, SessionWindow) and not node.session.early


GRANULARITY = ItemClause(
    "GRANULARITY", GranularityClause, "GRANULARITY(1 MINUTE)", _to_node, bounds=("COARSEST", "FINEST")
)
