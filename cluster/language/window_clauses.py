"""Windows and granularities behind an item of FROM, on a grid or the calendar too: their syntax -> nodes."""

from __future__ import annotations

import zoneinfo
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Literal

from sqlglot import exp

from cluster.language.context import Context
from cluster.language.errors import suggest
from cluster.language.quantities import (
    CALENDAR_UNITS,
    DURATION_UNITS,
    QuantityError,
    duration_us,
    exactly,
    read_quantity,
    row_count,
    written,
)
from cluster.language.range_clauses import in_steps, row_bound, window_size
from cluster.language.stream_item import ITEM_CLAUSES, StreamItem
from cluster.language.syntax import Bounds, Quantity, StreamWindow
from cluster.language.words import ZONE_SHAPE
from cluster.operators import CountWindow, Node, PartitionedWindow, SessionWindow, TimeWindow
from cluster.operators.window_shapes import DAY_US, DEFAULT_LONGEST_US, Grid, Session, Span
from protocols.text.closeness import did_you_mean

MOST_MONTHS = 12_000
"""A thousand years: longer windows of the calendar are refused."""
_DAYS: dict[str, Literal["day", "week"]] = {
    **dict.fromkeys(("DAY", "DAYS", "D"), "day"),
    **dict.fromkeys(("WEEK", "WEEKS"), "week"),
}


def sliding_grid(window: StreamWindow, context: Context) -> Grid | None:
    """Return the grid on which a window by time slides; None for whole multiples of a duration.

    Raises
    ------
    FjordSqlError
        If a part of it makes no sense.
    """
    size: Quantity | Bounds | None = window.args.get("this")
    slide, zone, offset = _parts(window)
    in_months = isinstance(size, Quantity) and _unit(size) in CALENDAR_UNITS
    if slide is None:
        if clause := zone or offset:
            reason = "a window without SLIDE has no boundaries that could be moved"
            raise context.error(clause, reason, "write WINDOW(RANGE 1 DAY SLIDE 1 DAY ...)")
        if isinstance(size, Quantity) and in_months:
            reason = f"how long {_spelled(size)} lasts depends on when it ends, and this window ends at every instant"
            raise context.error(size, reason, "let it slide, SLIDE 1 DAY or SLIDE 1 MONTH, or write 30 DAYS")
        return None
    calendar = zone is not None or in_months or _unit(slide) in CALENDAR_UNITS
    if not calendar and offset is None:
        return None
    if not isinstance(size, Quantity):
        raise context.error(size or window, "a range of sizes has no OFFSET and no calendar", "write one size")
    step = _step(slide, context, calendar=calendar)
    grid = Grid(step, _offset_us(offset, step, context), _zone(zone, context), _span(size, context, calendar=calendar))
    if not (calendar or grid.offset_us):
        return None
    return grid


def reset_window(node: Node, window: StreamWindow, context: Context) -> TimeWindow:
    """Return the plan of a window that is reset at each boundary.

    Raises
    ------
    FjordSqlError
        If a part of it makes no sense.
    """
    every: Quantity = window.args["this"]
    slide, zone, offset = _parts(window)
    calendar = zone is not None or _unit(every) in CALENDAR_UNITS
    step = _step(every, context, calendar=calendar)
    if not calendar:
        warn_of_weeks(every, context)
    slide_us = 1 if slide is None else read_quantity(slide, duration_us, context)
    if slide_us > step.usual_us:
        reason = f"the window is reset before {written(slide_us)} have passed"
        raise context.error(slide or every, reason, "write a shorter SLIDE, or none")
    grid = Grid(step, _offset_us(offset, step, context), _zone(zone, context))
    return TimeWindow(node, grid.size_us, slide_us, grid)


def _parts(window: StreamWindow) -> tuple[Quantity | None, exp.Literal | None, Quantity | None]:
    """Return the slide, the time zone and the offset of a window."""
    return window.args.get("slide"), window.args.get("zone"), window.args.get("offset")


def warn_of_weeks(slide: Quantity, context: Context) -> None:
    """Warn of plain weeks: they begin on Thursday, as 1970 did."""
    if _unit(slide) in ("WEEK", "WEEKS"):
        hint = "AT TIME ZONE 'UTC' makes them begin on Monday"
        context.warn(f"weeks without AT TIME ZONE are whole multiples since 1970, which begin on Thursday: {hint}")


def _unit(quantity: Quantity) -> str:
    unit = quantity.args.get("unit")
    return unit.name.upper() if unit else ""


def _spelled(quantity: Quantity) -> str:
    return f"{quantity.this.this} {_unit(quantity)}"


def _step(quantity: Quantity, context: Context, *, calendar: bool) -> Span:
    step = _span(quantity, context, calendar=calendar)
    if calendar and not step.calendar:
        reason = f"boundaries {_spelled(quantity)} apart do not follow the calendar"
        hint = "AT TIME ZONE is for DAYS, WEEKS, MONTHS, QUARTERS and YEARS; OFFSET 30 MINUTES moves shorter ones"
        raise context.error(quantity, reason, hint)
    return step


def _span(quantity: Quantity, context: Context, *, calendar: bool) -> Span:
    unit = _unit(quantity)
    if not calendar or (unit not in _DAYS and unit not in CALENDAR_UNITS):
        return Span("us", read_quantity(quantity, duration_us, context))

    def whole(number: str, _: str | None) -> int:
        count = exactly(number)
        if count.denominator != 1 or count <= 0:
            hint = "a part of a day can be written in HOURS" if unit in _DAYS else None
            raise QuantityError("days, weeks and months of the calendar are whole and positive", hint)
        if count * (CALENDAR_UNITS.get(unit) or DURATION_UNITS.get(unit, 0) / (30 * DAY_US)) > MOST_MONTHS:
            raise QuantityError("this is too long", "the longest are 1,000 YEARS")
        return int(count)

    count = read_quantity(quantity, whole, context)
    return Span(_DAYS[unit], count) if unit in _DAYS else Span("month", count * CALENDAR_UNITS[unit])


def _offset_us(offset: Quantity | None, step: Span, context: Context) -> int:
    if offset is None or exactly_zero(offset):
        return 0
    found = read_quantity(offset, duration_us, context, meant="HOURS")
    if found >= step.usual_us:
        least = f"which can be {written(step.usual_us)}" if step.unit == "month" else written(step.usual_us)
        reason = f"the offset is not less than the distance of the boundaries, {least}"
        hint = "write what is left of it when whole ones are taken away"
        if step.unit == "month":
            hint = "months begin on their first days; OFFSET is less than the shortest, such as 14 DAYS"
        raise context.error(offset, reason, hint)
    return found


def exactly_zero(quantity: Quantity) -> bool:
    """Return whether a quantity is zero, whatever its unit."""
    try:
        return exactly(quantity.this.this) == 0
    except QuantityError:
        return False


def _zone(zone: exp.Literal | None, context: Context) -> str:
    if zone is None:
        return "UTC"
    if not zone.is_string:
        raise context.error(zone, "the name of a time zone is a text", f"it is written {ZONE_SHAPE}")
    if zone.this in _zones():
        return str(zone.this)
    asked = zone.this.casefold().replace(" ", "_")
    same = [name for name in sorted(_zones()) if f"/{name}".casefold().endswith(f"/{asked}")]
    hint = f"write {same[0]!r}" if same else did_you_mean(zone.this, sorted(_zones()))
    hint = hint or "names are those of the IANA database, such as 'Europe/Berlin', 'America/New_York' or 'UTC'"
    raise context.error(zone, f"there is no time zone {zone.this!r}", hint)


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def windowed(node: Node, item: StreamItem, context: Context) -> Node:
    """Return the plan of an item of FROM with its window and granularity, if it has any.

    Raises
    ------
    FjordSqlError
        If a clause makes no sense.
    """
    window: StreamWindow | None = item.args.get("window")
    if window is not None:
        node = _window(node, window, context)
    return reshaped(node, item, context)


def reshaped(node: Node, item: StreamItem, context: Context) -> Node:
    """Return the plan of tuples with the clauses behind their window; errors as for :func:`windowed`."""
    for each in ITEM_CLAUSES:
        if clause := item.args.get(each.slot):
            node = each.to_node(node, clause, context)
    return node


def _window(node: Node, window: StreamWindow, context: Context) -> Node:
    keys = keys_of(window.args.get("partition"), node, context)
    kind, size = window.args["kind"], window.args.get("this")
    if keys and (kind in ("RANGE", "RESET") or (kind == "ROWS" and size is None)):
        reason = "how long a tuple counts depends on no other"
        context.warn(f"PARTITION BY changes nothing in a window by time or without bounds: {reason}")
    match kind:
        case "RANGE":
            return _time_window(node, window, context)
        case "RESET":
            return reset_window(node, window, context)
        case "SESSION":
            return _session_window(node, window, keys, context)
        case _:
            return _count_window(node, window, keys, context)


def _time_window(node: Node, window: StreamWindow, context: Context) -> Node:
    size, slide = window.this, window.args.get("slide")
    if size is None and slide is not None:
        raise context.error(window, "an unbounded window cannot slide", "give it a size, or leave SLIDE away")
    if (grid := sliding_grid(window, context)) is not None:
        return TimeWindow(node, grid.size_us, grid.step.usual_us, grid)
    if slide is not None and window.args.get("zone") is None:
        warn_of_weeks(slide, context)
    if size is None:
        return TimeWindow(node, None)
    size_us, allowed = window_size(size, context)
    slide_us = read_quantity(slide, duration_us, context) if slide else 1
    return TimeWindow(node, size_us, slide_us, allowed=in_steps(size, allowed, slide_us, context))


def _session_window(node: Node, window: StreamWindow, keys: tuple[str, ...], context: Context) -> Node:
    gap_us = read_quantity(window.this, duration_us, context, meant="MINUTES")
    longest_us = DEFAULT_LONGEST_US
    if longest := window.args.get("longest"):
        longest_us = read_quantity(longest, duration_us, context, meant="HOURS")
    if longest_us < gap_us:
        reason = f"a session lasts as long as its gap, {written(gap_us)}, and this one at most {written(longest_us)}"
        raise context.error(longest or window.this, reason, f"write MAX {written(gap_us)}, or more")
    return SessionWindow(node, keys, Session(gap_us, longest_us, bool(window.args.get("early"))))


def _count_window(node: Node, window: StreamWindow, keys: tuple[str, ...], context: Context) -> Node:
    size, slide = window.this, window.args.get("slide")
    for part in ("zone", "offset"):
        if clause := window.args.get(part):
            reason = "a window by count does not move by time"
            raise context.error(clause, reason, "OFFSET and AT TIME ZONE belong to RANGE and RESET")
    if size is None and slide is not None:
        raise context.error(window, "an unbounded window cannot slide", "give it a size, or leave SLIDE away")
    rows = None if size is None else row_bound(size, context)
    slide_rows = read_quantity(slide, row_count, context) if slide else 1
    if rows is None:
        # The last of arbitrarily many tuples: no tuple ever leaves, by group or not.
        return CountWindow(node, None)
    context.warn(count_warning(rows, keys))
    return PartitionedWindow(node, keys, rows, slide_rows) if keys else CountWindow(node, rows, slide_rows)


def count_warning(rows: int, keys: Collection[str]) -> str:
    """Return the warning about tuples with the same stamp in a window by count, of each group if there are keys."""
    return (
        f"WINDOW({'PARTITION BY ... ' if keys else ''}ROWS {rows}) counts tuples: "
        f"where several of one {'group' if keys else 'stream'} carry the same stamp, which of them count is arbitrary"
    )


def keys_of(
    keys: Iterable[exp.Expr] | None, node: Node, context: Context, words: str = "PARTITION BY"
) -> tuple[str, ...]:
    """Return the columns of `node` that keys are, each once; errors as for :func:`key_of`."""
    return tuple(dict.fromkeys(key_of(each, node, context, words) for each in keys or ()))


def key_of(key: exp.Expr, node: Node, context: Context, words: str = "PARTITION BY") -> str:
    """Return the column of `node` that a key behind PARTITION BY, or other `words`, is.

    Raises
    ------
    FjordSqlError
        If it is none.
    """
    if not isinstance(key, exp.Column):
        hint = "a window is partitioned by columns of the stream before it"
        hint = hint if words == "PARTITION BY" else "name columns of the stream before it"
        raise context.error(key, f"{words} takes columns as they are", hint)
    names = [column.name for column in node.schema]
    found = next((name for name in names if name.casefold() == key.name.casefold()), None)
    if found is None:
        raise context.error(key, f"there is no column {key.name!r}", suggest(key.name, names, what="columns are"))
    if key.table:
        reason = f"the columns of {words} are those of the stream before it, and have no other name in front"
        raise context.error(key.args["table"], reason, f"write {found}")
    return found
