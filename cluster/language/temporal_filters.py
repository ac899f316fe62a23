"""Conditions on the stream's time: ``STAMP() > NOW() - INTERVAL '5' MINUTE`` is a window of five minutes.

The stream's time goes on without tuples, so a condition on it says until when a tuple counts, and is no property of the
tuple: at an instant s, a tuple stamped t meets t + d > s on [t, t + d), as in a window of the size d. Only such
conditions have a meaning here (Materialize calls them temporal filters).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.timestamps import LONGEST_INTERVAL_US, interval_us
from cluster.language.conditions import SWAPPED
from cluster.language.scope import Scope
from cluster.language.stamps import NOWS, UNTIL, refuse_now
from cluster.language.stream_item import ITEM_CLAUSES
from cluster.language.syntax import QUERIES, IntervalLiteral, conjuncts
from cluster.language.time_literals import interval_literal
from cluster.language.validity_syntax import ValidClause
from cluster.operators import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.language.context import Context
    from cluster.language.from_items import FromItem

OTHERS = ("window", *(each.slot for each in ITEM_CLAUSES), "valid")
"""Clauses that set already for how long a tuple counts, or when."""
_COMPARED = (exp.GT, exp.GTE, exp.LT, exp.LTE)


@dataclass(frozen=True, slots=True)
class SideOfTime:
    """One side of a comparison: a stamp or NOW(), and how much is added to it."""

    what: exp.Expr
    plus_us: int


def with_temporal_windows(
    items: Sequence[FromItem], syntax: Sequence[exp.Expr], select: exp.Select, context: Context
) -> list[FromItem]:
    """Return the items of FROM with the windows that conditions of WHERE on NOW() mean; these are then done.

    Parameters
    ----------
    items, syntax
        The items, and their syntax.
    select, context
        Their query.

    Raises
    ------
    FjordSqlError
        If such a condition says anything else, or its stream has a window already.
    """
    found = list(items)
    where = select.args.get("where")
    for condition in conjuncts(where.this) if where else ():
        now = next(_nows(condition), None)
        if now is None:
            continue
        stamp, size_us = _window(condition, now, context)
        scope = Scope(tuple(scope for item in items for scope in item.scopes))
        if not scope.find(stamp, context).is_stamp:
            raise refuse_now(context, now)
        place = next(place for place, item in enumerate(items) if _has(item, stamp))
        clause = next((syntax[place].args[each] for each in OTHERS if syntax[place].args.get(each)), None)
        if clause is not None or found[place].node is not items[place].node:
            what = "VALID UNTIL NEXT" if isinstance(clause, ValidClause) else "a window"
            reason = f"this stream has {what} already, and the condition on NOW() would be another one"
            raise context.error(condition, reason, "leave one of them out")
        found[place] = replace(items[place], node=TimeWindow(items[place].node, size_us))
        context.temporal.add(id(condition))
    return found


def _has(item: FromItem, stamp: exp.Column) -> bool:
    scope = Scope((item.scope,))
    return scope.knows(stamp) or scope.knows_stamp(stamp)


def _nows(expression: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the NOW() in an expression, not those in its subqueries."""
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        if isinstance(part, NOWS):
            yield part
        elif not isinstance(part, QUERIES):
            waiting += part.iter_expressions()


def _window(condition: exp.Expr, now: exp.Expr, context: Context) -> tuple[exp.Column, int]:
    """Return the stamp in a condition, and for how long from it the condition holds."""
    kind = type(condition)
    if kind not in _COMPARED:
        raise refuse_now(context, now)
    left, right = (side_of_time(each, context) for each in (condition.this, condition.expression))
    if left is None or right is None:
        raise refuse_now(context, now)
    if isinstance(left.what, NOWS):
        left, right, kind = right, left, SWAPPED[kind]
    if not isinstance(left.what, exp.Column) or not isinstance(right.what, NOWS):
        raise refuse_now(context, now)
    if kind in (exp.LT, exp.LTE):
        reason = "a tuple counts from its stamp on, and a condition on NOW() says until when"
        raise context.error(condition, reason, UNTIL)
    size_us = left.plus_us - right.plus_us + (kind is exp.GTE)
    if size_us < 1:
        raise context.error(condition, "this is never true: no tuple is stamped after its own time", UNTIL)
    if size_us > LONGEST_INTERVAL_US:
        raise context.error(condition, "the interval is too long", "the longest is about 36,500 years")
    return left.what, size_us


def side_of_time(expression: exp.Expr, context: Context) -> SideOfTime | None:
    """Return a column or NOW() with what is added to it; None if an expression is anything else."""
    part = expression.unnest() if isinstance(expression, exp.Paren) else expression
    if isinstance(part, (exp.Column, *NOWS)):
        return SideOfTime(part, 0)
    if isinstance(part, exp.Add | exp.Sub):
        sign = 1 if isinstance(part, exp.Add) else -1
        one, other = part.this, part.expression
        if (size := constant_us(other, context)) is not None and (side := side_of_time(one, context)) is not None:
            return SideOfTime(side.what, side.plus_us + sign * size)
        if (
            sign > 0
            and (size := constant_us(one, context)) is not None
            and (side := side_of_time(other, context)) is not None
        ):
            return SideOfTime(side.what, side.plus_us + size)
    return None


def constant_us(expression: exp.Expr, context: Context) -> int | None:
    """Return the length of an interval that is written out, in microseconds; None if an expression is none."""
    part = expression.unnest() if isinstance(expression, exp.Paren) else expression
    if isinstance(part, exp.Neg):
        size = constant_us(part.this, context)
        return None if size is None else -size
    if not isinstance(part, IntervalLiteral):
        return None
    return interval_us(interval_literal(context, part).expression.this)
