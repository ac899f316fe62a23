"""The cheapest sampling program that answers every need of a sensor.

A program's parts divide the needs among them; each part is one of a few kinds. With few different needs all ways to
divide them are tried; with many, needs are joined and moved as long as that saves joules, and then all ways to divide a
few of them anew, while the others stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

from protocols.acquisition.divisions import Division, atoms_of, neighbours_of
from protocols.acquisition.dominance import undominated
from protocols.acquisition.effort import Effort
from protocols.acquisition.exhaustive import Arrangement, Exhaustive, Group
from protocols.acquisition.least_cost import LeastCost
from protocols.acquisition.needs import Need
from protocols.acquisition.observed import Observed
from protocols.acquisition.parts import (
    Abilities,
    ProgramStyle,
    aggregating_parts,
    changing_part,
    detecting_parts,
    parts_as_parts,
    sampling_part,
)
from protocols.acquisition.pricing import Candidate, Pricing, Sensor, goes_together
from protocols.power.estimate import Workload, draw_mw
from protocols.wire.programs import MOST_PARTS, Part, SamplingProgram, SendOnChange
from protocols.wire.streams import FieldName

MOST_TRIED_EXHAUSTIVELY = 8
MOST_STEPS = 64
MOST_POLISHED = 12
"""Needs with which whole programs are compared after the sums of parts, and some divided anew; it takes its time."""
MOST_REARRANGED = 32
"""Times that some of many needs are divided anew."""
MOST_GROUPS = 6
"""Groups of needs in one such time."""
ATOMS_IN_A_STEP = 200
"""The more of them there are, the longer it takes to write down another division."""


class Search:
    """Looks for the cheapest program of one sensor.

    Parameters
    ----------
    sensor, style
        Which sensor, and what its deployer decides.
    observed
        What its stream's values are like.
    effort
        How much work it may be; then the best that has been found has to do.
    """

    def __init__(self, sensor: Sensor, style: ProgramStyle, observed: Observed, effort: Effort | None = None) -> None:
        self._sensor = sensor
        self._style = style
        self.effort = effort or Effort()
        self._pricing = Pricing(sensor, style, observed, self.effort)
        self._least = LeastCost(self._pricing)
        self._found: dict[tuple[Need, ...], Candidate] = {}
        self._alone: dict[frozenset[Need], tuple[Part, float]] = {}
        asleep = SamplingProgram(listen=style.listen)
        self._asleep_mw = float(draw_mw(sensor.profile, asleep, Workload(loss=observed.loss)).sum())
        self._thorough = True

    def cheapest(self, needs: Sequence[Need]) -> Candidate:
        """Return the cheapest program that answers all needs."""
        left = undominated(needs)
        everything = tuple(dict.fromkeys(needs))
        if len(everything) <= MOST_POLISHED:
            # To tell more than is needed may be cheaper: packets fill sooner, or it is known when they come.
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
        """Open one group after the other, and divide its needs anew, as long as that is cheaper."""
        best = self._refined(self._best_of_the_best(division, needs), needs)
        groups = [tuple(needs[number] for number in group) for group in division]
        openings = _openings({group: self._best_part(group)[0] for group in groups})
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
            most_parts=self._most_parts,
        )

    def _refined(self, found: Candidate, needs: Sequence[Need]) -> Candidate:
        """Return a program with the best packets."""
        self._thorough = True
        return self._candidate(parts_as_parts(found.program), needs)

    def raw(self, needs: Sequence[Need]) -> Candidate:
        """Return the program that sends every sample that is needed, as it was taken."""
        part = sampling_part(needs, self._sensor.order)
        return self._candidate((Part(part.fields, part.every_us),), needs)

    def _descended(self, needs: Sequence[Need]) -> list[Division]:
        """Return what steps downhill lead to, from each kind of need alone and from all needs together.

        They go by the sum of what parts cost alone, which is soon known.
        """
        atoms = atoms_of(needs)
        starts: list[Division] = [(tuple(number for atom in atoms for number in atom),), tuple(atoms)]
        allowed = [start for start in starts if self._allows(len(start))]
        return [self._descend(start, atoms, lambda each: self._costs_alone(each, needs)) for start in allowed]

    def _descend(
        self, division: Division, atoms: Sequence[tuple[int, ...]], cost_of: Callable[[Division], float]
    ) -> Division:
        """Join groups, or part one atom from its group, as long as that is cheaper."""
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
        return sum(self._best_part(tuple(needs[number] for number in group))[1] for group in division)

    def _best_part(self, group: tuple[Need, ...]) -> tuple[Part, float]:
        """Return the part that answers a group alone at the least cost, and what it costs more than being asleep."""
        key = frozenset(group)
        found = self._alone.get(key)
        if found is None:
            every_us = self._style.listen.every_us
            able = self._sensor.abilities
            choices = [
                part
                for part in _choices(group, self._sensor.order, able, every_us)
                if not isinstance(part.report, SendOnChange)
            ]
            priced = [(part, self._candidate((part,), group).milliwatts - self._asleep_mw) for part in choices]
            found = self._alone[key] = min(priced, key=lambda each: each[1])
        return found

    def _best_of_the_best(self, division: Division, needs: Sequence[Need]) -> Candidate:
        """Return the program of the parts that are best alone, or with one of them sending changes only."""
        groups = [tuple(needs[number] for number in group) for group in division]
        parts = [self._best_part(group)[0] for group in groups]
        found = [self._candidate(tuple(parts), needs)]
        for place, group in enumerate(groups):
            changing = changing_part(group, self._sensor.order) if self._sensor.abilities.sends_on_change else None
            if changing is not None:
                changed = (*parts[:place], changing, *parts[place + 1 :])
                found += [self._candidate(changed, needs)] if goes_together(changed) else []
        return min(found, key=_milliwatts)

    @property
    def _most_parts(self) -> int:
        return MOST_PARTS if self._sensor.abilities.several else 1

    def _allows(self, parts: int) -> bool:
        return parts <= self._most_parts

    def _candidate(self, parts: Sequence[Part], needs: Sequence[Need]) -> Candidate:
        return self._pricing.candidate(parts, needs, thorough=self._thorough)


@lru_cache(maxsize=65_536)
def _choices(
    needs: tuple[Need, ...], order: tuple[FieldName, ...], able: Abilities, listen_every_us: int
) -> list[Part]:
    """Return the parts that answer a group of needs, one of each kind."""
    plain = sampling_part(needs, order)
    if not able.filters and plain.bands:
        plain = Part(plain.fields, plain.every_us)
    found: list[Part | None] = [plain, Part(plain.fields, plain.every_us)] if plain.bands else [plain]
    if able.sends_on_change:
        found.append(changing_part(needs, order))
    if able.aggregates:
        found += aggregating_parts(needs, order, listen_every_us)
    if able.detects_events:
        found += detecting_parts(needs, listen_every_us)
    return [each for each in found if each is not None]


def _openings(arrangement: Arrangement) -> Iterator[tuple[list[Group], Arrangement]]:
    """Yield ways to open one group: groups to divide anew, some of them single needs, and what stays beside them."""
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
