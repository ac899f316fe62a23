"""Sizes as text: ``64KiB``, ``10 MB``. Inside Fjord they are whole bytes."""

from __future__ import annotations

import math
import re
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
