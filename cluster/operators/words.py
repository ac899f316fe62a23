"""Parts of the lines that describe operators."""

from __future__ import annotations

import re

from cluster.operators.columns import Scalar
from protocols.text.durations import format_duration

_PICTURES = {**{code: 0x2400 + code for code in range(32)}, 0x7F: 0x2421, 0x85: 0x2424, 0x2028: 0x2424, 0x2029: 0x2424}
"""Pictures of control characters in texts: a line feed would otherwise end the operator's line."""

_SIMPLE_NAME = re.compile(r'"([^\W\d]\w*(?:\.[^\W\d]\w*)?)"')


def in_one_line(text: str) -> str:
    """Return a text with pictures in place of control characters."""
    return text.translate(_PICTURES)


def readable(scalar: Scalar) -> str:
    """Return an expression in one line, without the quotes that simple names do not need.

    >>> from cluster.plan.scalar_texts import read_scalar
    >>> from protocols.wire.streams import FieldType
    >>> readable(read_scalar('"speed" > "avg(speed)"', FieldType.BOOLEAN))
    'speed > "avg(speed)"'
    """
    pieces = re.split(r"('(?:[^']|'')*')", in_one_line(scalar.sql))
    return "".join(piece if piece.startswith("'") else _SIMPLE_NAME.sub(r"\1", piece) for piece in pieces)


def listed(names: tuple[str, ...]) -> str:
    """Return names as a list."""
    return ", ".join(names)


def pairs_listed(keys: tuple[tuple[str, str], ...]) -> str:
    """Return the equalities of a join, if there are any."""
    return f" on {listed(tuple(f'{one} = {other}' for one, other in keys))}" if keys else ""


def tuples_counted(count: int) -> str:
    """Return a number of tuples behind "the last"."""
    return "tuple" if count == 1 else f"{count} tuples"


def signed(distance_us: int) -> str:
    """Return a distance in time that may be negative."""
    return f"{'-' if distance_us < 0 else ''}{format_duration(abs(distance_us))}" if distance_us else "0s"
