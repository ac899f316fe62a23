"""Durations and frequencies as FjordSQL writes them, in whole microseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from cluster.language.errors import suggest

if TYPE_CHECKING:
    from sqlglot import exp

    from cluster.language.context import Context
    from cluster.language.syntax import Quantity

DURATION_UNITS: dict[str, int] = {
    **dict.fromkeys(("MICROSECOND", "MICROSECONDS", "US"), 1),
    **dict.fromkeys(("MILLISECOND", "MILLISECONDS", "MS"), 1_000),
    **dict.fromkeys(("SECOND", "SECONDS", "SEC", "S"), 1_000_000),
    **dict.fromkeys(("MINUTE", "MINUTES", "MIN"), 60_000_000),
    **dict.fromkeys(("HOUR", "HOURS", "H"), 3_600_000_000),
    **dict.fromkeys(("DAY", "DAYS", "D"), 86_400_000_000),
    **dict.fromkeys(("WEEK", "WEEKS"), 604_800_000_000),
}
"""Microseconds in each unit of duration."""

CALENDAR_UNITS: dict[str, int] = {
    **dict.fromkeys(("MONTH", "MONTHS"), 1),
    **dict.fromkeys(("QUARTER", "QUARTERS"), 3),
    **dict.fromkeys(("YEAR", "YEARS"), 12),
}
"""Months in each unit of the calendar; how long such a unit is depends on when it begins, so it is of windows alone."""

FREQUENCY_UNITS: dict[str, int] = {"HZ": 1, "KHZ": 1000}
"""Hertz in each unit of frequency."""

LONGEST_US = 2**60
"""Durations beyond this (36,000 years) would leave the 64 bits of a stamp, and the limits of the protocol."""

MOST_DIGITS = 100
"""Most characters of a number, and the largest exponent: the work is bounded before anything is computed."""

NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE](?P<exponent>[+-]?[0-9]+))?")
NO_NUMBER = ("this is no number", "numbers are written 5, 1.5 or 15e-1")


class QuantityError(ValueError):
    """A quantity without a meaning: the reason, and perhaps the intended quantity."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def duration_us(number: str, unit: str | None) -> int:
    """Return a duration in microseconds; without a unit it already is.

    >>> duration_us("1.5", "minutes")
    90000000

    Raises
    ------
    QuantityError
        If the unit does not exist, or the duration is not a positive whole number of microseconds.
    """
    if unit is not None and unit.upper() in CALENDAR_UNITS:
        hint = "write 30 DAYS or 365 DAYS; windows may have calendar months, WINDOW(RANGE 1 MONTH SLIDE 1 MONTH)"
        raise QuantityError(f"{unit!r} has no fixed length", hint)
    if unit is not None and unit.upper() not in DURATION_UNITS:
        readable = ("MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS")
        raise QuantityError(f"{unit!r} is no unit of time", suggest(unit, readable, what="units are"))
    exact = exactly(number) * (DURATION_UNITS[unit.upper()] if unit else 1)
    if exact.denominator != 1:
        raise QuantityError("the duration is not a whole number of microseconds", "the smallest step of time is 1 US")
    if not 0 < exact <= LONGEST_US:
        raise QuantityError("the duration is not positive" if exact <= 0 else "the duration is too long")
    return int(exact)


def distance_us(number: str, unit: str | None) -> int:
    """Return the distance of two instants in microseconds: a duration, zero, or a negative duration.

    >>> distance_us("-50", "ms"), distance_us("0", None)
    (-50000, 0)

    Raises
    ------
    QuantityError
        If the unit does not exist, or the distance is not a whole number of microseconds.
    """
    if exactly(number) == 0:
        return duration_us("1", unit) * 0
    size = duration_us(number.removeprefix("-"), unit)
    return -size if number.startswith("-") else size


def period_us(number: str, unit: str | None) -> int:
    """Return the sample period, in microseconds, of a frequency.

    >>> period_us("10", "hz")
    100000

    Raises
    ------
    QuantityError
        If the unit does not exist, or the period is not a positive whole number of microseconds.
    """
    if unit is None or unit.upper() not in FREQUENCY_UNITS:
        raise QuantityError(
            "a rate needs a unit" if unit is None else f"{unit!r} is no unit of frequency",
            suggest(unit or "", ("HZ", "KHZ"), what="units are"),
        )
    hertz = exactly(number) * FREQUENCY_UNITS[unit.upper()]
    if hertz <= 0:
        raise QuantityError("the rate is not positive")
    period = 1_000_000 / hertz
    if period.denominator != 1:
        raise QuantityError("the period of this rate is not a whole number of microseconds", "write SAMPLE EVERY")
    if period > LONGEST_US:
        raise QuantityError("the rate is too low", "write SAMPLE EVERY")
    return int(period)


def row_count(number: str, unit: str | None) -> int:
    """Return a number of rows.

    Raises
    ------
    QuantityError
        If it has a unit or is not a positive whole number.
    """
    exact = exactly(number)
    if unit is not None:
        raise QuantityError(f"ROWS counts tuples and takes no unit, but has {unit!r}", f"write RANGE {number} {unit}")
    if exact <= 0 or exact.denominator != 1:
        raise QuantityError("the number of rows is not a positive whole number")
    if exact > LONGEST_US:
        raise QuantityError("the number of rows is too large")
    return int(exact)


def exactly(number: str) -> Fraction:
    """Return the exact value of a number, to the last digit.

    >>> exactly("1.50"), exactly("-2e-1")
    (Fraction(3, 2), Fraction(-1, 5))

    Raises
    ------
    QuantityError
        If it is not a number, or has more digits than any use needs.
    """
    found = NUMBER.fullmatch(number)
    if found is None:
        raise QuantityError(*NO_NUMBER)
    if len(number) > MOST_DIGITS:
        raise QuantityError("the number has too many digits")
    exponent = int(found["exponent"] or 0)
    if abs(exponent) > MOST_DIGITS:
        raise QuantityError("the number is too large" if exponent > 0 else "the number is too small")
    return Fraction(number)


def read_real(literal: exp.Literal, context: Context) -> float:
    """Return the real number that a literal stands for; infinity if it is too large for one.

    Raises
    ------
    FjordSqlError
        If it is not a number.
    """
    if NUMBER.fullmatch(literal.this) is None:
        raise context.error(literal, *NO_NUMBER)
    return float(literal.this)


def read_quantity(
    quantity: Quantity, read: Callable[[str, str | None], int], context: Context, *, meant: str = "SECONDS"
) -> int:
    """Return the result of `read` for a quantity.

    Parameters
    ----------
    quantity
        Its syntax.
    read
        One of the functions above.
    context
        For errors and warnings.
    meant
        The unit that is suggested where a duration has none.

    Raises
    ------
    FjordSqlError
        If it has no meaning, or is a duration other than 0 without a unit. In a text that was accepted when units were
        optional, such a duration counts microseconds, with a warning.
    """
    unit = quantity.args.get("unit")
    number: str = quantity.this.this
    try:
        value = read(number, unit.name if unit else None)
    except QuantityError as error:
        at = unit if unit is not None and repr(unit.name) in error.reason else quantity
        raise context.error(at, error.reason, error.hint) from None
    if read in (duration_us, distance_us) and unit is None and value != 0:
        if not context.registered:
            hint = f"write {number} {meant}, or {number} US if microseconds are meant"
            raise context.error(quantity, "a duration needs a unit", hint)
        context.warn(f"{value} without a unit is {value} microseconds")
    return value


def written(duration: int) -> str:
    """Return a duration in microseconds as FjordSQL writes it.

    >>> written(300_000_000), written(1000), written(1_500_000)
    ('5 MINUTES', '1 MILLISECOND', '1500 MILLISECONDS')
    """
    unit, size = max(
        ((unit, size) for unit, size in DURATION_UNITS.items() if f"{unit}S" in DURATION_UNITS and not duration % size),
        key=lambda each: each[1],
    )
    count = duration // size
    return f"{count} {unit}{'' if count == 1 else 'S'}"
