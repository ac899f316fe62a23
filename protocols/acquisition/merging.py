"""Demands of all queries on a stream -> each sensor's sampling program: the cheapest in joules that answers them all.

Papers/fjords.md section 3 has the proxy take the highest rate anybody asks for; here it weighs what each way of
answering costs (design.md section 5), and says so in figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from protocols.acquisition.needs import DemandClass, FoldedDemands, Need, needs_of
from protocols.acquisition.observed import Observed
from protocols.acquisition.parts import ProgramStyle, parts_as_parts
from protocols.acquisition.pricing import Candidate, Sensor, workload_of
from protocols.acquisition.search import Search
from protocols.acquisition.sensor_traits import DAY_SECONDS, SensorTraits
from protocols.acquisition.words import words_of
from protocols.errors import OverloadError
from protocols.frames import Value
from protocols.power.estimate import Workload, draw_mw
from protocols.programs import SLEEP, SamplingProgram

LONGEST_STRETCH = 1_024
"""A sample period is made at most so many times as long to save a battery."""


@dataclass(frozen=True, slots=True)
class MergedProgram:
    """A sensor's program and, in figures and words, why it is this one.

    Parameters
    ----------
    program
        What the sensor is to run.
    reason
        One sentence.
    milliwatts, raw_milliwatts
        Mean draw; and of the program that would send every sample as it was taken, for the same answers.
    stretched
        By how much sample periods are longer than asked for, to save the battery; 1 for not at all.
    lifetime_kept
        False if even the longest periods that queries allow do not let the battery last as long as it should.
    needs
        What it answers, as asked for, with the demands they come from.
    """

    program: SamplingProgram
    reason: str
    milliwatts: float = 0.0
    raw_milliwatts: float = 0.0
    stretched: int = 1
    lifetime_kept: bool = True
    needs: tuple[tuple[Need, tuple[DemandClass, ...]], ...] = ()


class Merger:
    """Merges the demands on one stream for its sensors; remembers what it found for sensors of the same traits.

    Parameters
    ----------
    demands
        Folded.
    style
        What the deployer decides.
    observed
        What the stream's values are like.
    """

    def __init__(self, demands: FoldedDemands, style: ProgramStyle, observed: Observed | None = None) -> None:
        self.demands = demands
        self.style = style
        self.observed = observed or Observed()
        self._known: dict[tuple[tuple[int, ...], SensorTraits], MergedProgram] = {}

    def merge(self, traits: SensorTraits, properties: Mapping[str, Value]) -> MergedProgram:
        """Return the program of a sensor."""
        concerning = self.demands.concerning(properties)
        key = (concerning, traits)
        found = self._known.get(key)
        if found is None:
            classes = [self.demands.classes[place] for place in concerning]
            found = self._known[key] = self._merged(classes, traits)
        return found

    def _merged(self, classes: Sequence[DemandClass], traits: SensorTraits) -> MergedProgram:
        schema = self.demands.schema
        if not classes or schema is None:
            return self._asleep("nobody asks", traits)
        order = tuple(each.name for each in schema.sampled)
        if not order:
            return self._asleep("its stream has no field to sample", traits)
        asked = needs_of(classes, schema, traits.default_period_us, self.style.samples_per_packet)
        sensor = Sensor(order, traits.minimum_period_us, traits.profile, traits.abilities)
        search = Search(sensor, self.style, self.observed)
        needs, slow = within_reach(tuple(asked), traits.minimum_period_us, search)
        found, stretched, kept = _lasting(search, needs, traits, _wish(classes, traits))
        raw = search.raw([_stretched(need, stretched) for need in needs])
        return MergedProgram(
            found.program,
            _reason(found, raw, classes, slow=slow, stretched=stretched, kept=kept),
            found.milliwatts,
            raw.milliwatts,
            stretched,
            kept,
            tuple(asked.items()),
        )

    def _asleep(self, why: str, traits: SensorTraits) -> MergedProgram:
        """A sensor nobody asks listens as often as one that samples: the deployer says how soon it can be woken."""
        listen = self.style.listen
        program = SLEEP if listen == SLEEP.listen else SamplingProgram(listen=listen)
        milliwatts = draw_of(program, traits, self.observed)
        return MergedProgram(program, f"{why}: sleep", milliwatts, milliwatts)


def within_reach(needs: Sequence[Need], minimum_period_us: int, search: Search) -> tuple[tuple[Need, ...], bool]:
    """Return needs a sensor can follow, and whether it is too slow for some of them.

    A sensor too slow for a period takes the samples at the shortest multiple of it that it can. Where it is also too
    slow for all samples of several periods, it ticks with the shortest, and the others get those of their samples that
    fall on a tick.
    """
    possible = tuple(_at_least(need, minimum_period_us) for need in needs)
    slow = possible != tuple(needs)
    if math.isfinite(search.cheapest(possible).milliwatts):
        return possible, slow
    tick_us = min(need.period_us for need in possible)
    return tuple(replace(need, period_us=math.lcm(tick_us, need.period_us)) for need in possible), True


def draw_of(program: SamplingProgram, traits: SensorTraits, observed: Observed) -> float:
    """Return the mean draw of a program on a sensor, in milliwatts; infinite if it cannot run it."""
    try:
        return float(draw_mw(traits.profile, program, workload_for(program, observed)).sum())
    except OverloadError:
        return math.inf


def workload_for(program: SamplingProgram, observed: Observed, *, loss: float | None = None) -> Workload:
    """Return what a sensor meets with a program in a world as observed.

    Parameters
    ----------
    program
        What it runs.
    observed
        What values of its stream are like.
    loss
        Of its own radio; None takes what was observed of all.
    """
    if program.sleeping:
        return Workload(observed.vehicles_per_second, loss=observed.loss if loss is None else loss)
    found = workload_of(parts_as_parts(program), observed)
    return found if loss is None else replace(found, loss=loss)


def _at_least(need: Need, minimum_period_us: int) -> Need:
    if need.period_us >= minimum_period_us:
        return need
    period_us = -(-minimum_period_us // need.period_us) * need.period_us
    return replace(need, period_us=period_us, patience_us=max(need.patience_us, period_us))


def _wish(classes: Sequence[DemandClass], traits: SensorTraits) -> float:
    """Return how many days the battery should last, by the wish of queries and of its owner; 0 for no wish."""
    wishes_us = [traits.lifetime_us, *(each.demand.lifetime_us for each in classes)]
    return max(wishes_us) / 1e6 / DAY_SECONDS


def _lasting(
    search: Search, needs: Sequence[Need], traits: SensorTraits, wanted_days: float
) -> tuple[Candidate, int, bool]:
    """Return the cheapest program, with periods stretched as little as makes the battery last, as far as queries allow.

    Raises a rate never, and never below what a query states as its slowest.
    """
    best = search.cheapest(needs)
    if traits.days(best.milliwatts) >= wanted_days:
        return best, 1, True
    before, stretched = tuple(needs), 1
    for factor in range(2, LONGEST_STRETCH + 1):
        longer = tuple(_stretched(need, factor) for need in needs)
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


def _stretched(need: Need, factor: int) -> Need:
    """Return a need with its period as many times as long as its author allows, up to `factor`."""
    allowed = max(1, min(factor, need.slowest_us // need.period_us if need.slowest_us else 1))
    if allowed == 1:
        return need
    period_us = need.period_us * allowed
    return replace(need, period_us=period_us, patience_us=max(need.patience_us, period_us))


def _reason(
    found: Candidate, raw: Candidate, classes: Sequence[DemandClass], *, slow: bool, stretched: int, kept: bool
) -> str:
    queries = len({query for each in classes for query in each.queries})
    who = f"for {queries} {'query' if queries == 1 else 'queries'}"
    draw = f"{found.milliwatts:.3g} mW"
    if math.isfinite(raw.milliwatts) and raw.program != found.program:
        draw += f" instead of {raw.milliwatts:.3g} mW for every sample"
    notes = [
        *(["too slow for all samples that are asked for"] if slow else []),
        *([f"sample periods up to {stretched} times as long, to save the battery"] if stretched > 1 else []),
        *([] if kept else ["the battery will not last as long as it should"]),
    ]
    return "; ".join([f"{words_of(found.program)} {who}: {draw}", *notes])
