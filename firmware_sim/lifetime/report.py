"""The lifetime report: which mote dies first and why, and what each query costs in days of life."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from firmware_sim.lifetime.fleet_file import FleetPlan, PlacedMote
from firmware_sim.lifetime.query_file import AskingQuery
from firmware_sim.power.battery import Battery, seconds_until
from firmware_sim.power.many_motes import VirtualMote
from firmware_sim.power.power_report import finite, lives_if_off
from firmware_sim.power.surroundings import DAY_SECONDS, YEAR_DAYS, Climate, Solar
from firmware_sim.power.virtual_run import Floats, Outcome, run_motes
from protocols.acquisition.merging import MergedProgram, Merger, workload_for
from protocols.acquisition.needs import NeedKind, fold_demands
from protocols.acquisition.program_reports import Abilities, ProgramStyle, SensorTraits
from protocols.acquisition.search import stretched_need
from protocols.errors import ProgramError
from protocols.power.costs import named
from protocols.power.estimate import Workload, draw_mw
from protocols.power.payload import check_program, most_records
from protocols.text.quantities import format_duration
from protocols.wire.programs import SamplingProgram

ONLY_SAMPLES = Abilities(filters=False, sends_on_change=False, aggregates=False, detects_events=False, several=False)
"""The abilities of motes that send every sample unchanged."""


class FleetFolding:
    """Programs of a fleet's motes under a set of queries.

    Parameters
    ----------
    fleet
        The fleet.
    queries
        The queries.
    pushed_down
        False if motes are to send every sample that any query reads.
    """

    def __init__(self, fleet: FleetPlan, queries: Sequence[AskingQuery], *, pushed_down: bool = True) -> None:
        demands = [demand for each in queries for demand in each.demands]
        folded = fold_demands(demands, fleet.motes[0].description.stream)
        style = ProgramStyle(fleet.samples_per_packet, fleet.listen)
        self._fleet = fleet
        self._merger = Merger(folded, style, fleet.observed)
        self._abilities = Abilities() if pushed_down else ONLY_SAMPLES

    def merged(self, mote: PlacedMote) -> MergedProgram:
        """Return the program of a mote, and the reasons for it.

        As at a proxy, periods are longer than demanded where queries allow it and batteries are to last longer.
        """
        processor = mote.profile.processor
        traits = SensorTraits(
            self._fleet.default_period_us,
            mote.description.minimum_period_us,
            mote.profile,
            mote.battery.usable_joules(processor.supply_v, processor.minimum_v) or None,
            abilities=self._abilities,
            # Profiles of one name may differ: a file that began as a copy of a preset.
            device=f"{mote.profile.name} {hash(mote.profile)}",
        )
        return self._merger.merge(traits, mote.description.properties)

    def workload(self, mote: PlacedMote, program: SamplingProgram) -> Workload:
        """Return the workload of a mote with that program."""
        return workload_for(program, self._fleet.observed, loss=mote.loss)


_HOURS = np.arange(0.0, YEAR_DAYS * DAY_SECONDS, 3600.0)


def predicted_days(mote: VirtualMote, factor: float = 1.0) -> float:
    """Return how long a mote lives, from the daily and yearly means of its surroundings.

    Parameters
    ----------
    mote
        The mote.
    factor
        How many times the estimate its draw is.
    """
    profile, battery, climate = mote.profile, mote.battery, mote.climate
    milliwatts = float(draw_mw(profile, mote.program, mote.workload).sum()) * factor
    if mote.solar is not None:
        milliwatts -= _mean_sun_mw(mote.solar, float("inf") if battery.rechargeable else milliwatts)
    supply_v, minimum_v = profile.processor.supply_v, profile.processor.minimum_v
    full = battery.full_joules(supply_v, climate.mean_c)
    floor = full * (1 - battery.usable_share(minimum_v))
    return seconds_until(full, floor, milliwatts / 1e3, _mean_loss(battery, climate)) / DAY_SECONDS


@lru_cache(maxsize=1024)
def _mean_loss(battery: Battery, climate: Climate) -> float:
    """Return the share that a battery loses by itself each second, over a year of warm and cold hours."""
    degrees = np.array([climate.temperature_c(each) for each in _HOURS])
    return float(battery.loss_per_second(degrees).mean())


@lru_cache(maxsize=1024)
def _mean_sun_mw(solar: Solar, most_mw: float) -> float:
    """Return the mean power of a panel over a year, if more than `most_mw` cannot be used."""
    sun = np.array([solar.clear_sky_mw(each) for each in _HOURS]) * (1 - solar.cloud_share)
    return float(np.minimum(sun, most_mw).mean())


_DAY_US = 86_400_000_000


def notes_on_lifetimes(fleet: FleetPlan, folding: FleetFolding, outcome: Outcome) -> Iterator[str]:
    """Yield how periods are stretched so that batteries last as long as queries want, and whether they will."""
    seen: set[tuple[str, str]] = set()
    for place, mote in enumerate(fleet.motes):
        merged = folding.merged(mote)
        wanted_us = max((each.demand.lifetime_us for _, classes in merged.needs for each in classes), default=0)
        longer = _longer_periods(merged)
        if not wanted_us or (mote.group, longer) in seen:
            continue
        wanted = f"the {format_duration(wanted_us)} of LIFETIME"
        seen.add((mote.group, longer))
        days = float(outcome.expected_days[place])
        if not merged.lifetime_kept:
            even = f", even with {longer}" if longer else ""
            yield f"{mote.group}: batteries will not last {wanted}{even}: queries allow no longer periods"
        elif longer:
            yield f"{mote.group}: {longer}, so that batteries last {wanted}"
        if merged.lifetime_kept and days < wanted_us / _DAY_US:
            yield (
                f"{mote.group}: periods are chosen as if there were no self-discharge, cold or lost packets; "
                f"with these {mote.description.name} lasts {days:.0f} days"
            )


def notes_on_packets(fleet: FleetPlan, folding: FleetFolding) -> Iterator[str]:
    """Yield what limits, or makes useless, how many samples the fleet's file puts in a packet."""
    most = fleet.samples_per_packet
    useless: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for mote in fleet.motes:
        merged, kind = folding.merged(mote), (mote.group, mote.profile.name)
        useless.update(_with_useless_tolerances(merged))
        if kind in seen or merged.program.sleeping:
            continue
        seen.add(kind)
        smallest = SamplingProgram(merged.program.fields[:1], merged.program.period_us)
        holds = most_records(mote.profile, smallest)
        if holds < most:
            yield (
                f"{mote.group}: samples_per_packet = {most} is more than a packet of {mote.profile.name} holds, "
                f"which is {holds} samples of one field"
            )
    for query in sorted(useless):
        yield (
            f"{query}: WITHIN saves nothing with samples_per_packet = {most}, as no sample waits for the next one; "
            "with 2 or more, motes leave out samples that differ too little"
        )


def _with_useless_tolerances(merged: MergedProgram) -> Iterator[str]:
    """Yield the queries whose samples may be inexact, but must come too soon for that to save any."""
    for need, classes in merged.needs:
        waits_us = max(need.silence_us, need.patience_us)
        if need.kind is NeedKind.SAMPLES and need.tolerances and waits_us < 2 * need.period_us:
            for each in classes:
                if each.demand.tolerances:
                    yield from each.queries


def _longer_periods(merged: MergedProgram) -> str:
    """Return in words which samples are taken less often than demanded; empty if none are."""
    parts = [
        f"every {format_duration(longer)} instead of every {format_duration(need.period_us)}"
        for need, _ in merged.needs
        if (longer := stretched_need(need, merged.stretched).period_us) != need.period_us
    ]
    return f"samples {' and '.join(dict.fromkeys(parts))}" if parts else ""


@dataclass(frozen=True, slots=True)
class QueryCost:
    """The cost of one query.

    Parameters
    ----------
    name
        The query's name.
    asks
        Its demands on the motes, in words.
    first_days_without
        The end of the first mote if this query were dropped, by the closed form scaled to the simulation.
    median_days_without
        The same for the mote in the middle.
    days_of_first, days_of_median
        How many days of life it costs the first and the middle mote.
    saved_mw
        Mean draw that dropping it would save.
    alone_mw
        Mean draw if it were the only query.
    every_sample_mw
        The same if motes sent every sample of what it reads, without push-down.
    """

    name: str
    asks: str
    first_days_without: float
    median_days_without: float
    days_of_first: float
    days_of_median: float
    saved_mw: float
    alone_mw: float
    every_sample_mw: float


@dataclass(frozen=True, slots=True, eq=False)
class LifetimeReport:
    """The report; `predicted_days` is each mote's life in closed form, `outcome` the result of the simulation.

    `notes` say what is not as queries or the fleet's file would have it.
    """

    fleet: FleetPlan
    programs: tuple[SamplingProgram, ...]
    outcome: Outcome
    predicted_days: tuple[float, ...]
    queries: tuple[QueryCost, ...]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> int:
        """Place of the mote that dies first."""
        return self.outcome.first

    @property
    def uncertainty(self) -> float:
        """The relative error of draw and lives: that of the first mote's profile."""
        return self.fleet.motes[self.first].profile.uncertainty

    @property
    def band_days(self) -> tuple[float, float]:
        """The shortest and the longest life of the first mote if its draw is off by the uncertainty."""
        mote, predicted = self.outcome.motes[self.first], self.predicted_days[self.first]
        scale = float(_scale(self.outcome.expected_days[[self.first]], np.array([predicted]))[0])
        return lives_if_off(lambda factor: predicted_days(mote, factor) * scale, self.uncertainty)

    def why(self) -> str:
        """Return in words why the first mote dies first."""
        mote, place = self.fleet.motes[self.first], self.first
        component, share = self.outcome.dearest(place)
        lost = float(self.outcome.lost[place]) / max(
            float(self.outcome.lost[place] + self.outcome.drawn[place]), 1e-300
        )
        reasons = [f"{component.value.replace('_', ' ')} takes {share:.0%} of what it draws"]
        if mote.loss > 0:
            repeated = mote.profile.radio.maximum_attempts > 1
            reasons.append(f"{mote.loss:.0%} of its transmissions fail{' and are repeated' if repeated else ''}")
        usable = mote.battery.usable_share(mote.profile.processor.minimum_v)
        if usable < 1:
            volts = f"{mote.profile.processor.minimum_v:g} V"
            reasons.append(f"it stops at {volts} with {1 - usable:.0%} of the battery's capacity unused")
        if lost >= 0.01:  # noqa: PLR2004 - less is not worth a word
            degrees = f"{mote.climate.mean_c:g} degC"
            reasons.append(f"{lost:.0%} of the charge that leaves the battery does so by itself, at about {degrees}")
        return "; ".join(reasons)

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        outcome, first = self.outcome, self.first
        component, share = outcome.dearest(first)
        low, high = self.band_days
        return {
            "fleet": self.fleet.name,
            "days": outcome.days,
            "uncertainty": self.uncertainty,
            "first": {
                "mote": outcome.motes[first].name,
                "group": self.fleet.motes[first].group,
                "lifetime_days": finite(float(outcome.expected_days[first])),
                "lifetime_days_low": finite(low),
                "lifetime_days_high": finite(high),
                "draw_mw": named(outcome.draw_mw(first)),
                "dearest_component": component.value,
                "dearest_share": share,
                "why": self.why(),
            },
            "median_lifetime_days": finite(float(np.median(outcome.expected_days))),
            "dead": int((outcome.died_days <= outcome.days).sum()),
            "queries": [
                {
                    "name": each.name,
                    "asks": each.asks,
                    "costs_days_of_first": finite(each.days_of_first),
                    "costs_days_of_median": finite(each.days_of_median),
                    "first_days_without": finite(each.first_days_without),
                    "median_days_without": finite(each.median_days_without),
                    "saved_mw": each.saved_mw,
                    "alone_mw": each.alone_mw,
                    "every_sample_mw": each.every_sample_mw,
                }
                for each in self.queries
            ],
            "notes": list(self.notes),
            "motes": [
                {
                    "mote": mote.name,
                    "group": self.fleet.motes[place].group,
                    "lifetime_days": finite(float(outcome.expected_days[place])),
                    "predicted_days": finite(self.predicted_days[place]),
                    "draw_mw": float(outcome.draw_mw(place).sum()),
                }
                for place, mote in enumerate(outcome.motes)
            ],
        }


def make_report(
    fleet: FleetPlan,
    queries: Sequence[AskingQuery],
    *,
    days: float,
    seed: int = 1,
    progress: Callable[[float], None] | None = None,
) -> LifetimeReport:
    """Simulate a fleet under queries, and compute the cost of each query.

    Raises
    ------
    ProgramError
        If a mote cannot run the program that the queries need; names the mote and the limit.
    """
    folding = FleetFolding(fleet, queries)
    motes = _virtual_motes(fleet, folding)
    outcome = run_motes(motes, days=days, seed=seed, begins_day=fleet.begins_day, progress=progress)
    predicted = tuple(predicted_days(mote) for mote in motes)
    # The effects of chance and weather on the lives stay the same when a query is dropped.
    scale = _scale(outcome.expected_days, np.array(predicted))
    mean_mw = _mean_mw(motes)
    costs: list[QueryCost] = []
    for query in queries:
        without = virtual_motes(fleet, [each for each in queries if each is not query])
        lives = np.array([predicted_days(mote) for mote in without]) * scale
        first, median = float(lives.min()), float(np.median(lives))
        costs.append(
            QueryCost(
                query.query.name,
                _words(query),
                first,
                median,
                first - float(outcome.expected_days.min()),
                median - float(np.median(outcome.expected_days)),
                mean_mw - _mean_mw(without),
                _mean_mw(virtual_motes(fleet, [query])),
                _mean_mw(virtual_motes(fleet, [query], pushed_down=False)),
            )
        )
    notes = (*notes_on_lifetimes(fleet, folding, outcome), *notes_on_packets(fleet, folding))
    return LifetimeReport(fleet, tuple(mote.program for mote in motes), outcome, predicted, tuple(costs), notes)


def virtual_motes(fleet: FleetPlan, queries: Sequence[AskingQuery], *, pushed_down: bool = True) -> list[VirtualMote]:
    """Return the fleet's motes with the programs that the queries need.

    Parameters
    ----------
    fleet, queries
        The motes, and the queries.
    pushed_down
        False if motes are to send every sample that any query reads.
    """
    return _virtual_motes(fleet, FleetFolding(fleet, queries, pushed_down=pushed_down))


def _virtual_motes(fleet: FleetPlan, folding: FleetFolding) -> list[VirtualMote]:
    found = []
    for mote in fleet.motes:
        program = folding.merged(mote).program
        try:
            check_program(mote.profile, program)
        except ProgramError as error:
            name = mote.description.name
            raise ProgramError(
                f"mote {name} cannot run what the queries need: {error.message}", hint=error.hint
            ) from error
        found.append(
            VirtualMote(
                mote.description.name,
                mote.profile,
                program,
                mote.battery,
                folding.workload(mote, program),
                mote.climate,
                mote.solar,
            )
        )
    return found


def _scale(lives: Floats, predicted: Floats) -> Floats:
    """Return how many times as long as in closed form the motes live."""
    return np.divide(lives, predicted, out=np.ones(len(lives)), where=np.isfinite(predicted) & (predicted > 0))


def _mean_mw(motes: Sequence[VirtualMote]) -> float:
    return float(np.mean([draw_mw(mote.profile, mote.program, mote.workload).sum() for mote in motes]))


def _words(query: AskingQuery) -> str:
    parts = []
    for demand in query.demands:
        every = "the default period" if demand.period_us is None else f"every {format_duration(demand.period_us)}"
        what = ", ".join(demand.fields) or "its instants"
        slowest = f", at least every {format_duration(demand.slowest_us)}" if demand.slowest_us else ""
        parts.append(f"{'changes of ' if demand.silence_us else ''}{what} {every}{slowest}")
    return "; ".join(parts)
