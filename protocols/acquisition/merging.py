"""Demands of all queries on a stream -> each sensor's sampling program: the cheapest in joules that answers them.

**The need of packets from motes that have nothing to report, so that answers do not wait long for them.**

A stream is complete up to an instant when each of its motes has promised to send nothing earlier, and a mote promises
with its packets. One whose samples are in no band sends none until it polls, seconds later, and all answers wait for
it. A count of its samples in short panes, which no query reads, is the least that it can send earlier.

In the paper the proxy takes the highest rate that any query demands (papers/fjords.md section 3); here it compares the
costs of the ways to answer, and shows the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from protocols.acquisition.effort import FEW_STEPS, MOST_STEPS, MOST_STEPS_TOGETHER, STEPS_AT_ONCE, Effort, SharedEffort
from protocols.acquisition.needs import DemandClass, FoldedDemands, Need, NeedKind, found_in_samples, needs_of
from protocols.acquisition.observed import Observed
from protocols.acquisition.pricing import Candidate, Sensor, workload_of
from protocols.acquisition.program_reports import DAY_SECONDS, ProgramStyle, SensorTraits, reports_in, sampling_report
from protocols.acquisition.search import Search, Searches, lasting, stretched_need
from protocols.acquisition.words import words_of
from protocols.errors import OverloadError, ProgramError
from protocols.event_log import get_logger
from protocols.power.estimate import Workload, draw_mw
from protocols.wire.demands import RefusedDemand
from protocols.wire.frames import LONGEST_PERIOD_US, Value
from protocols.wire.packets import MAX_PROGRAM_BYTES, is_too_long
from protocols.wire.programs import SLEEP, SamplingProgram
from protocols.wire.streams import FieldName


def need_of_reports(
    needs: Iterable[Need], style: ProgramStyle, order: tuple[FieldName, ...], minimum_period_us: int
) -> tuple[Need, ...]:
    """Return the need of a packet from a sensor at least as often as its deployer chose; none without such a choice.

    It samples nothing that others do not need, and its period grows with theirs to save the battery.

    Parameters
    ----------
    needs
        All others.
    style
        How often, and how many records may wait for a packet. A sensor that samples less often reports every sample.
    order
        The sampled fields, at least one.
    minimum_period_us
        The fastest that the sensor can sample.
    """
    known = tuple(needs)
    if not known or not style.longest_silence_us:
        return ()
    fastest = min(known, key=lambda each: (each.period_us, repr(each)))
    period_us = -(-minimum_period_us // fastest.period_us) * fastest.period_us
    periods = max(1, style.longest_silence_us // period_us)
    # A pane that waits for a full packet is as old as both together.
    waiting = min(style.samples_per_packet, periods // 2) if style.samples_per_packet > 1 else 0
    read = (*fastest.fields, *(name for name, _ in fastest.bands), *order)
    return (
        Need(
            NeedKind.PANES,
            read[:1],
            period_us,
            tolerances=tuple(each for each in fastest.tolerances if each[0] == read[0]),
            pane_us=(periods - waiting) * period_us,
            patience_us=waiting * period_us,
            slowest_us=min(max(each.slowest_us, each.period_us) for each in known),
        ),
    )


log = get_logger(__name__)

MOST_NAMED = 8
"""The most queries in a line of the log."""
LONGEST_WORDS = 1_500
"""The most characters of a program in words."""
LONGEST_REASON = 200
"""The most characters of another library's error."""


@dataclass(frozen=True, slots=True)
class MergedProgram:
    """A sensor's program, and the reason for it in figures and words.

    Parameters
    ----------
    program
        The sensor's new program.
    reason
        One sentence.
    milliwatts
        Mean draw.
    stretched
        The factor by which sample periods are longer than demanded, to save the battery; 1 for unchanged.
    lifetime_kept
        False if even the longest periods that queries allow do not let the battery last as long as it should.
    needs
        The needs that it answers, as demanded, with the demands that they come from.
    left_out
        Demands that could not be merged; the program does not answer them.
    """

    program: SamplingProgram
    reason: str
    milliwatts: float = 0.0
    stretched: int = 1
    lifetime_kept: bool = True
    needs: tuple[tuple[Need, tuple[DemandClass, ...]], ...] = ()
    left_out: tuple[RefusedDemand, ...] = ()


class Merger:
    """Merges the demands on one stream for its sensors; caches the programs of sensors with the same traits.

    Parameters
    ----------
    demands
        Folded.
    style
        The deployer's choices.
    observed
        Statistics of the stream's values.
    searches
        From earlier demands on the stream; they have their own copy of what was observed.
    before
        What was merged for the stream until now: a sensor whose program and needs stay the same keeps the very object.
    """

    def __init__(
        self,
        demands: FoldedDemands,
        style: ProgramStyle,
        observed: Observed | None = None,
        *,
        searches: Searches | None = None,
        before: Merger | None = None,
    ) -> None:
        self.demands = demands
        self.style = style
        self.searches = searches or Searches(style, observed or Observed())
        self._known: dict[tuple[tuple[int, ...], SensorTraits], MergedProgram] = {}
        self._alike: dict[tuple[tuple[Value, ...], SensorTraits], MergedProgram] = {}
        """By the properties that demands look at: the motes that are alike."""
        comparable = before is not None and before.demands.looked_at == demands.looked_at
        self._before = before._alike if before is not None and comparable else {}  # noqa: SLF001 - of its own class
        self._effort = SharedEffort()
        self._under_way = Effort()
        self.left_out: dict[str, RefusedDemand] = {}
        """By query: demands that could not be merged, for one sensor at least."""
        self.hurried = False
        """Whether a program was wanted at once, so that a cheaper one may be found in more time."""

    def merge(self, traits: SensorTraits, properties: Mapping[str, Value], *, at_once: bool = False) -> MergedProgram:
        """Return the program of a sensor; with `at_once` the best that a short search finds."""
        alike = (tuple(map(properties.get, self.demands.looked_at)), traits)
        found = self._alike.get(alike)
        if found is None:
            found, before = self._merged_once(traits, properties, at_once=at_once), self._before.get(alike)
            found = self._alike[alike] = found if before is None or before != found else before
        return found

    def hurry(self) -> None:
        """Let the thread that merges take the best programs found so far, from another thread."""
        self._effort.settle(MOST_STEPS_TOGETHER)
        self._under_way.spend(MOST_STEPS)

    def _merged_once(self, traits: SensorTraits, properties: Mapping[str, Value], *, at_once: bool) -> MergedProgram:
        """Return the program of a sensor; those that the same demands concern share it."""
        concerning = self.demands.concerning(properties)
        key = (concerning, traits)
        found = self._known.get(key)
        if found is None:
            classes = [self.demands.classes[place] for place in concerning]
            effort = self._effort.share()
            if at_once:
                effort = Effort(min(effort.left, STEPS_AT_ONCE))
            self._under_way, began = effort, effort.left
            found = self._known[key] = self._safely_merged(classes, traits, effort)
            self.hurried |= at_once and effort.exhausted
            self._effort.settle(began - effort.left)
            for each in found.left_out:
                self.left_out.setdefault(each.query, each)
        return found

    def _safely_merged(self, classes: Sequence[DemandClass], traits: SensorTraits, effort: Effort) -> MergedProgram:
        """Merge demands; those that cannot be merged are left out, and do not affect other queries."""
        try:
            return self._merged(classes, traits, effort)
        except Exception as error:  # demands come from outside: none of them may stop the proxy
            log.warning(
                "demands cannot be merged",
                queries=_queries_of(classes)[:MOST_NAMED],
                error=_text_of(error),
                exc_info=error,
            )
            problem = error
        kept: list[DemandClass] = []
        left_out: list[RefusedDemand] = []
        for each in classes:
            try:
                self._merged((each,), traits, Effort(FEW_STEPS))
            except Exception as error:  # noqa: BLE001 - as above; the demand is refused, with the reason
                left_out += [RefusedDemand(query, f"it cannot be merged: {_text_of(error)}") for query in each.queries]
            else:
                kept.append(each)
        for merge in (partial(self._merged, effort=effort), self._every_sample):
            try:
                return replace(merge(kept, traits), left_out=tuple(left_out))
            except Exception as error:  # noqa: BLE001 - as above; the next way is a simpler one
                problem = error
        reason = f"together they cannot be merged: {_text_of(problem)}"
        left_out += [RefusedDemand(query, reason) for query in _queries_of(kept)]
        return replace(self._asleep("no demand can be answered", traits), left_out=tuple(left_out))

    def _every_sample(self, classes: Sequence[DemandClass], traits: SensorTraits) -> MergedProgram:
        """Return the simplest program that answers all demands: it sends every sample, at the highest rate demanded."""
        schema = self.demands.schema
        if not classes or schema is None:
            return self._asleep("no query demands it", traits)
        order = tuple(each.name for each in schema.sampled)
        demanded = needs_of(classes, schema, traits.default_period_us, self.style.samples_per_packet)
        report = sampling_report([_at_least(need, traits.minimum_period_us) for need in demanded], order)
        tick_us = (
            report.every_us
            if report.every_us >= traits.minimum_period_us
            else max(traits.minimum_period_us, min(each.period_us for each in demanded))
        )
        program = _carried(SamplingProgram(report.fields, tick_us, listen=self.style.listen))
        return MergedProgram(program, f"{words_of(program)}, as a fallback", needs=tuple(demanded.items()))

    def _merged(self, classes: Sequence[DemandClass], traits: SensorTraits, effort: Effort) -> MergedProgram:
        schema = self.demands.schema
        if not classes or schema is None:
            return self._asleep("no query demands it", traits)
        order = tuple(each.name for each in schema.sampled)
        if not order:
            return self._asleep("its stream has no field to sample", traits)
        demanded = needs_of(classes, schema, traits.default_period_us, self.style.samples_per_packet)
        sensor = Sensor(order, traits.minimum_period_us, traits.profile, traits.abilities)
        reports = need_of_reports(demanded, self.style, order, traits.minimum_period_us)
        with self.searches.lend(sensor, effort) as search:
            needs, slow = within_reach((*self._wanted(demanded, traits), *reports), traits.minimum_period_us, search)
            found, stretched, kept = lasting(search, needs, traits, _lifetime_days(classes, traits))
            raw = search.raw([stretched_need(need, stretched) for need in needs])
        return MergedProgram(
            _carried(found.program),
            _reason(found, raw, classes, slow=slow, stretched=stretched, kept=kept),
            found.milliwatts,
            stretched,
            kept,
            tuple(demanded.items()),
        )

    def _wanted(self, needs: Iterable[Need], traits: SensorTraits) -> Iterable[Need]:
        """Return needs as wanted of a sensor: one that detects no events packs its samples as for any query."""
        if traits.abilities.detects_events:
            return needs
        return (found_in_samples(need, self.style.samples_per_packet) for need in needs)

    def _asleep(self, why: str, traits: SensorTraits) -> MergedProgram:
        """Return the program of a sleeping sensor; it listens as often as one that samples, so that it can be woken."""
        listen = self.style.listen
        program = SLEEP if listen == SLEEP.listen else SamplingProgram(listen=listen)
        milliwatts = draw_of(program, traits, self.searches.observed)
        return MergedProgram(program, f"{why}: sleep", milliwatts)


def within_reach(needs: Sequence[Need], minimum_period_us: int, search: Search) -> tuple[tuple[Need, ...], bool]:
    """Return the needs as a sensor can answer them, and whether it is too slow for some of them.

    A sensor that is too slow for a period samples at the shortest multiple of it that it can. If it is also too slow
    for all samples of several periods, it samples at the shortest, and the others get the samples that coincide.
    """
    possible = tuple(_at_least(need, minimum_period_us) for need in needs)
    slow = possible != tuple(needs)
    if math.isfinite(search.cheapest(possible).milliwatts):
        return possible, slow
    tick_us = min(need.period_us for need in possible)
    return tuple(replace(need, period_us=_common(tick_us, need.period_us)) for need in possible), True


def _common(tick_us: int, period_us: int) -> int:
    """Return the period of the samples that two periods have in common; every tick if there are hardly any."""
    together_us = math.lcm(tick_us, period_us)
    return together_us if together_us <= LONGEST_PERIOD_US else tick_us


def draw_of(program: SamplingProgram, traits: SensorTraits, observed: Observed) -> float:
    """Return the mean draw of a program on a sensor, in milliwatts; infinite if it cannot run it."""
    try:
        return float(draw_mw(traits.profile, program, workload_for(program, observed)).sum())
    except OverloadError:
        return math.inf


def workload_for(program: SamplingProgram, observed: Observed, *, loss: float | None = None) -> Workload:
    """Return the workload of a program on a sensor, by the values observed.

    Parameters
    ----------
    program
        The program.
    observed
        Statistics of the values of its stream.
    loss
        Of its own radio; None takes the loss observed of all sensors.
    """
    if program.sleeping:
        return Workload(observed.vehicles_per_second, loss=observed.loss if loss is None else loss)
    found = workload_of(reports_in(program), observed)
    return found if loss is None else replace(found, loss=loss)


def _at_least(need: Need, minimum_period_us: int) -> Need:
    if need.period_us >= minimum_period_us:
        return need
    period_us = -(-minimum_period_us // need.period_us) * need.period_us
    return replace(need, period_us=period_us, patience_us=max(need.patience_us, period_us))


def _lifetime_days(classes: Sequence[DemandClass], traits: SensorTraits) -> float:
    """Return how many days the battery should last, by lifetime hints of queries and its owner; 0 for no hint."""
    wishes_us = [traits.lifetime_us, *(each.demand.lifetime_us for each in classes)]
    return max(wishes_us) / 1e6 / DAY_SECONDS


def _carried(program: SamplingProgram) -> SamplingProgram:
    """Return a program if it can be sent to a sensor.

    Raises
    ------
    ProgramError
        If it is too long.
    """
    try:
        too_long = is_too_long(program)
    except OverflowError as error:
        raise ProgramError(f"a program has a period beyond 64 bits: {words_of(program)}") from error
    if too_long:
        raise ProgramError(f"a program is longer than the {MAX_PROGRAM_BYTES:,} bytes that a sensor takes")
    return program


def _queries_of(classes: Iterable[DemandClass]) -> list[str]:
    return sorted({query for each in classes for query in each.queries})


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST_REASON]


def _reason(
    found: Candidate, raw: Candidate, classes: Sequence[DemandClass], *, slow: bool, stretched: int, kept: bool
) -> str:
    queries = len({query for each in classes for query in each.queries})
    readers = f"for {queries} {'query' if queries == 1 else 'queries'}"
    draw = f"{found.milliwatts:.3g} mW"
    if math.isfinite(raw.milliwatts) and raw.program != found.program:
        draw += f" instead of {raw.milliwatts:.3g} mW for every sample"
    notes = [
        *(["too slow for all samples that are asked for"] if slow else []),
        *([f"sample periods up to {stretched} times as long, to save the battery"] if stretched > 1 else []),
        *([] if kept else ["the battery will not last as long as it should"]),
    ]
    words = words_of(found.program)
    if len(words) > LONGEST_WORDS:
        words = f"{words[:LONGEST_WORDS]} ..."
    return "; ".join([f"{words} {readers}: {draw}", *notes])
