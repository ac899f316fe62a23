"""Coalesced samples: maximal runs of linked neighbours, and the scan that finds them. Pure.

papers/coalescing.md sections 1.3 and 1.4.

value   81   81   79   81
stamp    1    2    3    4
runs    |---------)              81 [1, 3), the sample of 2 inside
                  |----)         79 [3, 4)
                       |         81 [4, 4): empty until the group's next sample
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cluster.temporal.windows import Key, Link, Values, rank


class Coalesced(NamedTuple):
    """A run: the values of its first sample held from `start` up to `end`, exclusively."""

    group: Key
    values: Values
    start: int
    end: int
    later: tuple[int, ...]
    """Stamps of the run's other samples, ascending."""


class _Open:
    """A run that may still grow."""

    __slots__ = ("first", "last", "later", "start")

    def __init__(self, start: int, values: Values) -> None:
        self.start = start
        self.later: list[int] = []
        self.first = values
        self.last = values

    def closed(self, group: Key, end: int) -> Coalesced:
        return Coalesced(group, self.first, self.start, end, tuple(self.later))


def coalesced(samples: Iterable[tuple[int, Key, Values]], link: Link) -> list[Coalesced]:
    """Return the runs of samples (stamp, group, values), which come in the order of stamps, in canonical order."""
    done: list[Coalesced] = []
    growing: dict[Key, _Open] = {}
    for stamp, group, values in samples:
        run = growing.get(group)
        if run is not None and link(run.last, values):
            run.later.append(stamp)
            run.last = values
            continue
        if run is not None:
            done.append(run.closed(group, stamp))
        growing[group] = _Open(stamp, values)
    done += [run.closed(group, run.later[-1] if run.later else run.start) for group, run in growing.items()]
    return canonical(done)


def canonical(runs: Iterable[Coalesced]) -> list[Coalesced]:
    """Sort by start and group."""
    return sorted(runs, key=lambda run: (run.start, rank(run.group)))
