"""The cheapest program of few needs: of all ways to divide them among parts, and all kinds of parts.

Divisions are built part by part, and left as soon as they cost more than what has been found; what remains is priced,
the most promising first, until nothing can be cheaper (branch and bound).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from protocols.acquisition.least_cost import LeastCost, PartCost
from protocols.acquisition.needs import Need
from protocols.acquisition.parts import sends_samples
from protocols.acquisition.pricing import Candidate, Pricing, includes
from protocols.programs import Part, SendOnChange

ENOUGH = 0.995
"""What is cheaper by less need not be found."""
MOST_PRICED = 512
"""So many of the most promising ones; that there are more is rare."""


class Exhaustive:
    """All programs of a few needs; parts are numbers here, sets of parts and of needs bits of a number.

    Parameters
    ----------
    needs
        Few.
    pricing, least
        What programs cost, and what they cost at least.
    choices_of
        The parts that answer a group of needs.
    most_parts
        A program may have.
    """

    def __init__(
        self,
        needs: Sequence[Need],
        pricing: Pricing,
        least: LeastCost,
        choices_of: Callable[[tuple[Need, ...]], Sequence[Part]],
        most_parts: int,
    ) -> None:
        self._needs = needs
        self._pricing = pricing
        self._least = least
        self._most_parts = most_parts
        self._patience_us = min(need.patience_us for need in needs)
        numbers: dict[Part, int] = {}
        self._choices: dict[int, tuple[int, ...]] = {}
        for group in range(1, 1 << len(needs)):
            members = tuple(need for place, need in enumerate(needs) if group >> place & 1)
            self._choices[group] = tuple(
                dict.fromkeys(numbers.setdefault(part, len(numbers)) for part in choices_of(members))
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
        self._found: dict[int, float] = {}

    def cheapest(self, best: Candidate) -> Candidate:
        """Return the cheapest program; `best` if there is none that is cheaper than this one."""
        self._most_mw = best.milliwatts * ENOUGH
        self._divide((1 << len(self._needs)) - 1, 0, [])
        for parts, bound in heapq.nsmallest(MOST_PRICED, self._found.items(), key=lambda each: each[1]):
            if bound >= best.milliwatts * ENOUGH:
                break
            found = self._pricing.candidate([self._parts[number] for number in _members(parts)], self._needs)
            if found.milliwatts < best.milliwatts:
                best = found
        return best

    def _divide(self, left: int, parts: int, costs: list[PartCost]) -> None:
        """Go on with some needs left, and the parts that answer the others."""
        if not left:
            self._take(parts)
            return
        if len(costs) == self._most_parts:
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
                if self._least.milliwatts(more) < self._most_mw:
                    self._divide(others ^ group, chosen, more)
            if not group:
                break
            group = (group - 1) & others

    def _take(self, parts: int) -> None:
        kept = sum(1 << number for number in _members(parts) if not self._covering[number] & parts)
        if kept not in self._found:
            bound = self._least.milliwatts([self._costs[number] for number in _members(kept)], self._patience_us)
            self._found[kept] = bound

    def _goes_together(self, parts: int) -> bool:
        return not parts & self._changing or (parts & self._senders).bit_count() <= 1


def _members(parts: int) -> list[int]:
    found = []
    while parts:
        found.append((parts & -parts).bit_length() - 1)
        parts &= parts - 1
    return found
