"""Windows whose boundaries lie on a grid: moved by an offset, by the calendar of a time zone, or reset at each."""

from __future__ import annotations

import zoneinfo
from functools import lru_cache
from typing import Literal

from sqlglot import exp

from cluster.language.context import Context
from cluster.language.quantities import (
    CALENDAR_UNITS,
    DURATION_UNITS,
    QuantityError,
    duration_us,
    exactly,
    read_quantity,
    written,
)
from cluster.language.syntax import Bounds, Quantity, StreamWindow
from cluster.language.words import ZONE_SHAPE
from cluster.operators import Node, TimeWindow
from cluster.operators.window_shapes import DAY_US, Grid, Span
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
