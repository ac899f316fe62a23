"""LEFT, RIGHT and FULL JOIN as operators: pairs, and with NULLs what has no partner at an instant.

    a LEFT JOIN b ON c   =   (a JOIN b ON c) UNION ALL (a without a partner in b, with NULLs for the columns of b)

A tuple is without a partner at the instants at which no tuple of the other side satisfies the condition: an anti-join,
so tuples keep their multiplicity, and a condition that is NULL is no match. The tuples of the other side are looked up
in a relation, unless its own rows are kept: then they flow, as they are at each instant (:class:`Held`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cluster.language.syntax import holds_query
from cluster.operators import AntiJoin, Held, Join, Lookup, Node, Union
from cluster.operators.columns import Output
from cluster.operators.projections import project, reads_relations_only
from cluster.operators.scalar_expressions import null_scalar, passed_on

if TYPE_CHECKING:
    from sqlglot import exp

    from cluster.language.context import Context
    from cluster.operators.columns import Scalar, Schema

Side = Literal["LEFT", "RIGHT", "FULL"]
KEPT_RELATION = (
    "{side} JOIN of relations alone is not part of FjordSQL: without a stream there is no time in which a row "
    "has no partner"
)
LOOKED_UP = "write LEFT JOIN with the relations exchanged, or join each with the stream"


def side_of(join: exp.Expr) -> Side | None:
    """Return the side that an outer join keeps; None of any other join."""
    side: Side | None = join.args.get("side") or None
    return side


def keeps_left(side: Side | None) -> bool:
    """Return whether tuples of the left stay that have no partner."""
    return side in ("LEFT", "FULL")


def keeps_right(side: Side | None) -> bool:
    """Return whether tuples of the right stay that have no partner."""
    return side in ("RIGHT", "FULL")


def check_outer(join: exp.Expr, context: Context, *, left_static: bool, right_static: bool) -> None:
    """Refuse an outer join that has no meaning here, or none that can be planned.

    Parameters
    ----------
    join
        Its syntax.
    context
        For errors.
    left_static, right_static
        Whether a side consists of relations only.

    Raises
    ------
    FjordSqlError
        If it would keep rows of relations only, or its condition is missing or has a subquery.
    """
    side = side_of(join)
    # Rows of a relation beside another relation are part of what the tuples of a stream are looked up in.
    if left_static and right_static and side != "LEFT":
        raise context.error(join.this, KEPT_RELATION.format(side=side), LOOKED_UP)
    on = join.args.get("on")
    if not on and not join.args.get("using"):
        raise context.error(join.this, f"{side} JOIN needs a condition", f"write {side} JOIN ... ON a.x = b.x")
    if on and holds_query(on):
        reason = f"a subquery cannot stand in the condition of {side} JOIN"
        raise context.error(on, reason, "put it into FROM, or its condition into a subquery there")


def outer_join(left: Node, right: Node, predicate: Scalar, side: Side) -> Node:
    """Return the outer join of two plans, columns of the left first unless one side is a relation.

    Parameters
    ----------
    left, right
        The sides; no column of one has the name of one of the other.
    predicate
        The condition.
    side
        Which tuples stay that have no partner.
    """
    static = reads_relations_only(left), reads_relations_only(right)
    if static[1] and not (keeps_right(side) and not static[0]):
        return Lookup(left, right, predicate, "left")
    if static[0] and not keeps_left(side):
        return Lookup(right, left, predicate, "left")
    before, behind = left.schema, right.schema
    lefts, rights = (Held(right, left) if static[0] else left), (Held(left, right) if static[1] else right)
    found: Node = Join(lefts, rights, predicate)
    if keeps_left(side):
        alone = AntiJoin(lefts, rights, predicate)
        found = Union(found, project(alone, (*passed_on(before), *_nulls(behind))))
    if keeps_right(side):
        alone = AntiJoin(rights, lefts, predicate)
        found = Union(found, project(alone, (*_nulls(before), *passed_on(behind))))
    return found


def _nulls(columns: Schema) -> list[Output]:
    return [Output(column.name, null_scalar(column), column.unit) for column in columns]
