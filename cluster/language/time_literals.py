"""Timestamps and intervals that are written out: TIMESTAMP '2026-03-29 02:30:00+01:00', INTERVAL '5' MINUTE."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cluster.expressions.called_functions import TimeLiteral
from cluster.expressions.timestamps import (
    LENGTHS_US,
    LONGEST_INTERVAL_US,
    interval_iso,
    interval_us,
    timestamp_iso,
    timestamp_us,
)
from cluster.language.quantities import DURATION_UNITS, QuantityError, distance_us
from cluster.language.typing_rules import Typed
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.syntax import IntervalLiteral, TimestampLiteral

TIMESTAMP_SHAPE = "TIMESTAMP '2026-03-29 02:30:00+01:00', or without an offset, which is UTC"
FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
"""Units between which an interval may be written, the longest first."""
_MOST = {"HOUR": 24, "MINUTE": 60, "SECOND": 60}
RANGE_SHAPE = "INTERVAL '1 12:30' DAY TO MINUTE, or INTERVAL '12:30:05.5' HOUR TO SECOND"
INTERVAL_SHAPE = "INTERVAL '5' MINUTE, or INTERVAL '1 hour 30 minutes'"
MONTHS = ("MONTH", "MONTHS", "QUARTER", "QUARTERS", "YEAR", "YEARS", "DECADE", "CENTURY", "MON", "Y")
_PART = re.compile(r"(?P<number>[+-]?[0-9]+(\.[0-9]*)?)\s*(?P<unit>[A-Za-z]+)\s*,?\s*")


def timestamp_literal(context: Context, literal: TimestampLiteral) -> Typed:
    """Return a timestamp that is written out.

    Raises
    ------
    FjordSqlError
        If its text is none.
    """
    instant = timestamp_us(literal.this.this)
    if instant is None:
        reason = f"{literal.this.this!r} is no timestamp of the years 1 to 9999"
        raise context.error(literal.this, reason, f"it is written {TIMESTAMP_SHAPE}")
    return Typed(TimeLiteral(this=timestamp_iso(instant), kind="timestamp"), FieldType.TIMESTAMP, nullable=False)


def interval_literal(context: Context, literal: IntervalLiteral) -> Typed:
    """Return an interval that is written out: a number and a unit, or a text of several.

    Raises
    ------
    FjordSqlError
        If it has no meaning.
    """
    text, unit, until = str(literal.this.this).strip(), literal.args.get("unit"), literal.args.get("until")
    if unit is not None and until is not None:
        size = _between(context, literal, text, (unit.name, until.name))
    elif unit is not None:
        size = _size(context, literal, text, unit.name)
    elif (size_of_iso := interval_us(text.upper())) is not None:
        size = size_of_iso
    else:
        size = _sum(context, literal, text)
    if abs(size) > LONGEST_INTERVAL_US:
        raise context.error(literal, "the interval is too long", "the longest is about 36,500 years")
    return Typed(interval_of(size), FieldType.INTERVAL, nullable=False)


def interval_of(size_us: int) -> TimeLiteral:
    """Return an interval of so many microseconds."""
    return TimeLiteral(this=interval_iso(size_us), kind="interval")


def _between(context: Context, literal: IntervalLiteral, text: str, units: tuple[str, str]) -> int:
    """Return the interval that a text gives from one unit to another: days, hours, minutes, seconds with decimals."""
    first, last = (FIELDS.index(each) if each in FIELDS else -1 for each in units)
    if not 0 <= first < last:
        reason = f"an interval is not written from {units[0]} to {units[1]}"
        raise context.error(literal, reason, f"it is written {RANGE_SHAPE}")
    fields = FIELDS[first : last + 1]
    marks = (" " if field == "DAY" else ":" for field in fields[:-1])
    parts = [rf"(?P<{field}>[0-9]{{1,{9 if place == 0 else 2}}})" for place, field in enumerate(fields)]
    decimals = r"(\.(?P<decimals>[0-9]{1,6}))?" if last == len(FIELDS) - 1 else ""
    pattern = "".join(f"{part}{mark}" for part, mark in zip(parts, (*marks, decimals), strict=True))
    found = re.fullmatch(rf"(?P<sign>[+-]?){pattern}", text)
    sizes = {field: int(found[field]) for field in fields} if found else {}
    if found is None or any(size >= _MOST[field] for field, size in sizes.items() if field != fields[0]):
        reason = f"{text!r} is no interval from {units[0]} to {units[1]}"
        raise context.error(literal, reason, f"it is written {RANGE_SHAPE}")
    decimals_us = int((found["decimals"] or "").ljust(6, "0") or 0) if decimals else 0
    size_us = sum(LENGTHS_US[field] * size for field, size in sizes.items()) + decimals_us
    return -size_us if found["sign"] == "-" else size_us


def _sum(context: Context, literal: IntervalLiteral, text: str) -> int:
    place, size = 0, 0
    while place < len(text):
        found = _PART.match(text, place)
        if found is None:
            reason = "an interval is a number and a unit, or several"
            raise context.error(literal, reason, f"it is written {INTERVAL_SHAPE}")
        size += _size(context, literal, found["number"], found["unit"])
        place = found.end()
    if not text:
        raise context.error(literal, "the interval is empty", f"it is written {INTERVAL_SHAPE}")
    return size


def _size(context: Context, literal: IntervalLiteral, number: str, unit: str) -> int:
    if unit.upper() in MONTHS:
        reason = f"an interval has a length, and not every {unit.lower()} is as long"
        raise context.error(literal, reason, "count days, INTERVAL '30' DAY, or compare DATE_TRUNC('month', x)")
    if unit.upper() not in DURATION_UNITS:
        raise context.error(literal, f"{unit!r} is no unit of an interval", f"it is written {INTERVAL_SHAPE}")
    try:
        return distance_us(number.removeprefix("+"), unit)
    except QuantityError as error:
        raise context.error(literal, error.reason, error.hint) from None
