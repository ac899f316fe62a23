"""Conditions on stamps that are windows or joins: ``STAMP() > NOW() - ...``, and bounds between two streams.

**Conditions on the stream's time: ``STAMP() > NOW() - INTERVAL '5' MINUTE`` is a window of five minutes.**

The stream's time goes on without tuples, so a condition on it says until when a tuple counts, and is no property of the
tuple: at an instant s, a tuple stamped t meets t + d > s on [t, t + d), as in a window of the size d. Only such
conditions have a meaning here (Materialize calls them temporal filters).

**Interval joins by their spelling: conditions that bound both stamps of two streams are JOIN ... WITHIN.**

    FROM a JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '4' HOUR AND b.ts
    FROM a JOIN b WITHIN 0 HOURS TO 4 HOURS ON a.k = b.k

Streams without a window are valid at instants: joined as snapshots, only tuples of equal stamps would meet, which
no query of this kind means. A text that is kept gets the second spelling, so that it means the same in every version.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.timestamps import LONGEST_INTERVAL_US, interval_us
from cluster.language.conditions import SWAPPED
from cluster.language.dialect import tokens_of
from cluster.language.scope import NOWS, UNTIL, Scope, refuse_now
from cluster.language.stamp_joins import BOUNDS
from cluster.language.stream_item import ITEM_CLAUSES, StreamItem
from cluster.language.syntax import (
    QUERIES,
    IntervalLiteral,
    StampJoin,
    ValidClause,
    ZipJoin,
    conjuncts,
    holds_query,
    is_comma,
    own_columns,
    place_of,
)
from cluster.language.time_literals import interval_literal
from cluster.operators import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.language.context import Context
    from cluster.language.from_items import FromItem
    from cluster.language.scope import ScopeItem

OTHERS = ("window", *(each.slot for each in ITEM_CLAUSES), "valid")
"""Clauses that set already for how long a tuple counts, or when."""
_ORDERED = (exp.GT, exp.GTE, exp.LT, exp.LTE)


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
    if kind not in _ORDERED:
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


_COMPARED_OR_EQUAL = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A condition on stamps: the right one minus the left one is at least, or at most, so many microseconds."""

    at_least: int | None = None
    at_most: int | None = None


def with_interval_joins(
    items: Sequence[FromItem], joins: Sequence[exp.Join], select: exp.Select, context: Context
) -> list[exp.Join]:
    """Return the joins of a FROM, with joins WITHIN a time for those that are written as conditions on stamps.

    Parameters
    ----------
    items, joins
        The items, and the connection of each item but the first with those before it.
    select, context
        Their query.
    """
    found = list(joins)
    if context.registered:
        return found  # by an earlier version, which joined tuples of equal stamps
    for place, join in enumerate(joins, start=1):
        before = joins[: place - 1]
        if all(map(is_comma, before)) and _can_be_near(items[place - 1], items[place], join):
            found[place - 1] = _near(items[place - 1], items[place], join, select if len(joins) == 1 else None, context)
    return found


def _can_be_near(left: FromItem, right: FromItem, join: exp.Join) -> bool:
    if isinstance(join, ZipJoin | StampJoin) or join.args.get("using") or join.args.get("method"):
        return False
    if holds_query(join.args.get("on") or exp.true()) or not isinstance(join.this, StreamItem):
        return False
    return all(not item.static and item.scope.alias and item.node.is_instantaneous for item in (left, right))


def _near(left: FromItem, right: FromItem, join: exp.Join, select: exp.Select | None, context: Context) -> exp.Join:
    side, kind = join.args.get("side"), join.args.get("kind")
    if (side and kind not in (None, "OUTER")) or (not side and kind not in (None, "INNER")):
        return join
    on, where = join.args.get("on"), select.args.get("where") if select is not None and not side else None
    of_on, of_where = conjuncts(on), conjuncts(where.this if where else None)
    sides = left.scope, right.scope
    bounds = {id(part): found for part in (*of_on, *of_where) if (found := _bound(part, sides, context)) is not None}
    low_us, high_us = _both(bounds.values())
    if low_us is None or high_us is None or low_us > high_us or low_us == high_us == 0:
        return join
    kept = [part for part in of_on if id(part) not in bounds]
    moved = [part for part in of_where if id(part) not in bounds and _is_key(part, sides)] if not on else []
    context.temporal |= {id(part) for part in (*(each for each in of_where if id(each) in bounds), *moved)}
    _rewrite(join, (low_us, high_us), moved, where, context)
    condition = exp.and_(*(each.copy() for each in (*kept, *moved)), copy=False) if kept or moved else None
    near = StampJoin(this=join.this.copy(), kind="WITHIN", side=side or "INNER", on=condition)
    near.meta.update(join.meta, **{BOUNDS: (low_us, high_us)})
    near.parent = join.parent
    return near


def _both(bounds: Collection[_Bound]) -> tuple[int | None, int | None]:
    lows = [each.at_least for each in bounds if each.at_least is not None]
    highs = [each.at_most for each in bounds if each.at_most is not None]
    return max(lows, default=None), min(highs, default=None)


def _bound(part: exp.Expr, sides: tuple[ScopeItem, ScopeItem], context: Context) -> _Bound | None:
    """Return what a condition says about the stamps of two items; None if it says something else."""
    if isinstance(part, exp.Paren):
        return _bound(part.this, sides, context)
    if isinstance(part, exp.Between) and not part.args.get("symmetric"):
        ends = ((exp.GTE, "low"), (exp.LTE, "high"))
        both = [_compared(kind, part.this, part.args[end], sides, context) for kind, end in ends]
        found = [each for each in both if each is not None]
        return _Bound(*_both(found)) if len(found) == len(both) else None
    if type(part) in _COMPARED_OR_EQUAL:
        return _compared(type(part), part.this, part.expression, sides, context)
    return None


def _compared(
    kind: type[exp.Expr], one: exp.Expr, other: exp.Expr, sides: tuple[ScopeItem, ScopeItem], context: Context
) -> _Bound | None:
    apart = _apart(one, other, sides, context)
    if apart is None:
        return None
    right_first, less_us = apart
    # It says: right - left (or left - right) is in this relation to `less_us`.
    if not right_first:
        kind, less_us = SWAPPED[kind], -less_us
    strict = kind in (exp.GT, exp.LT)
    low = less_us + strict if kind in (exp.GT, exp.GTE, exp.EQ) else None
    high = less_us - strict if kind in (exp.LT, exp.LTE, exp.EQ) else None
    return _Bound(low, high)


def _apart(
    one: exp.Expr, other: exp.Expr, sides: tuple[ScopeItem, ScopeItem], context: Context
) -> tuple[bool, int] | None:
    """Return whether the right stamp is the first of two that are compared, and with what their difference is."""
    difference = one.unnest()
    if isinstance(difference, exp.Sub) and (size_us := constant_us(other, context)) is not None:
        first, second, plus_us = difference.this, difference.expression, size_us
        first_side, second_side = (_stamped_side(each, sides) for each in (first, second))
    else:
        left, right = (side_of_time(each, context) for each in (one, other))
        if left is None or right is None:
            return None
        first_side, second_side = (_stamped_side(each.what, sides) for each in (left, right))
        plus_us = right.plus_us - left.plus_us
    if first_side is None or second_side is None or first_side == second_side:
        return None
    return first_side == 1, plus_us


def _stamped_side(part: exp.Expr, sides: tuple[ScopeItem, ScopeItem]) -> int | None:
    """Return of which item a part of a condition is the stamp: 0 or 1; None if it is that of neither, or of both."""
    part = part.unnest()
    if not isinstance(part, exp.Column):
        return None
    found = [side for side, item in enumerate(sides) if item.is_stamped_by(part)]
    return found[0] if len(found) == 1 else None


def _is_key(part: exp.Expr, sides: tuple[ScopeItem, ScopeItem]) -> bool:
    """Return whether a condition says that a column of one item equals one of the other."""
    if not isinstance(part, exp.EQ) or holds_query(part):
        return False
    columns = own_columns(part)
    named = [[item.has(column) for item in sides] for column in columns]
    return len(columns) == 2 and sorted(named) == [[False, True], [True, False]]  # noqa: PLR2004 - both sides


def _rewrite(
    join: exp.Join, bounds_us: tuple[int, int], moved: list[exp.Expr], where: exp.Expr | None, context: Context
) -> None:
    """Note what a text that is kept has in place of this spelling."""
    within = f"WITHIN {bounds_us[0]} US TO {bounds_us[1]} US "
    tokens = tokens_of(context.text)
    on = join.args.get("on")

    def last(word: str, before: exp.Expr) -> tuple[int, int]:
        token = [each for each in tokens if each.text.upper() == word and each.start < place_of(before)[0]][-1]
        return token.start, token.end + 1

    if on is not None:
        start, _ = last("ON", on)
        context.spelled[start, start] = within
        return
    assert where is not None  # noqa: S101 - there is a condition on stamps
    condition = " AND ".join(f"({context.source_text(each)})" for each in moved) or "TRUE"
    comma = last(",", join.this)
    start, _ = last("WHERE", where.this)
    context.spelled[comma] = " JOIN"
    context.spelled[start, start] = f"{within}ON {condition} "
