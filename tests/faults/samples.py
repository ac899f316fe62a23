"""Samples of motes, counts of missing samples, and answers."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """One sample of a mote."""

    mote: str
    start_us: int
    speed: float
    flow: float


class MissingSamples(NamedTuple):
    """A proxy's counts for a mote and a pane: samples that were due, and those of them that are missing."""

    mote: str
    end_us: int
    expected: int
    missing: int


class Answer(NamedTuple):
    """A row of a query's answer, without its number."""

    start_us: int
    end_us: int | None
    values: tuple[object, ...]
