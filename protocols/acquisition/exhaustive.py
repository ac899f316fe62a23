"""The cheapest program of few needs or groups of needs, among all divisions into reports of all kinds.

Divisions are built report by report, and abandoned when they cost more than the best that has been found; the remaining
ones are priced, the most promising first, until none can be cheaper (branch and bound).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from protocols.acquisition.least_cost import LeastCost, ReportCost
from protocols.acquisition.needs import Need
from protocols.acquisition.pricing import Candidate, Pricing, includes
from protocols.acquisition.program_reports import sends_samples
from protocols.wire.programs import ProgramReport, SendOnChange

ENOUGH = 0.995
"""A program that is cheaper by less need not be found."""
MOST_PRICED = 512
"""The most promising programs that are priced; there are rarely more."""


Group = tuple[Need, ...]
"""Needs that one report answers."""
Arrangement = dict[Group, ProgramReport]
"""Which report answers which needs."""


class Exhaustive:
    """All programs of a few groups of needs; reports are numbers here, sets of reports and of groups bits of a number.

    Parameters
    ----------
    groups
        A few groups of needs that stay together.
    beside
        Other needs, whose reports are fixed.
    pricing, least
        Costs of programs, and their lower bounds.
    choices_of
        Returns the reports that can answer some needs.
    most_reports
        The most reports that a program may have.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        beside: Arrangement,
        *,
        pricing: Pricing,
        least: LeastCost,
        choices_of: Callable[[Group], Sequence[ProgramReport]],
        most_reports: int,
    ) -> None:
        self._groups = groups
        self._beside = beside
        self._needs = tuple(need for group in (*groups, *beside) for need in group)
        self._pricing = pricing
        self._least = least
        self._most_reports = most_reports
        self._patience_us = min(need.patience_us for need in self._needs)
        numbers: dict[ProgramReport, int] = {}
        for report in beside.values():
            numbers.setdefault(report, len(numbers))
        self._fixed = len(numbers)
        self._choices: dict[int, tuple[int, ...]] = {}
        for joined in range(1, 1 << len(groups)):
            self._choices[joined] = tuple(
                dict.fromkeys(numbers.setdefault(report, len(numbers)) for report in choices_of(self._needs_of(joined)))
            )
        self._reports = list(numbers)
        self._costs = [least.report(report) for report in self._reports]
        samples = [number for number, report in enumerate(self._reports) if report.kind is None]
        self._covering = [0] * len(self._reports)
        """By report: the reports that send all its samples."""
        for one in samples:
            self._covering[one] = sum(
                1 << other for other in samples if other != one and includes(self._reports[other], self._reports[one])
            )
        self._senders = sum(1 << number for number, report in enumerate(self._reports) if sends_samples(report))
        self._changing = sum(
            1 << number for number, report in enumerate(self._reports) if isinstance(report.kind, SendOnChange)
        )
        self._most_mw = 0.0
        self._chosen: list[tuple[int, int]] = []
        self._found: dict[int, tuple[float, tuple[tuple[int, int], ...]]] = {}
        self._divided: set[tuple[int, int]] = set()
        """Groups left and reports chosen that have been continued: many divisions of other groups lead to the same."""
        self._bounds: dict[int, float] = {}
        """By reports: a lower bound of the draw of programs with them and perhaps others."""

    def cheapest(self, best: Candidate) -> tuple[Candidate, Arrangement | None]:
        """Return the cheapest program and which report answers which needs; `best` and None if none is cheaper."""
        self._most_mw = best.milliwatts * ENOUGH
        self._divided.clear()
        fixed = (1 << self._fixed) - 1
        self._divide((1 << len(self._groups)) - 1, fixed, self._costs[: self._fixed])
        arrangement: Arrangement | None = None
        for reports, (bound, chosen) in heapq.nsmallest(MOST_PRICED, self._found.items(), key=lambda each: each[1][0]):
            if bound >= best.milliwatts * ENOUGH or self._pricing.effort.exhausted:
                break
            found = self._pricing.candidate([self._reports[number] for number in _members(reports)], self._needs)
            if found.milliwatts < best.milliwatts:
                best = found
                arrangement = self._beside | {
                    self._needs_of(joined): self._reports[number] for joined, number in chosen
                }
        return best, arrangement

    def _needs_of(self, joined: int) -> Group:
        return tuple(need for place, group in enumerate(self._groups) if joined >> place & 1 for need in group)

    def _divide(self, left: int, reports: int, costs: list[ReportCost]) -> None:
        """Continue with the groups that are left, given the reports that answer the others."""
        if (left, reports) in self._divided:
            return
        self._divided.add((left, reports))
        if not left:
            self._take(reports)
            return
        self._pricing.effort.spend()
        if len(costs) == self._most_reports or self._pricing.effort.exhausted:
            return
        first = left & -left
        others = left ^ first
        group = others
        while True:
            for number in self._choices[first | group]:
                chosen = reports | 1 << number
                if not self._goes_together(chosen):
                    continue
                more = costs if reports >> number & 1 else [*costs, self._costs[number]]
                bound = self._bounds.get(chosen)
                if bound is None:
                    bound = self._bounds[chosen] = self._least.with_more(more)
                if bound < self._most_mw:
                    self._chosen.append((first | group, number))
                    self._divide(others ^ group, chosen, more)
                    self._chosen.pop()
            if not group:
                break
            group = (group - 1) & others

    def _take(self, reports: int) -> None:
        kept = sum(1 << number for number in _members(reports) if not self._covering[number] & reports)
        if kept not in self._found:
            bound = self._least.milliwatts([self._costs[number] for number in _members(kept)], self._patience_us)
            self._found[kept] = bound, tuple(self._chosen)

    def _goes_together(self, reports: int) -> bool:
        return not reports & self._changing or (reports & self._senders).bit_count() <= 1


def _members(reports: int) -> list[int]:
    found = []
    while reports:
        found.append((reports & -reports).bit_length() - 1)
        reports &= reports - 1
    return found
