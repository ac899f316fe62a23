"""Sample periods longer than demanded, as far as queries allow, so that a battery lasts as long as it should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from protocols.acquisition.effort import Effort
from protocols.acquisition.needs import Need
from protocols.acquisition.pricing import Candidate
from protocols.acquisition.search import Search
from protocols.acquisition.sensor_traits import SensorTraits

LONGEST_STRETCH = 1_024
"""The largest factor by which a sample period is stretched to save a battery."""


def lasting(
    search: Search, needs: Sequence[Need], traits: SensorTraits, wanted_days: float
) -> tuple[Candidate, int, bool]:
    """Return the cheapest program with which the battery lasts, with periods stretched as little as possible.

    Periods are never longer than a query states as its slowest, and never shorter than demanded.
    """
    best = search.cheapest(needs)
    if traits.days(best.milliwatts) >= wanted_days:
        return best, 1, True
    before, stretched = tuple(needs), 1
    for factor in _stretches(search.effort):
        longer = tuple(stretched_need(need, factor) for need in needs)
        if all(need.slowest_us < need.period_us * factor for need in needs):
            break
        if longer == before:
            continue
        found = search.cheapest(longer)
        if found.milliwatts < best.milliwatts:
            best, stretched = found, factor
        if traits.days(best.milliwatts) >= wanted_days:
            return best, stretched, True
        before = longer
    return best, stretched, False


def stretched_need(need: Need, factor: int) -> Need:
    """Return a need with its period stretched by `factor`, or by as much as it allows."""
    allowed = max(1, min(factor, need.slowest_us // need.period_us if need.slowest_us else 1))
    if allowed == 1:
        return need
    period_us = need.period_us * allowed
    return replace(need, period_us=period_us, patience_us=max(need.patience_us, period_us))


def _stretches(effort: Effort) -> Iterator[int]:
    """Yield ascending factors for periods: one by one, and in larger steps when effort runs out."""
    factor = 2
    while factor <= LONGEST_STRETCH:
        yield factor
        factor += factor // 4 + 1 if effort.exhausted else 1
