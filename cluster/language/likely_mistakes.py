"""Warnings about queries that mean something else than most people expect of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.grouping import function_name
from cluster.language.quantities import written
from cluster.language.stamp_conditions import constant_us
from cluster.language.stream_item import StreamItem
from cluster.language.syntax import Duration, Validity, conjuncts, span_of
from cluster.operators import Aggregate, Extent, Filter, Node, Project, TimeWindow, UntilNext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.language.context import Context
    from cluster.language.from_items import FromItem

_LONGEST_TEXT = 300
"""A query of at most so many characters is written out in a warning."""


def warn_of_lone_tuples(select: exp.Select, node: Node, calls: Sequence[exp.Expr], context: Context) -> None:
    """Warn of aggregates over a stream without a window: each is that of one instant, mostly of one tuple.

    Parameters
    ----------
    select
        The query.
    node
        What is aggregated.
    calls
        The aggregates.
    """
    item = select.args["from_"].this
    if context.registered or not calls or select.args.get("joins") or select.args.get("sample"):
        return
    if not isinstance(item, StreamItem) or not node.is_instantaneous:
        return
    if item.args.get("window") or item.args.get("sample") or not isinstance(item.this, exp.Table):
        return
    name = context.source_text(item)
    example = _inserted(select, item, " WINDOW(RANGE 1 HOUR SLIDE 1 HOUR)", context)
    context.warn(
        f"{name} has no window: each {function_name(calls[0])} is over the tuples with the same stamp, usually a "
        f"single one. For one an hour, write {example}"
    )


def warn_of_rows_before(select: exp.Select, node: Node, calls: Sequence[exp.Expr], context: Context) -> None:
    """Warn of extremes in windows over answers that come once for every slide: the one before counts as well.

    Parameters are those of :func:`warn_of_lone_tuples`.
    """
    item = select.args["from_"].this
    if context.registered or select.args.get("joins") or not isinstance(item, StreamItem):
        return
    if not any(isinstance(call, exp.Max | exp.Min) for call in calls):
        return
    outer = node.below_filters
    if not isinstance(outer, TimeWindow) or outer.size_us is None:
        return
    inner = outer.input
    while isinstance(inner, Filter | Project | Aggregate):
        inner = inner.input
    if inner is outer.input or not isinstance(inner, TimeWindow) or inner.slide_us == 1:
        return
    is_query = isinstance(item.this, exp.Subquery)
    given = context.source_text(item.this)
    around = f"({given})" if is_query and not given.startswith("(") else given
    context.warn(
        f"each row of {'the subquery' if is_query else given} holds for {written(inner.slide_us)}, until the next one "
        "comes, so the last one before a window counts in it, too. To count each only where it begins, write "
        f"ISTREAM({around if len(around) < _LONGEST_TEXT else '...'})"
    )


def warn_of_short_windows(select: exp.Select, items: Sequence[FromItem], context: Context) -> None:
    """Warn of conditions for intervals that are longer than their window lets them be."""
    where = select.args.get("where")
    if where is None or context.registered:
        return
    for condition in conjuncts(where.this):
        shortest = _shortest_wanted(condition, context)
        if shortest is None:
            continue
        validity, wanted_us, strictly = shortest
        for item in items:
            if len(items) > 1 and (item.scope.alias or "").casefold() != validity.name.casefold():
                continue
            longest = _longest(item.node)
            if longest is not None and (longest[0] < wanted_us or (strictly and longest[0] == wanted_us)):
                context.warn(f"{context.source_text(condition)} is never true: {longest[1]}")


def _shortest_wanted(condition: exp.Expr, context: Context) -> tuple[Validity, int, bool] | None:
    """Return VALID(t), a duration and whether that is too short, of a condition that it holds longer than this."""
    if isinstance(condition, exp.GT | exp.GTE):
        duration, wanted = condition.this, condition.expression
    elif isinstance(condition, exp.LT | exp.LTE):
        wanted, duration = condition.this, condition.expression
    else:
        return None
    wanted_us = constant_us(wanted, context)
    arguments = duration.expressions if isinstance(duration, Duration) else []
    if wanted_us is None or len(arguments) != 1 or not isinstance(arguments[0], Validity):
        return None
    return arguments[0], wanted_us, isinstance(condition, exp.GT | exp.LT)


def _longest(node: Node) -> tuple[int, str] | None:
    """Return how long VALID of a stream's tuples is at most, in microseconds, and why; None if that is not known."""
    node = node.below_filters
    if isinstance(node, Extent):
        window = node.input.below_filters
        if isinstance(window, TimeWindow) and window.size_us is not None and window.input.is_instantaneous:
            reason = f"a row is of samples in its window, which are less than {written(window.size_us)} apart"
            return window.size_us - 1, f"{reason}; a longer window has longer rows"
        return None
    while isinstance(node, Filter | Project | TimeWindow):
        node = node.input
    if isinstance(node, UntilNext) and node.longest_us is not None:
        return node.longest_us, f"VALID UNTIL NEXT ends after MAX {written(node.longest_us)}"
    return None


def _inserted(select: exp.Select, item: exp.Expr, text: str, context: Context) -> str:
    """Return the text of a query with more behind an item of FROM, or from FROM on if it is long."""
    whole, own = span_of(select), span_of(item)
    if whole is None or own is None or whole[1] - whole[0] > _LONGEST_TEXT:
        return f"FROM {context.source_text(item)}{text}"
    return f"{context.text[whole[0] : own[1]]}{text}{context.text[own[1] : whole[1]]}"
