"""What coalescing means, by brute force: every arrival is looked at from all samples that ever came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.temporal.windows import CountWindow, Link, Window
from tests.cluster.temporal.runs import Coalesced

Sample = tuple[int, tuple[Any, ...], tuple[Any, ...]]
"""Stamp, group, values."""


def live_samples(arrivals: Sequence[Sample], window: Window) -> list[Sample]:
    """All samples that belong to the window after these arrivals: the first of those of one stamp and group."""
    first: dict[tuple[int, Any], Sample] = {}
    for each in arrivals:
        first.setdefault((each[0], each[1]), each)
    ordered = sorted(first.values(), key=lambda each: (each[0], [(part is None, part) for part in each[1]]))
    if isinstance(window, CountWindow):
        return ordered[-window.samples :]
    newest = max(each[0] for each in arrivals) if arrivals else 0
    return [each for each in ordered if each[0] >= newest - window.length_us]


def verdict(arrivals: Sequence[Sample], window: Window) -> str:
    """What becomes of the last arrival."""
    *before, sample = arrivals
    if any(each[:2] == sample[:2] for each in live_samples(before, window)):
        return "DUPLICATE"
    return "ACCEPTED" if sample in live_samples(arrivals, window) else "LATE"


def coalesced_by_definition(samples: Sequence[Sample], link: Link) -> list[Coalesced]:
    """Every pair of neighbours of a group is linked or not; runs are what lies between those that are not."""
    found: list[Coalesced] = []
    for group in {each[1] for each in samples}:
        own = sorted(((each[0], each[2]) for each in samples if each[1] == group), key=lambda each: each[0])
        cuts = [place for place in range(1, len(own)) if not link(own[place - 1][1], own[place][1])]
        for begin, end in zip([0, *cuts], [*cuts, len(own)], strict=True):
            stamps = [stamp for stamp, _ in own[begin:end]]
            closes = own[end][0] if end < len(own) else stamps[-1]
            found.append(Coalesced(group, own[begin][1], stamps[0], closes, tuple(stamps[1:])))
    return sorted(found, key=lambda run: (run.start, [(part is None, part) for part in run.group]))
