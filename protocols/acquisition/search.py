"""The cheapest sampling program that answers every need of a sensor, or lasts as long as its battery should.

A program's reports divide the needs among them; each report is one of a few kinds. With few needs all
divisions are tried; with many, groups are merged and split as long as that saves joules, and then all divisions of a
few of them are tried while the others stay together.

**The searches for programs of a stream's sensors, kept from one change of demand to the next.**

A search remembers what it has found and priced, so that one more demand costs what is new about it. What it remembers
holds for the values observed when it began.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from threading import Lock

from protocols.acquisition.effort import Effort
from protocols.acquisition.exhaustive import Arrangement, Exhaustive, Group
from protocols.acquisition.least_cost import LeastCost
from protocols.acquisition.needs import Need, NeedKind, answers
from protocols.acquisition.observed import Observed
from protocols.acquisition.pricing import Candidate, Pricing, Sensor, goes_together
from protocols.acquisition.program_reports import (
    Abilities,
    ProgramStyle,
    SensorTraits,
    allow_changes,
    changes_report,
    event_reports,
    pane_reports,
    reports_in,
    sampling_report,
)
from protocols.power.estimate import Workload, draw_mw
from protocols.wire.programs import MOST_REPORTS, ProgramReport, SamplingProgram, SendOnChange
from protocols.wire.streams import FieldName

MOST_ATOMS = 8
"""Groups of needs that are merged and split."""
Division = tuple[tuple[int, ...], ...]
"""Groups of the needs' numbers."""


def partitions(count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield all ways to divide a number of things into groups.

    Examples
    --------
    >>> [len(list(partitions(count))) for count in range(1, 6)]
    [1, 2, 5, 15, 52]
    """
    if count == 0:
        yield ()
        return
    last = count - 1
    for smaller in partitions(last):
        yield (*smaller, (last,))
        for place, group in enumerate(smaller):
            yield (*smaller[:place], (*group, last), *smaller[place + 1 :])


def neighbours_of(division: Division, atoms: Sequence[tuple[int, ...]]) -> Iterator[Division]:
    """Yield divisions that differ in one step: two groups merged, or one atom split from its group."""
    for one in range(len(division)):
        for other in range(one):
            rest = tuple(group for place, group in enumerate(division) if place not in (one, other))
            yield (*rest, (*division[other], *division[one]))
    for place, group in enumerate(division):
        for atom in atoms:
            left = tuple(number for number in group if number not in atom)
            if left and len(left) < len(group):
                yield (*division[:place], left, *division[place + 1 :], atom)


def atoms_of(needs: Sequence[Need]) -> list[tuple[int, ...]]:
    """Return groups of similar needs that stay together, so that there are few enough groups."""
    found: list[tuple[int, ...]] = []
    for key in _ALIKE:
        groups: dict[tuple[object, ...], list[int]] = {}
        for number, need in enumerate(needs):
            groups.setdefault(key(need), []).append(number)
        found = [tuple(group) for group in groups.values()]
        if len(found) <= MOST_ATOMS:
            break
    return found


_ALIKE: tuple[Callable[[Need], tuple[object, ...]], ...] = (
    lambda need: (need,),
    lambda need: (need.kind, need.period_us, need.bands, need.threshold),
    lambda need: (need.kind, need.period_us, bool(need.bands), need.threshold),
    lambda need: (need.kind, bool(need.bands), need.threshold),
)
"""What makes needs similar, from the finest to the coarsest."""


MOST_COMPARED = 64
"""The strongest needs, with which all others are compared; weaker ones rarely dominate another."""


def undominated(needs: Sequence[Need]) -> tuple[Need, ...]:
    """Return the needs that no other one dominates.

    Of many needs, some that are dominated may stay.
    """
    kept: list[Need] = []
    strongest: list[tuple[Need, SamplingProgram]] = []
    for need in sorted(set(needs), key=_strength):
        if not any(_implied(need, other, least) for other, least in strongest):
            kept.append(need)
            if len(strongest) < MOST_COMPARED:
                strongest.append((need, _least(need)))
    return tuple(kept)


def _strength(need: Need) -> tuple[object, ...]:
    """Return a key by which a need comes before all those that it dominates: no part of it is larger than theirs."""
    kinds = (NeedKind.SAMPLES, NeedKind.EVENTS, NeedKind.PANES, NeedKind.TALLIES)
    read = {*need.fields, *(name for name, _ in need.bands)}
    widths = (_width(high) - _width(low) for _, intervals in need.bands for low, high in intervals)
    return (
        *(kinds.index(need.kind), need.period_us, -len(read), len(need.bands)),
        *(need.patience_us, need.silence_us, -round(math.fsum(widths), 12), repr(need)),
    )


def _width(bound: float) -> float:
    """Return a bound on a finite scale, in the order of all bounds, infinite ones among them."""
    return math.atan(math.copysign(math.log1p(abs(bound)), bound))


def _implied(need: Need, other: Need, least: SamplingProgram) -> bool:
    """Return whether another need dominates this one; `least` is the least report that answers the other."""
    if need.patience_us < other.patience_us or need.silence_us < other.silence_us:
        return False
    tolerant = all(width <= dict(need.tolerances).get(name, 0.0) for name, width in other.tolerances)
    return tolerant and answers(least, need)


def _least(need: Need) -> SamplingProgram:
    """Return the least report that answers a need."""
    order = tuple(dict.fromkeys((*need.fields, *(name for name, _ in need.bands)))) or ("any",)
    found = [sampling_report((need,), order)]
    if need.kind is NeedKind.PANES:
        found = pane_reports((need,), order) or found
    elif need.threshold is not None:
        found = event_reports((need,)) or found
    alone = found[-1]
    return SamplingProgram(alone.fields, alone.every_us, bands=alone.bands, report=alone.kind)


MOST_TRIED_EXHAUSTIVELY = 8
MOST_STEPS = 64
MOST_POLISHED = 12
"""The most needs for which whole programs, not only sums of reports, are compared, and some are divided again."""
MOST_REARRANGED = 32
"""How many times some of many needs are divided again."""
MOST_GROUPS = 6
"""The groups of needs each time."""
ATOMS_IN_A_STEP = 200
"""Needs per step: the more there are, the longer it takes to build another division."""


class Search:
    """Searches for the cheapest program of one sensor.

    Parameters
    ----------
    sensor, style
        The sensor, and its deployer's choices.
    observed
        Statistics of its stream's values.
    effort
        The steps that are left; without any, the best program found so far is taken.
    """

    def __init__(self, sensor: Sensor, style: ProgramStyle, observed: Observed, effort: Effort | None = None) -> None:
        self._sensor = sensor
        self._style = style
        self.effort = effort or Effort()
        self._pricing = Pricing(sensor, style, observed, self.effort)
        self._least = LeastCost(self._pricing)
        self._found: dict[tuple[Need, ...], Candidate] = {}
        self._alone: dict[frozenset[Need], tuple[ProgramReport, float]] = {}
        asleep = SamplingProgram(listen=style.listen)
        self._asleep_mw = float(draw_mw(sensor.profile, asleep, Workload(loss=observed.loss)).sum())
        self._thorough = True

    def resume(self, effort: Effort) -> None:
        """Go on with other steps; what was found and priced is known, and needs none."""
        self.effort = self._pricing.effort = effort

    @property
    def remembered(self) -> int:
        """How many programs, and groups of needs, it remembers."""
        return len(self._found) + len(self._alone) + self._pricing.remembered

    def cheapest(self, needs: Sequence[Need]) -> Candidate:
        """Return the cheapest program that answers all needs."""
        left = undominated(needs)
        everything = tuple(dict.fromkeys(needs))
        if len(everything) <= MOST_POLISHED:
            # Reporting more than is needed may be cheaper: packets fill sooner, or at known times.
            left += tuple(need for need in everything if need not in left)
        found = self._found.get(left)
        if found is None:
            found = self._found[left] = self._cheapest(left)
        return found

    def _cheapest(self, needs: tuple[Need, ...]) -> Candidate:
        self._thorough = False
        divisions = self._descended(needs)
        if len(needs) <= MOST_TRIED_EXHAUSTIVELY:
            found = min((self._best_of_the_best(each, needs) for each in divisions), key=_milliwatts)
            return self._exhaustive([(need,) for need in needs], {}).cheapest(self._refined(found, needs))[0]
        costs_of = partial(self._costs_together, needs=needs)
        division = min(divisions, key=costs_of)
        if len(needs) > MOST_POLISHED:
            return self._refined(self._best_of_the_best(division, needs), needs)
        alone: Division = tuple((number,) for number in range(len(needs)))
        starts = [self._descend(division, alone, costs_of), *([alone] if self._allows(len(alone)) else [])]
        return min((self._rearranged(each, needs) for each in starts), key=_milliwatts)

    def _rearranged(self, division: Division, needs: Sequence[Need]) -> Candidate:
        """Divide the needs of one group after the other again, as long as that is cheaper."""
        best = self._refined(self._best_of_the_best(division, needs), needs)
        groups = [tuple(needs[number] for number in group) for group in division]
        openings = _openings({group: self._best_report(group)[0] for group in groups})
        for _ in range(MOST_REARRANGED):
            opening = next(openings, None)
            if opening is None or self.effort.exhausted:
                break
            best, better = self._exhaustive(*opening).cheapest(best)
            if better is not None:
                openings = _openings(better)
        return best

    def _exhaustive(self, groups: Sequence[Group], beside: Arrangement) -> Exhaustive:
        order, able = self._sensor.order, self._sensor.abilities
        return Exhaustive(
            groups,
            beside,
            pricing=self._pricing,
            least=self._least,
            choices_of=lambda group: _choices(group, order, able, 1),
            most_reports=self._most_reports,
        )

    def _refined(self, found: Candidate, needs: Sequence[Need]) -> Candidate:
        """Return a program with the best packet size."""
        self._thorough = True
        return self._candidate(reports_in(found.program), needs)

    def raw(self, needs: Sequence[Need]) -> Candidate:
        """Return the program that sends every needed sample at once."""
        report = sampling_report(needs, self._sensor.order)
        self._thorough = True
        return self._candidate((ProgramReport(report.fields, report.every_us),), needs)

    def _descended(self, needs: Sequence[Need]) -> list[Division]:
        """Return the divisions that hill climbing finds, from each kind of need alone and from all needs together.

        It compares sums of the costs of single reports, which are cheap to compute.
        """
        atoms = atoms_of(needs)
        starts: list[Division] = [(tuple(number for atom in atoms for number in atom),), tuple(atoms)]
        allowed = [start for start in starts if self._allows(len(start))]
        return [self._descend(start, atoms, lambda each: self._costs_alone(each, needs)) for start in allowed]

    def _descend(
        self, division: Division, atoms: Sequence[tuple[int, ...]], cost_of: Callable[[Division], float]
    ) -> Division:
        """Merge groups, or split one atom from its group, as long as that is cheaper."""
        cost = cost_of(division)
        for _ in range(MOST_STEPS):
            neighbours = self._neighbours(division, atoms)
            found, best = min(((cost_of(each), each) for each in neighbours), key=_first, default=(cost, division))
            if not found < cost:
                break
            division, cost = best, found
        return division

    def _neighbours(self, division: Division, atoms: Sequence[tuple[int, ...]]) -> Iterator[Division]:
        for each in neighbours_of(division, atoms):
            if self.effort.exhausted:
                return
            self.effort.spend(1 + len(atoms) // ATOMS_IN_A_STEP)
            if self._allows(len(each)):
                yield each

    def _costs_together(self, division: Division, needs: Sequence[Need]) -> float:
        return self._best_of_the_best(division, needs).milliwatts

    def _costs_alone(self, division: Division, needs: Sequence[Need]) -> float:
        self.effort.spend(len(needs))
        return sum(self._best_report(tuple(needs[number] for number in group))[1] for group in division)

    def _best_report(self, group: tuple[Need, ...]) -> tuple[ProgramReport, float]:
        """Return the cheapest report that answers a group, and its cost above that of sleeping."""
        key = frozenset(group)
        found = self._alone.get(key)
        if found is None:
            every_us = self._style.listen.every_us
            able = self._sensor.abilities
            choices = [
                report
                for report in _choices(group, self._sensor.order, able, every_us)
                if not isinstance(report.kind, SendOnChange)
            ]
            priced = [(report, self._candidate((report,), group).milliwatts - self._asleep_mw) for report in choices]
            found = self._alone[key] = min(priced, key=lambda each: each[1])
        return found

    def _best_of_the_best(self, division: Division, needs: Sequence[Need]) -> Candidate:
        """Return the program of the best single reports, or with one of them sending changes only."""
        groups = [tuple(needs[number] for number in group) for group in division]
        reports = [self._best_report(group)[0] for group in groups]
        found = [self._candidate(tuple(reports), needs)]
        for place, group in enumerate(groups):
            allowed = allow_changes(group, self._sensor.abilities)
            changing = changes_report(group, self._sensor.order) if allowed else None
            if changing is not None:
                changed = (*reports[:place], changing, *reports[place + 1 :])
                found += [self._candidate(changed, needs)] if goes_together(changed) else []
        return min(found, key=_milliwatts)

    @property
    def _most_reports(self) -> int:
        return MOST_REPORTS if self._sensor.abilities.several else 1

    def _allows(self, reports: int) -> bool:
        return reports <= self._most_reports

    def _candidate(self, reports: Sequence[ProgramReport], needs: Sequence[Need]) -> Candidate:
        return self._pricing.candidate(reports, needs, thorough=self._thorough)


@lru_cache(maxsize=65_536)
def _choices(
    needs: tuple[Need, ...], order: tuple[FieldName, ...], able: Abilities, listen_every_us: int
) -> list[ProgramReport]:
    """Return the reports that answer a group of needs, one of each kind."""
    plain = sampling_report(needs, order)
    if not able.filters and plain.bands:
        plain = ProgramReport(plain.fields, plain.every_us)
    found: list[ProgramReport | None] = [plain, ProgramReport(plain.fields, plain.every_us)] if plain.bands else [plain]
    if allow_changes(needs, able):
        found.append(changes_report(needs, order))
    if able.aggregates:
        found += pane_reports(needs, order, listen_every_us)
    if able.detects_events:
        found += event_reports(needs, listen_every_us)
    return [each for each in found if each is not None]


def _openings(arrangement: Arrangement) -> Iterator[tuple[list[Group], Arrangement]]:
    """Yield ways to divide one group again: the groups to divide, some of them single needs, and the rest."""
    for opened in arrangement:
        others = [group for group in arrangement if group != opened]
        room = max(1, MOST_GROUPS - 1 - min(len(others), MOST_GROUPS // 2))
        for start in range(0, len(opened), room):
            singles = opened[start : start + room]
            rest = opened[:start] + opened[start + room :]
            groups = [*((need,) for need in singles), *([rest] if rest else [])]
            free = max(1, MOST_GROUPS - len(groups))
            for first in range(0, max(1, len(others)), free):
                joined = others[first : first + free]
                yield [*groups, *joined], {group: arrangement[group] for group in others if group not in joined}


def _milliwatts(found: Candidate) -> float:
    return found.milliwatts


def _first(each: tuple[float, Division]) -> float:
    return each[0]


MOST_SEARCHES = 64
"""Kinds of sensors whose searches are kept, the latest."""
MOST_REMEMBERED = 50_000
"""The most that all searches together remember; with more, they begin anew. Each takes about a kibibyte."""
TIMES_AS_MANY = 4
"""When so many times as many values were observed, programs are chosen by them."""


class Searches:
    """Searches for all kinds of sensors of one stream.

    Parameters
    ----------
    style
        The deployer's choices.
    observed
        Statistics of the stream's values; those of now are taken.
    """

    def __init__(self, style: ProgramStyle, observed: Observed) -> None:
        self.observed = observed.copy()
        self._style = style
        self._kept: OrderedDict[tuple[tuple[FieldName, ...], int, int, Abilities], Search] = OrderedDict()
        self._used = Lock()

    def outdated(self, observed: Observed) -> bool:
        """Return whether much more has been observed since."""
        return observed.seen > 0 and observed.seen >= TIMES_AS_MANY * self.observed.seen

    @contextmanager
    def lend(self, sensor: Sensor, effort: Effort) -> Iterator[Search]:
        """Lend the search for one kind of sensor.

        One thread at a time has the searches that are kept. Another gets a new one, as it must not wait.

        Parameters
        ----------
        sensor
            Which.
        effort
            The steps that the search may take.
        """
        if not self._used.acquire(blocking=False):
            yield Search(sensor, self._style, self.observed, effort)
            return
        try:
            # Kept searches keep their profiles, so that no other has the identity of one.
            key = (sensor.order, sensor.minimum_period_us, id(sensor.profile), sensor.abilities)
            search = self._kept.pop(key, None) or Search(sensor, self._style, self.observed, effort)
            search.resume(effort)
            yield search
            self._kept[key] = search  # unless it failed
            self._forget_some()
        finally:
            self._used.release()

    def _forget_some(self) -> None:
        if len(self._kept) > MOST_SEARCHES:
            self._kept.popitem(last=False)
        if sum(each.remembered for each in self._kept.values()) > MOST_REMEMBERED:
            self._kept.clear()


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
