"""The lifetime report: which mote dies first and why, and what each query costs in days of life."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firmware_sim.lifetime.fleet_file import FleetPlan
from firmware_sim.lifetime.folding import FleetFolding
from firmware_sim.lifetime.notes import notes_on_lifetimes, notes_on_packets
from firmware_sim.lifetime.prediction import predicted_days
from firmware_sim.lifetime.query_file import AskingQuery
from firmware_sim.power.many_motes import VirtualMote
from firmware_sim.power.power_report import finite, lives_if_off
from firmware_sim.power.virtual_run import Floats, Outcome, run_motes
from protocols.errors import ProgramError
from protocols.power.component import named
from protocols.power.estimate import draw_mw
from protocols.power.limits import check_program
from protocols.text.durations import format_duration
from protocols.wire.programs import SamplingProgram


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
