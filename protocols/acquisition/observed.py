"""Statistics of a stream's latest values: how many samples would pass bands and dead bands."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from protocols.acquisition.needs import Bands, Intervals

REMEMBERED = 2_048
STEPS = 32
"""Steps between a share and its half; shares are rounded to one of them, rare ones as precisely as others."""
LEAST_SHARE = 1 / 256
"""The least share: values that have not come lately may still come."""
UNKNOWN_KEPT = 0.5
"""The share of samples in a band that is assumed before any sample."""


@dataclass(slots=True)
class FieldValues:
    """The latest values of a field, and how much each differed from the previous one of its sensor."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    pairs: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Each value and the previous one."""


@dataclass(slots=True)
class Observed:
    """Values observed on a stream, of all its sensors together."""

    fields: dict[str, FieldValues] = field(default_factory=dict)
    spacing_us: int = 0
    """Time between a value and the previous one; 0 for unknown."""
    vehicles_per_second: float = 1.0
    loss: float = 0.0
    seen: int = 0
    """How many values were recorded, forgotten ones among them."""

    def copy(self) -> Observed:
        """Return the same statistics, which stay as they are when more values are seen."""
        fields = {
            name: FieldValues(each.values.copy(), each.changes.copy(), each.pairs.copy())
            for name, each in self.fields.items()
        }
        return replace(self, fields=fields)

    def see(self, name: str, value: float, before: float | None = None) -> None:
        """Record a sampled value, and the previous one."""
        seen = self.fields.get(name)
        if seen is None:
            seen = self.fields[name] = FieldValues()
        if math.isfinite(value):
            self.seen += 1
            seen.values.append(value)
            if before is not None:
                seen.changes.append(abs(value - before))
                seen.pairs.append((value, before))

    def kept_share(self, bands: Bands) -> float:
        """Return the share of samples in bands; different fields are assumed to be independent."""
        share = 1.0
        for name, intervals in bands:
            seen = self.fields.get(name)
            if seen is None or not seen.values:
                share *= UNKNOWN_KEPT
                continue
            begins = [low for low, _ in intervals]
            inside = sum(_inside(value, intervals, begins) for value in seen.values)
            share *= inside / len(seen.values)
        return _rounded(share)

    def following_share(self, bands: Bands, period_us: int) -> float:
        """Return the probability that a sample in bands is followed by another: such values come in runs."""
        share = 1.0
        for name, intervals in bands:
            seen = self.fields.get(name)
            pairs = () if seen is None else tuple(seen.pairs)
            begins = [low for low, _ in intervals]
            before = [value for value, earlier in pairs if _inside(earlier, intervals, begins)]
            if not before:
                return 0.0
            share *= sum(_inside(value, intervals, begins) for value in before) / len(before)
        apart = period_us / self.spacing_us if self.spacing_us else 1.0
        return min(_rounded(float(share**apart)), 1 - LEAST_SHARE) if bands else 0.0

    def changed_share(self, widths: Iterable[tuple[str, float]]) -> float:
        """Return the share of samples in which a field has left its dead band since the previous one."""
        unchanged = 1.0
        for name, width in widths:
            seen = self.fields.get(name)
            if seen is None or not seen.changes:
                return 1.0
            unchanged *= sum(change <= width for change in seen.changes) / len(seen.changes)
        return _rounded(1 - unchanged)


def _inside(value: float, intervals: Intervals, begins: Sequence[float]) -> bool:
    """Return whether a value lies in one of the intervals; `begins` are their beginnings."""
    place = bisect_right(begins, value) - 1
    return place >= 0 and value <= intervals[place][1]


def _rounded(share: float) -> float:
    if share <= LEAST_SHARE:
        return LEAST_SHARE
    step = 2.0 ** math.floor(math.log2(share)) / STEPS
    return round(share / step) * step
