"""How many tuples of a window an extent keeps (``KEEP 10000 TUPLES``), as plain data."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class KeptTuples(msgspec.Struct, frozen=True):
    """What :class:`cluster.language.algebra.KeptExtent` keeps, and what it is made of.

    Parameters
    ----------
    most
        How many tuples it keeps, of all keys together.
    keys
        Columns by which tuples are grouped.
    run, number
        Columns with the number of a tuple's run among those of its key, and of the tuple itself.
    bounds, quality
        Names of the columns that rows have in place of these two: begin and end of the interval, and the share of the
        exact row that is left.
    size_us, slide_us
        Of a window by time.
    rows, slide_rows
        Of a window by count: the last `rows` tuples; None for a window by time.
    apart
        Columns of which each combination of values has an extent of its own.
    """

    most: Annotated[int, Meta(ge=1)]
    keys: tuple[str, ...]
    run: str
    number: str
    bounds: tuple[str, str]
    quality: str
    size_us: Annotated[int, Meta(ge=1)] = 1
    slide_us: Annotated[int, Meta(ge=1)] = 1
    rows: Annotated[int, Meta(ge=1)] | None = None
    slide_rows: Annotated[int, Meta(ge=1)] = 1
    apart: tuple[str, ...] = ()

    @property
    def longest_us(self) -> int | None:
        """How long a tuple is in a window by time, at most; None for a window by count."""
        return self.size_us + self.slide_us if self.rows is None else None

    @property
    def in_steps(self) -> bool:
        """Whether all rows are shown anew at each border of a window by time."""
        return self.rows is None and self.slide_us > 1
