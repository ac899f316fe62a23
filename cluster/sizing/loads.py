"""The loads of ``fjord bench``: how many motes and queries, and which queries."""

from __future__ import annotations

import re

import msgspec

from cluster.errors import ClusterError
from protocols.errors import FjordError
from protocols.text.quantities import format_duration, parse_duration_us

MOST_MOTES, MOST_QUERIES = 100_000, 10_000
EVERY_SAMPLE = "SELECT sensor, speed FROM traffic"
SECOND_US = 1_000_000
_LOAD = re.compile(r"(?P<motes>\d+)x(?P<queries>\d+)(?:@(?P<period>[^!]+))?(?P<every>!)?")


class LoadError(ClusterError):
    """A load cannot be read."""


class Load(msgspec.Struct, frozen=True):
    """What a deployment has to do.

    Parameters
    ----------
    motes
        How many sample.
    queries
        How many run; see :func:`query_texts`.
    period_us
        How often each mote samples.
    every_sample
        Whether one query answers every sample; otherwise answers are few beside samples.
    """

    motes: int
    queries: int
    period_us: int = SECOND_US
    every_sample: bool = False

    @property
    def text(self) -> str:
        """The load as :func:`parse_load` reads it."""
        period = "" if self.period_us == SECOND_US else f"@{format_duration(self.period_us)}"
        return f"{self.motes}x{self.queries}{period}{'!' if self.every_sample else ''}"


DEFAULT_LOADS = (
    Load(64, 3),
    Load(300, 3),
    Load(300, 100),
    Load(1_000, 3, every_sample=True),
    Load(1_000, 100),
    Load(1_000, 100, 250_000, every_sample=True),
    Load(4_000, 100, 250_000, every_sample=True),
)


def parse_load(text: str) -> Load:
    """Return a load written as MOTESxQUERIES, with an optional period and ``!`` for a query that answers every sample.

    Parameters
    ----------
    text
        Such as ``300x100`` or ``1000x10@250ms!``.

    Raises
    ------
    LoadError
        If it is none.

    Examples
    --------
    >>> parse_load("1000x10@250ms!")
    Load(motes=1000, queries=10, period_us=250000, every_sample=True)
    """
    found = _LOAD.fullmatch(text.strip())
    if found is None:
        raise LoadError(f"{text!r} is no load", hint="write MOTESxQUERIES, such as 300x100 or 1000x10@250ms!")
    motes, queries = int(found["motes"]), int(found["queries"])
    if not (1 <= motes <= MOST_MOTES and 1 <= queries <= MOST_QUERIES):
        raise LoadError(
            f"{text!r}: {motes:,} motes and {queries:,} queries",
            hint=f"at least one of each, at most {MOST_MOTES:,} motes and {MOST_QUERIES:,} queries",
        )
    try:
        period_us = parse_duration_us(found["period"] or "1s")
    except FjordError as error:
        raise LoadError(f"{text!r}: {error.message}", hint=error.hint) from error
    if not 1_000 <= period_us <= 60_000_000:  # noqa: PLR2004 - what a run of some seconds can show
        raise LoadError(f"{text!r}: a period of {format_duration(period_us)}", hint="between 1ms and 1m")
    return Load(motes, queries, period_us, bool(found["every"]))


def query_texts(load: Load) -> list[str]:
    """Return the queries of a load: filters, averages over sliding windows, and counts, in turn."""
    first = [EVERY_SAMPLE] if load.every_sample else []
    return [*first, *mixture(load.queries - len(first))]


FILTER = "SELECT sensor, speed FROM traffic WHERE speed < {limit} AND lane = {lane}"
AVERAGE = (
    "SELECT segment, AVG(speed) AS mph, COUNT(*) AS samples FROM traffic "
    "WINDOW(RANGE {size} SECONDS SLIDE 10 SECONDS) WHERE lane = {lane} GROUP BY segment"
)
SLOW = (
    "SELECT COUNT(DISTINCT sensor) AS slow FROM traffic WINDOW(RANGE 30 SECONDS SLIDE 30 SECONDS) WHERE speed < {limit}"
)


def mixture(count: int) -> list[str]:
    """Return so many queries: filters, sliding averages and distinct counts in turn; some ask what others ask."""
    return [_mixed(number % 3, number // 3) for number in range(count)]


def _mixed(kind: int, number: int) -> str:
    lane = 1 + number % 4
    match kind:
        case 0:
            return FILTER.format(limit=10 + number % 20, lane=lane)
        case 1:
            return AVERAGE.format(size=10 + number % 5 * 10, lane=lane)
        case _:
            return SLOW.format(limit=20 + number * 3 % 100)
