"""Durations and sizes as text: ``1m30s``, ``64KiB``. Inside Fjord they are whole microseconds and bytes."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from protocols.errors import FjordError

_BYTES_PER_UNIT: Final = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
LARGEST_SIZE: Final = 2**63 - 1
"""Sizes are int64 everywhere."""
MOST_DIGITS: Final = 20
_LARGER: Final = 1.01
_SIZE: Final = re.compile(r"\s*(?P<number>[0-9]+)\s*(?P<unit>[a-z]+)\s*", re.ASCII | re.IGNORECASE)


class ByteSizeError(FjordError, ValueError):
    """A text that is not a size."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text!r} is not a size",
            hint="write a whole number with a unit (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB): 64KiB",
        )
        self.text = text


def parse_byte_size(text: str) -> int:
    """Return the bytes of a written size; KB is 1000 bytes, KiB 1024.

    Raises
    ------
    ByteSizeError
        No whole number, no unit, or an unknown one; or more than int64 holds.

    Examples
    --------
    >>> parse_byte_size("64KiB")
    65536
    """
    size = _SIZE.fullmatch(text)
    if size is None or size["unit"].lower() not in _BYTES_PER_UNIT:
        raise ByteSizeError(text)
    number = size["number"].lstrip("0") or "0"
    found = int(number) * _BYTES_PER_UNIT[size["unit"].lower()] if len(number) <= MOST_DIGITS else LARGEST_SIZE + 1
    if found > LARGEST_SIZE:
        raise ByteSizeError(text)
    return found


def format_byte_size(amount: float) -> str:
    """Return a size as text.

    Examples
    --------
    >>> format_byte_size(337.6 * 1024**2)
    '337.6 MiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:  # noqa: PLR2004 - the units are binary
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


def byte_size_of_at_least(amount: float) -> str:
    """Return a size that :func:`parse_byte_size` reads, and that is at most a hundredth larger than an amount.

    Examples
    --------
    >>> byte_size_of_at_least(337.6 * 1024**2)
    '338MiB'
    >>> byte_size_of_at_least(1.06 * 1024**3)
    '1086MiB'
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        size = _BYTES_PER_UNIT[unit.lower()]
        number = math.ceil(amount / size)
        if number * size <= amount * _LARGER:
            return f"{number}{unit}"
    return f"{math.ceil(amount)}B"


def exact_byte_size(size: int) -> str:
    """Return a size that :func:`parse_byte_size` reads as the same.

    Examples
    --------
    >>> exact_byte_size(4 * 1024**3), exact_byte_size(1500)
    ('4GiB', '1500B')
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        number, rest = divmod(size, _BYTES_PER_UNIT[unit.lower()])
        if number and not rest:
            return f"{number}{unit}"
    return f"{size}B"


ACCEPTED_FORMS: Final = "a number with a unit (us, ms, s, m, h, d, or in words): 30s, 250ms, 5 minutes, 1m30s"
"""The texts that :func:`parse_duration_us` accepts, for help texts."""

LARGEST_DURATION_US: Final = 2**63 - 1
"""Durations are int64 microseconds everywhere."""

LONGEST_PAUSE_US: Final = 3_600_000_000
"""The longest pause between two batches, commits or micro-batches: rows not stored yet are kept meanwhile."""
LONGEST_OPTION_US: Final = 366 * 86_400_000_000
"""The longest duration of most options and settings: clocks and timers can add to it without overflow."""

_US_PER_UNIT: Final = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_UNIT_OF_WORD: Final = {
    word: unit
    for unit, words in {
        "d": "d day days",
        "h": "h hr hrs hour hours",
        "m": "m min mins minute minutes",
        "s": "s sec secs second seconds",
        "ms": "ms msec msecs millisecond milliseconds",
        "us": "us µs μs usec usecs microsecond microseconds",
    }.items()
    for word in words.split()
}
_TERM: Final = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<word>[a-zµμ]+)\s*", re.ASCII | re.IGNORECASE)


class DurationError(FjordError, ValueError):
    """A text that is not a duration, or a duration that does not fit."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{text!r} is not a duration: {reason}", hint=f"write {ACCEPTED_FORMS}")
        self.text = text
        self.reason = reason


def parse_duration_us(text: str) -> int:
    """Return the microseconds of a written duration.

    Units go from the largest to the smallest, each at most once; upper and lower case mean the same.

    Raises
    ------
    DurationError
        No unit, an unknown one, a wrong order, a fraction of a microsecond, or more than int64 holds.

    Examples
    --------
    >>> parse_duration_us("1m30s"), parse_duration_us("5 MINUTES"), parse_duration_us("0.25 s")
    (90000000, 300000000, 250000)
    """
    total_us = Decimal(0)
    smallest_unit_us = LARGEST_DURATION_US
    position = 0
    while position < len(text) or position == 0:
        term = _TERM.match(text, position)
        if term is None:
            raise DurationError(text, _reason(text[position:].strip()))
        unit = _UNIT_OF_WORD.get(term["word"].lower())
        if unit is None:
            raise DurationError(text, f"unknown unit {term['word']!r}")
        if _US_PER_UNIT[unit] >= smallest_unit_us:
            raise DurationError(text, "units must go from the largest to the smallest, each once")
        smallest_unit_us = _US_PER_UNIT[unit]
        total_us += Decimal(term["number"]) * smallest_unit_us
        position = term.end()
    if total_us > LARGEST_DURATION_US:
        raise DurationError(text, "too long")
    if total_us != int(total_us):
        raise DurationError(text, "finer than a microsecond")
    return int(total_us)


def parse_duration_between(text: str, least_us: int, most_us: int) -> int:
    """Return the microseconds of a written duration that has a least and a greatest length.

    Raises
    ------
    DurationError
        If it is no duration, or too short or too long.
    """
    found = parse_duration_us(text)
    if found < least_us:
        raise DurationError(text, f"it must be at least {format_duration(least_us)}")
    if found > most_us:
        raise DurationError(text, f"it must be at most {format_duration(most_us)}")
    return found


def format_duration(duration_us: int) -> str:
    """Write a duration so that :func:`parse_duration_us` gives it back.

    Examples
    --------
    >>> format_duration(90_000_000), format_duration(250_000), format_duration(0)
    ('1m30s', '250ms', '0s')
    """
    if duration_us < 0:
        return f"-{format_duration(-duration_us)}"
    terms = []
    rest_us = duration_us
    for unit, unit_us in _US_PER_UNIT.items():
        count, rest_us = divmod(rest_us, unit_us)
        if count:
            terms.append(f"{count}{unit}")
    return "".join(terms) or "0s"


def _reason(rest: str) -> str:
    if not rest:
        return "it is empty"
    if re.fullmatch(r"[0-9.]+", rest):
        return f"{rest!r} has no unit"
    return f"cannot read {rest!r}"
