"""Shapes of windows that are no plain duration: grids by the calendar, windows that are reset, and sessions.

Lengths of the calendar have no fixed number of microseconds: a day has 23 to 25 hours where clocks change, a month 28
to 31 days. What is computed here are bounds of them, for estimates; the boundaries themselves are computed where the
window runs (cluster/fjord/window_boundaries.py).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

SpanUnit = Literal["us", "day", "week", "month"]
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
_SHORTEST: dict[SpanUnit, int] = {"us": 1, "day": DAY_US, "week": 7 * DAY_US, "month": 28 * DAY_US}
_LONGEST: dict[SpanUnit, int] = {"us": 1, "day": DAY_US, "week": 7 * DAY_US, "month": 31 * DAY_US}
END_OF_TIME_US = 2**62
"""There are no instants from here on, which is in the year 148,108: what would last until then lasts for ever."""
LONGEST_WINDOW_US = 2 * END_OF_TIME_US - 1
"""A window of this size is one without an end, whatever comes into it; it fits 64 bits."""
SHIFT_US = 26 * HOUR_US
"""How far clocks of a place have ever been put forward or back at once, at most: across the date line."""
DEFAULT_LONGEST_US = DAY_US
"""After how long a session is cut for which nothing else is written: a day."""


class Span(msgspec.Struct, frozen=True):
    """A length of time: `count` microseconds, or days, weeks or months of the calendar."""

    unit: SpanUnit
    count: Annotated[int, Meta(ge=1)]

    @property
    def calendar(self) -> bool:
        """True if how long it is depends on when it begins."""
        return self.unit != "us"

    @property
    def usual_us(self) -> int:
        """Microseconds that it has at least, where clocks are not changed."""
        return _SHORTEST[self.unit] * self.count

    @property
    def longest_us(self) -> int:
        """Microseconds that it has at most."""
        return _LONGEST[self.unit] * self.count + (SHIFT_US if self.calendar else 0)

    @property
    def words(self) -> str:
        """The length in words, for plans."""
        return f"{self.count} {self.unit}{'' if self.count == 1 else 's'}"


class Grid(msgspec.Struct, frozen=True):
    """Boundaries on the time axis, and what a window takes of the tuples before one.

    A boundary is `offset_us` behind the beginning of each `step`. Steps of microseconds are counted since 1970. Those
    of the calendar are counted in local time: days since 1970-01-01, weeks since Monday, 1970-01-05, months since
    January 1970. The offset is then one of local time, too: days with an offset of six hours begin when clocks show
    06:00. A local time that clocks skip is the instant at which they skip it, plus what is skipped before; of one that
    they show twice it is the first. Of boundaries at one instant, where clocks skip a whole day, the first counts.

    Parameters
    ----------
    step, offset_us, zone
        Where the boundaries are; the zone is a name of the IANA time zone database.
    size
        The window at a boundary has the tuples of so long before it; None for those since the boundary before it, in
        which case it is not shown at boundaries only.
    """

    step: Span
    offset_us: int = 0
    zone: str = "UTC"
    size: Span | None = None

    @property
    def size_us(self) -> int:
        """How long a tuple can be valid, less a step."""
        length = (self.size or self.step).longest_us
        return length + self.step.longest_us - self.step.usual_us


class Allowed(msgspec.Struct, frozen=True):
    """The sizes that an author allows: from the shortest window to the longest, the coarsest granule to the finest."""

    worst_us: Annotated[int, Meta(ge=1)]
    best_us: Annotated[int, Meta(ge=1)]


class Session(msgspec.Struct, frozen=True):
    """How tuples of a key are divided into sessions.

    A session is a maximal run of tuples, in the order of their stamps, of which each is stamped at most `gap_us` after
    the one before, and less than `longest_us` after the first. It closes `gap_us` after its last tuple, but no later
    than `longest_us` after its first.

    Parameters
    ----------
    gap_us, longest_us
        See above.
    early
        True if a tuple is valid from its stamp until just before its session closes; False if at the instant of the
        closing only.
    """

    gap_us: Annotated[int, Meta(ge=1)]
    longest_us: Annotated[int, Meta(ge=1)]
    early: bool = False
