"""What all parts handle: samples of motes, and what a proxy says is missing."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """One sample of a mote."""

    mote: str
    start_us: int
    speed: float
    flow: float


class Told(NamedTuple):
    """What a proxy says of a mote and a pane: how many samples were due, and how many of them are missing."""

    mote: str
    end_us: int
    expected: int
    missing: int


class Answer(NamedTuple):
    """A row of a query's answer, without its number."""

    start_us: int
    end_us: int | None
    values: tuple[object, ...]
