"""The quality of rows of which tuples may be dropped (``KEEP``): a column of every row of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.syntax import Slot, slot_for
from cluster.operators import KeptExtent, Node
from cluster.operators.walks import nodes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.language.context import Context
    from cluster.language.scope import Scope


def unparenthesised(query: exp.Expr) -> exp.Expr:
    """Return the SELECT whose rows are those of a query."""
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    return query


def quality_shown(
    select: exp.Select, items: Sequence[exp.Expr], scope: Scope, context: Context, *, grouped: bool
) -> exp.Expr | None:
    """Return the quality of the rows of a query, the last column of what is shown; None if its author shows it.

    It is that of the worst of the rows that are joined, and in a group of the worst of all. Parts of a query have no
    such column, and neither has DISTINCT, which would make several rows of one. What a subquery is compared with is not
    shown.
    """
    found = [column for item in scope.items for column in item.columns if item.quality == column.internal]
    if not found:
        return None
    names = {column.visible.casefold() for column in found} | {column.internal for column in found}
    parts = (part for item in items for part in item.walk(prune=lambda part: isinstance(part, exp.Query)))
    if any(isinstance(part, exp.Column | Slot) and part.name.casefold() in names for part in parts):
        context.qualities.update(names)
        return None
    if select is not context.outermost or select.args.get("distinct"):
        return None
    context.qualities.update(names)
    first, *others = [slot_for(column.internal, select) for column in found]
    worst = exp.Least(this=first, expressions=others) if others else first
    return exp.Min(this=worst) if grouped else worst


def warn_of_hidden_quality(node: Node, context: Context) -> None:
    """Warn of a query that may drop tuples, and whose rows do not show it."""
    if not context.qualities and any(isinstance(each, KeptExtent) for each in nodes_of(node)):
        context.warn("the rows of this query do not show what KEEP has dropped: select quality where COALESCE stands")
