"""The cheapest program of few needs or groups of needs: of all ways to divide them among parts, and all kinds of parts.

Divisions are built part by part, and left as soon as they cost more than what has been found; what remains is priced,
the most promising first, until nothing can be cheaper (branch and bound).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from protocols.acquisition.least_cost import LeastCost
from protocols.acquisition.needs import Need
from protocols.acquisition.part_costs import PartCost
from protocols.acquisition.parts import sends_samples
from protocols.acquisition.pricing import Candidate, Pricing, includes
from protocols.wire.programs import Part, SendOnChange

ENOUGH = 0.995
"""What is cheaper by less need not be found."""
MOST_PRICED = 512
"""So many of the most promising ones; that there are more is rare."""


Group = tuple[Need, ...]
"""Needs that one part answers."""
Arrangement = dict[Group, Part]
"""Which part answers which needs."""


class Exhaustive:
    """All programs of a few groups of needs; parts are numbers here, sets of parts and of groups bits of a number.

    Parameters
    ----------
    groups
        Few; each is of needs that stay together.
    beside
        Other needs that have their parts already.
    pricing, least
        What programs cost, and what they cost at least.
    choices_of
        The parts that answer needs.
    most_parts
        A program may have.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        beside: Arrangement,
        *,
        pricing: Pricing,
        least: LeastCost,
        choices_of: Callable[[Group], Sequence[Part]],
        most_parts: int,
    ) -> None:
        self._groups = groups
        self._beside = beside
        self._needs = tuple(need for group in (*groups, *beside) for need in group)
        self._pricing = pricing
        self._least = least
        self._most_parts = most_parts
        self._patience_us = min(need.patience_us for need in self._needs)
        numbers: dict[Part, int] = {}
        for part in beside.values():
            numbers.setdefault(part, len(numbers))
        self._fixed = len(numbers)
        self._choices: dict[int, tuple[int, ...]] = {}
        for joined in range(1, 1 << len(groups)):
            self._choices[joined] = tuple(
                dict.fromkeys(numbers.setdefault(part, len(numbers)) for part in choices_of(self._needs_of(joined)))
            )
        self._parts = list(numbers)
        self._costs = [least.part(part) for part in self._parts]
        samples = [number for number, part in enumerate(self._parts) if part.report is None]
        self._covering = [0] * len(self._parts)
        """Of each part those that send all it sends."""
        for one in samples:
            self._covering[one] = sum(
                1 << other for other in samples if other != one and includes(self._parts[other], self._parts[one])
            )
        self._senders = sum(1 << number for number, part in enumerate(self._parts) if sends_samples(part))
        self._changing = sum(
            1 << number for number, part in enumerate(self._parts) if isinstance(part.report, SendOnChange)
        )
        self._most_mw = 0.0
        self._chosen: list[tuple[int, int]] = []
        self._found: dict[int, tuple[float, tuple[tuple[int, int], ...]]] = {}

    def cheapest(self, best: Candidate) -> tuple[Candidate, Arrangement | None]:
        """Return the cheapest program and how it answers the needs; `best` and None if none is cheaper."""
        self._most_mw = best.milliwatts * ENOUGH
        fixed = (1 << self._fixed) - 1
        self._divide((1 << len(self._groups)) - 1, fixed, self._costs[: self._fixed])
        arrangement: Arrangement | None = None
        for parts, (bound, chosen) in heapq.nsmallest(MOST_PRICED, self._found.items(), key=lambda each: each[1][0]):
            if bound >= best.milliwatts * ENOUGH or self._pricing.effort.exhausted:
                break
            found = self._pricing.candidate([self._parts[number] for number in _members(parts)], self._needs)
            if found.milliwatts < best.milliwatts:
                best = found
                arrangement = self._beside | {self._needs_of(joined): self._parts[number] for joined, number in chosen}
        return best, arrangement

    def _needs_of(self, joined: int) -> Group:
        return tuple(need for place, group in enumerate(self._groups) if joined >> place & 1 for need in group)

    def _divide(self, left: int, parts: int, costs: list[PartCost]) -> None:
        """Go on with some groups left, and the parts that answer the others."""
        if not left:
            self._take(parts)
            return
        self._pricing.effort.spend()
        if len(costs) == self._most_parts or self._pricing.effort.exhausted:
            return
        first = left & -left
        others = left ^ first
        group = others
        while True:
            for number in self._choices[first | group]:
                chosen = parts | 1 << number
                if not self._goes_together(chosen):
                    continue
                more = costs if parts >> number & 1 else [*costs, self._costs[number]]
                if self._least.with_more(more) < self._most_mw:
                    self._chosen.append((first | group, number))
                    self._divide(others ^ group, chosen, more)
                    self._chosen.pop()
            if not group:
                break
            group = (group - 1) & others

    def _take(self, parts: int) -> None:
        kept = sum(1 << number for number in _members(parts) if not self._covering[number] & parts)
        if kept not in self._found:
            bound = self._least.milliwatts([self._costs[number] for number in _members(kept)], self._patience_us)
            self._found[kept] = bound, tuple(self._chosen)

    def _goes_together(self, parts: int) -> bool:
        return not parts & self._changing or (parts & self._senders).bit_count() <= 1


def _members(parts: int) -> list[int]:
    found = []
    while parts:
        found.append((parts & -parts).bit_length() - 1)
        parts &= parts - 1
    return found
