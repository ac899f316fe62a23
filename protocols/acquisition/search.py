"""The cheapest sampling program that answers every need of a sensor.

A program's parts divide the needs among them; each part is one of a few kinds. With few different needs all ways to
divide them are tried; with many, needs are joined and moved as long as that saves joules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from protocols.acquisition.covering import holds_all
from protocols.acquisition.divisions import Division, atoms_of, neighbours_of, partitions
from protocols.acquisition.dominance import undominated
from protocols.acquisition.needs import Need, intervals_of
from protocols.acquisition.observed import Observed
from protocols.acquisition.parts import (
    Abilities,
    ProgramStyle,
    aggregating_parts,
    assembled,
    changing_part,
    detecting_parts,
    parts_as_parts,
    sampling_part,
    sends_samples,
)
from protocols.errors import OverloadError, ProgramError
from protocols.power.estimate import Shares, Workload, draw_mw, is_regular, rates_of
from protocols.power.limits import check_program, most_records
from protocols.power.profile import DeviceProfile
from protocols.programs import MOST_PARTS, Part, SamplingProgram, SendOnChange
from protocols.streams import FieldName

MOST_TRIED_EXHAUSTIVELY = 5
MOST_STEPS = 64
MOST_POLISHED = 12
"""Needs with which whole programs are compared after the sums of parts."""
_FEW_RECORDS = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program and its mean draw; infinite if the sensor cannot run it."""

    program: SamplingProgram
    milliwatts: float


@dataclass(frozen=True, slots=True)
class Sensor:
    """What decides about the cost of a program on a sensor.

    Parameters
    ----------
    order
        Its sampled fields, in schema order.
    minimum_period_us
        The fastest it can sample.
    profile
        Its energy.
    abilities
        What it can do.
    """

    order: tuple[FieldName, ...]
    minimum_period_us: int
    profile: DeviceProfile
    abilities: Abilities = field(default_factory=Abilities)


class Search:
    """Looks for the cheapest program of one sensor.

    Parameters
    ----------
    sensor, style
        Which sensor, and what its deployer decides.
    observed
        What its stream's values are like.
    """

    def __init__(self, sensor: Sensor, style: ProgramStyle, observed: Observed) -> None:
        self._sensor = sensor
        self._style = style
        self._observed = observed
        self._known: dict[tuple[frozenset[Part], int, bool], Candidate] = {}
        self._found: dict[tuple[Need, ...], Candidate] = {}
        self._alone: dict[frozenset[Need], tuple[Part, float]] = {}
        asleep = SamplingProgram(listen=style.listen)
        self._asleep_mw = float(draw_mw(sensor.profile, asleep, Workload(loss=observed.loss)).sum())
        self._thorough = True

    def cheapest(self, needs: Sequence[Need]) -> Candidate:
        """Return the cheapest program that answers all needs."""
        left = undominated(needs)
        found = self._found.get(left)
        if found is None:
            found = self._found[left] = self._cheapest(left)
        return found

    def _cheapest(self, needs: tuple[Need, ...]) -> Candidate:
        self._thorough = len(needs) <= MOST_TRIED_EXHAUSTIVELY
        if self._thorough:
            divisions = [division for division in partitions(len(needs)) if self._allows(len(division))]
            return min((self._best_of(each, needs) for each in divisions), key=_milliwatts)
        division = min(self._descended(needs), key=lambda each: self._best_of(each, needs).milliwatts)
        if len(needs) <= MOST_POLISHED:
            singles = [(number,) for number in range(len(needs))]
            division = self._descend(division, singles, lambda each: self._best_of(each, needs).milliwatts)
        best = self._best_of(division, needs)
        self._thorough = True
        polished = [self._candidate(parts_as_parts(best.program), needs)]
        if len(needs) <= MOST_POLISHED and len(division) <= MOST_TRIED_EXHAUSTIVELY:
            polished.append(self._best_of(division, needs))
        return min(polished, key=_milliwatts)

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
            neighbours = [each for each in neighbours_of(division, atoms) if self._allows(len(each))]
            best = min(neighbours, key=cost_of, default=division)
            found = cost_of(best)
            if not found < cost:
                break
            division, cost = best, found
        return division

    def _costs_alone(self, division: Division, needs: Sequence[Need]) -> float:
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
                found += [self._candidate(changed, needs)] if _goes_together(changed) else []
        return min(found, key=_milliwatts)

    def _allows(self, parts: int) -> bool:
        return parts <= (MOST_PARTS if self._sensor.abilities.several else 1)

    def _best_of(self, division: Division, needs: Sequence[Need]) -> Candidate:
        """Return the best program with so divided needs, whatever kind its parts are."""
        if not self._thorough:
            return self._best_of_the_best(division, needs)
        order, able, every_us = self._sensor.order, self._sensor.abilities, 1
        choices = [_choices(tuple(needs[number] for number in group), order, able, every_us) for group in division]
        best: Candidate | None = None
        for parts in _products(choices):
            if not _goes_together(parts):
                continue
            found = self._candidate(parts, needs)
            if best is None or found.milliwatts < best.milliwatts:
                best = found
        return best or self.raw(needs)

    def _candidate(self, parts: tuple[Part, ...], needs: Sequence[Need]) -> Candidate:
        # The same parts in another order are the same program; but how long its records may wait is up to the needs.
        patience_us = min(need.patience_us for need in needs)
        key = (frozenset(parts), patience_us, self._thorough)
        found = self._known.get(key)
        if found is None:
            needed = tuple(sorted(_needed(key[0]), key=repr))
            found = self._known[key] = self._priced(needed, patience_us)
        return found

    def _priced(self, parts: tuple[Part, ...], patience_us: int) -> Candidate:
        sensor, style = self._sensor, self._style
        workload = workload_of(parts, self._observed)
        single = assembled(parts, sensor.order, style, 1)
        if single.period_us < sensor.minimum_period_us:
            return Candidate(single, math.inf)
        best = Candidate(single, math.inf)
        for program in _packed(single, sensor.profile, style, workload, patience_us, thorough=self._thorough):
            try:
                check_program(sensor.profile, program)
                milliwatts = float(draw_mw(sensor.profile, program, workload).sum())
            except (ProgramError, OverloadError):
                continue
            if milliwatts < best.milliwatts:
                best = Candidate(program, milliwatts)
        return best


def workload_of(parts: Sequence[Part], observed: Observed) -> Workload:
    """Return what a sensor meets that runs these parts in a world as observed."""
    shares = tuple(
        Shares(
            observed.kept_share(intervals_of(part.bands)),
            observed.changed_share((each.field, each.width) for each in part.report.dead_bands)
            if isinstance(part.report, SendOnChange)
            else 1.0,
            observed.following_share(intervals_of(part.bands), part.every_us),
        )
        for part in parts
    )
    first = shares[0]
    return Workload(
        observed.vehicles_per_second,
        first.kept,
        first.changed,
        observed.loss,
        first.following,
        shares if len(parts) > 1 else (),
    )


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


def _products(choices: Sequence[Sequence[Part]]) -> Iterator[tuple[Part, ...]]:
    if not choices:
        yield ()
        return
    for rest in _products(choices[1:]):
        for each in choices[0]:
            yield (each, *rest)


def _needed(parts: Iterable[Part]) -> list[Part]:
    """Return parts without those that send only samples that another one sends anyway."""
    return [part for part in parts if not any(other != part and _includes(other, part) for other in parts)]


def _includes(one: Part, other: Part) -> bool:
    return (
        one.report is None
        and other.report is None
        and other.every_us % one.every_us == 0
        and set(other.fields) <= set(one.fields)
        and holds_all(intervals_of(one.bands), intervals_of(other.bands))
    )


def _goes_together(parts: Sequence[Part]) -> bool:
    """What a changed sample leaves out can be filled in only if no other part's samples stand in between."""
    senders = [part for part in parts if sends_samples(part)]
    return len(senders) < 2 or not any(isinstance(part.report, SendOnChange) for part in senders)  # noqa: PLR2004


def _packed(
    program: SamplingProgram,
    profile: DeviceProfile,
    style: ProgramStyle,
    workload: Workload,
    patience_us: int,
    *,
    thorough: bool,
) -> Iterator[SamplingProgram]:
    """Yield a program with as many records to a packet as radio, deployer and patience allow, and with fewer.

    More records to a packet are not always cheaper: while they wait the mote may have to ask, and a longer payload may
    take one symbol more.
    """
    most = max(1, min(style.samples_per_packet, most_records(profile, program)))
    if is_regular(program):
        # A record that waits for a full packet waits for all but one of the others.
        rate = rates_of(program, workload).records
        most = max(1, min(most, math.floor(rate * patience_us / 1e6 + 1e-9)))
        patience_us = 0
    if not thorough:
        sizes = {most}
    else:
        sizes = set(range(1, most + 1)) if most <= _FEW_RECORDS else {1, 2, 3, 5, most // 2, most}
    for size in sorted(sizes):
        yield _with_packets(program, size, 0 if size == 1 else patience_us)


def _with_packets(program: SamplingProgram, packet: int, patience_us: int) -> SamplingProgram:
    return SamplingProgram(
        program.fields, program.period_us, packet, program.listen, program.bands, program.report, patience_us
    )


def _milliwatts(found: Candidate) -> float:
    return found.milliwatts
