"""WINDOW_START() and WINDOW_END() of sessions: when the first tuple came, and when the session closes.

    gap 5      |--t---t-----t----)     start: the stamp of the first tuple; end: a gap after the last one so far
               first              closes

They are aggregates over all tuples of a session, so a condition must not remove some of them before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from sqlglot import exp

from cluster.expressions.walks import columns_read
from cluster.language.stamps import SELECTED
from cluster.language.syntax import slot_for
from cluster.operators import AntiJoin, Filter, Node, Project, SemiJoin, SessionWindow, Source
from cluster.operators.columns import STAMP, AggregateCall
from cluster.operators.scalar_expressions import column_scalar, passed_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from cluster.language.context import Context
    from cluster.language.syntax import WindowBound

FIRST = AggregateCall("min(stamp)", "min", column_scalar(STAMP), STAMP.type, unit=STAMP.unit)
LAST = AggregateCall("max(stamp)", "max", column_scalar(STAMP), STAMP.type, unit=STAMP.unit)


def session_below(node: Node) -> SessionWindow | None:
    """Return the window of sessions whose tuples a plan has, or some of them; None if it has others."""
    while isinstance(node, Filter | Project | SemiJoin | AntiJoin):
        node = node.left if isinstance(node, SemiJoin | AntiJoin) else node.input
    return node if isinstance(node, SessionWindow) else None


def with_stamps(node: Node) -> Node:
    """Return a plan of sessions whose tuples have their stamps as a column; the same where they have none."""
    match node:
        case Filter() | SessionWindow():
            return replace(node, input=with_stamps(node.input))
        case Source() if STAMP not in node.columns:
            return replace(node, columns=(*node.columns, STAMP))
        case Project() if STAMP in (below := with_stamps(node.input)).schema and STAMP not in node.schema:
            return replace(node, input=below, outputs=(*node.outputs, *passed_on((STAMP,))))
        case _:
            return node


def check_bound(bound: WindowBound, node: Node, context: Context) -> None:
    """Refuse a bound of sessions of which not all tuples are known.

    Raises
    ------
    FjordSqlError
        If a condition removes tuples, the window stands in a subquery, or the tuples have no stamps.
    """
    while isinstance(node, Filter):
        window = session_below(node)
        if window is None or not columns_read(node.predicate.expression) <= {*window.keys}:
            _refuse_condition(bound, context)
        node = node.input
    if isinstance(node, SemiJoin | AntiJoin):
        _refuse_condition(bound, context)
    if not isinstance(node, SessionWindow):
        reason = f"{bound.this}() is of a window in FROM of its own query, and these sessions are those of a subquery"
        raise context.error(bound, reason, "select it in the subquery, where the sessions are")
    if STAMP not in node.schema:
        reason = f"{bound.this}() goes by the stamps of tuples, and the rows of this subquery have none"
        raise context.error(bound, reason, SELECTED)


def _refuse_condition(bound: WindowBound, context: Context) -> NoReturn:
    reason = f"{bound.this}() is of all tuples of a session, and WHERE removes some of them"
    hint = "write COUNT(*) FILTER (WHERE ...), or choose before: FROM (SELECT ... WHERE ...) AS t WINDOW(SESSION ...)"
    raise context.error(bound, reason, hint)


def check_groups(bound: WindowBound, window: SessionWindow, grouped: frozenset[str], context: Context) -> None:
    """Refuse a bound in groups that may have tuples of several sessions, or only some of one.

    Raises
    ------
    FjordSqlError
        If the groups have other keys than the sessions.
    """
    keys = ", ".join(window.keys)
    if not grouped.issuperset(window.keys):
        reason = f"sessions are those of each {keys}, and a group here may have several of them"
        raise context.error(bound, reason, f"write GROUP BY {keys}")
    if grouped - {*window.keys}:
        reason = f"{bound.this}() is of all tuples of a session, and GROUP BY divides them"
        what = f"group by {keys} only" if keys else "leave GROUP BY out"
        raise context.error(
            bound, reason, f"{what}, with aggregates of the other columns: MAX(x), COUNT(*) FILTER (...)"
        )


def session_bound(bound: WindowBound, window: SessionWindow, name_of: Callable[[AggregateCall], str]) -> exp.Expr:
    """Return a bound in microseconds over the columns of aggregates.

    Parameters
    ----------
    bound
        Which one.
    window
        The sessions.
    name_of
        Returns the column of an aggregate that is to be computed.
    """
    first = slot_for(name_of(FIRST), bound)
    if bound.this == "WINDOW_START":
        return first
    assert bound.this == "WINDOW_END"  # noqa: S101 - there are two
    session = window.session
    gap, longest = (exp.Literal.number(str(each)) for each in (session.gap_us, session.longest_us))
    last = slot_for(name_of(LAST), bound)
    return exp.Least(this=exp.Add(this=last, expression=gap), expressions=[exp.Add(this=first, expression=longest)])
