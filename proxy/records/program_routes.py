"""Which queries the records of a program answer, its panes and events included. Pure.

**The latest sampling programs of a proxy, by number.**

Samples carry no field names, only the number of the program under which they were taken. A mote may deliver samples of
an older program long after a newer one was sent, so the last programs are kept, also over a restart.

**Panes that are open when needs change: their samples and their aggregates stay together.**

A sample that a proxy has passed on says which aggregates contain it. When needs change in the middle of a pane, the
aggregate of that pane, which comes later, must still go where its first samples say; and one that contains samples
which were passed on as samples must not begin to count for the same queries. So routes change at the end of a pane.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from protocols.acquisition.needs import DemandClass, Need, NeedKind, aggregates_the_same, answers
from protocols.wire.frames import Value
from protocols.wire.programs import (
    SLEEP,
    Panes,
    SamplingProgram,
    SendOnChange,
    Threshold,
    VehicleCount,
    VehicleEvents,
    program_number,
    reports_of,
)
from protocols.wire.vehicles import VehicleDetector
from proxy.records.waiting_tuples import Aggregated

Needs = tuple[tuple[Need, tuple[DemandClass, ...]], ...]


@dataclass(frozen=True, slots=True)
class Detection:
    """Events that the proxy has to find in samples, as the mote does not.

    Parameters
    ----------
    report
        Number of the report whose samples are searched.
    period_us
        Samples at whole multiples of this are; of published tuples the first of each period, and all if it is 0.
    threshold
        What an event is.
    event_fingerprints, count_fingerprints
        Push-down fingerprints under which each event is reported: as an event, and as a count of one.
    """

    report: int
    period_us: int
    threshold: Threshold
    event_fingerprints: tuple[str, ...]
    count_fingerprints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Routes:
    """Where the records of one program go.

    Parameters
    ----------
    fingerprints
        By report: those under which its events are reported, and those for its aggregates and counts.
    covered_by
        Fingerprints of the aggregates that already contain the samples of this mote; None for none.
    detections
        Events to find in its samples.
    forwards_samples
        False if no query needs the samples themselves.
    periods_us
        Samples that are stamped at a multiple of one of these are needed; empty if all are.
    wants_unknown
        Whether a query gets NULLs where samples were left out and cannot be filled in.
    """

    fingerprints: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    covered_by: str | None = None
    detections: tuple[Detection, ...] = ()
    forwards_samples: bool = True
    periods_us: tuple[int, ...] = ()
    wants_unknown: bool = False


FindRoutes = Callable[[SamplingProgram, Needs], Routes]


def routes_of(program: SamplingProgram, needs: Needs) -> Routes:
    """Return the routes of a program under the present needs; the program may be older than they are."""
    reports = reports_of(program)
    reported: list[tuple[list[str], list[str]]] = [([], []) for _ in reports]
    covered_by: list[str] = []
    detections: dict[tuple[int, int, Threshold], tuple[list[str], list[str]]] = {}
    periods_us: set[int] = set()
    for need, classes in needs:
        names = list(dict.fromkeys(each.fingerprint for each in classes if each.fingerprint))
        number = _report_for(reports, need)
        if need.kind is NeedKind.SAMPLES:
            periods_us.add(need.period_us)
        elif need.kind is NeedKind.PANES:
            if number is None or not isinstance(reports[number].report, Panes):
                periods_us.add(need.period_us)
            else:
                reported[number][1].extend(names)
                covered_by += names
        elif number is not None and need.threshold is not None:
            as_counts = int(need.kind is NeedKind.TALLIES)
            if isinstance(reports[number].report, VehicleEvents | VehicleCount):
                reported[number][as_counts].extend(names)
            else:
                found = detections.setdefault((number, need.period_us, need.threshold), ([], []))
                found[as_counts].extend(names)
    # Where every sample is needed, no stamp has to be checked.
    every = any(alone.period_us in periods_us for alone in reports if _sends_samples(alone))
    return Routes(
        tuple((tuple(events), tuple(counts)) for events, counts in reported),
        " ".join(sorted(set(covered_by))) or None,
        tuple(
            Detection(number, period_us, threshold, tuple(events), tuple(counts))
            for (number, period_us, threshold), (events, counts) in detections.items()
        ),
        bool(periods_us) or not needs,
        () if every else tuple(sorted(periods_us)),
        any(need.silence_us for need, _ in needs),
    )


def _report_for(reports: Iterable[SamplingProgram], need: Need) -> int | None:
    """Return the number of the one report whose records answer a need; None if only samples come near it.

    Panes of just the samples that it needs are reported under its fingerprint even if they were made for another
    query, with another width, say: the reader checks whether they fit.
    """
    numbered = list(enumerate(reports))
    aggregates = [(number, alone) for number, alone in numbered if not _sends_samples(alone)]
    samples = [(number, alone) for number, alone in numbered if _sends_samples(alone)]
    for number, alone in (*aggregates, *samples):
        if answers(alone, need):
            return number
    for number, alone in aggregates:
        if need.kind is NeedKind.PANES and aggregates_the_same(alone, need):
            return number
    return None


def _sends_samples(alone: SamplingProgram) -> bool:
    return alone.report is None or isinstance(alone.report, SendOnChange)


MOST_PROGRAMS = 1_000
"""Programs that are kept. A number is derived from the content, so all motes share them."""
MOST_ROUTES = 256
"""Pairs of a program and needs whose routes are kept: few for each kind of mote."""


class ProgramTable:
    """Programs by number; the least recently demanded is removed first.

    Parameters
    ----------
    programs
        From before a restart, the most recently demanded last.
    most
        How many are kept.
    """

    def __init__(self, programs: Iterable[SamplingProgram] = (), *, most: int = MOST_PROGRAMS) -> None:
        self._programs: OrderedDict[int, SamplingProgram] = OrderedDict()
        self._most = most
        self._routes: OrderedDict[tuple[int, int], tuple[SamplingProgram, Needs, Routes]] = OrderedDict()
        for program in programs:
            self.note(program)

    def note(self, program: SamplingProgram) -> int:
        """Keep `program` and return its number."""
        number = program_number(program)
        if program != SLEEP:
            self._programs[number] = program
            self._programs.move_to_end(number)
            if len(self._programs) > self._most:
                self._programs.popitem(last=False)
        return number

    def get(self, number: int) -> SamplingProgram | None:
        """Return the program with this number, None if it is not known."""
        return SLEEP if number == 0 else self._programs.get(number)

    def routes(self, program: SamplingProgram, needs: Needs) -> Routes:
        """Return the routes of a program under needs; motes that share these very objects share their routes."""
        key = id(program), id(needs)
        found = self._routes.get(key)
        if found is None:
            # The objects are kept with their routes, so that no others can have their identities.
            found = self._routes[key] = program, needs, routes_of(program, needs)
            if len(self._routes) > MOST_ROUTES:
                self._routes.popitem(last=False)
        return found[2]

    def __len__(self) -> int:
        return len(self._programs)


MOST_CHANGES = 4
"""For so many former routes it is known until when they held: an aggregate may arrive behind samples of later panes."""


class OpenPanes:
    """The panes of one program of one mote.

    Parameters
    ----------
    reports
        Of the program.
    """

    def __init__(self, reports: Sequence[SamplingProgram]) -> None:
        self._widths_us = {
            number: alone.report.pane_us for number, alone in enumerate(reports) if isinstance(alone.report, Panes)
        }
        self._kept: dict[int, list[tuple[int, tuple[str, ...]]]] = {number: [] for number in self._widths_us}
        self._latest_us: int | None = None

    def note(self, clock_us: int) -> None:
        """Note what the mote's clock showed in a packet: none of its records so far is stamped later."""
        if self._latest_us is None or clock_us > self._latest_us:
            self._latest_us = clock_us

    def change(self, former: Routes, routes: Routes, demanded: frozenset[str]) -> None:
        """Let routes change with the next pane of each report.

        Parameters
        ----------
        former, routes
            Until now, and from now on.
        demanded
            The fingerprints that are still demanded; nothing more goes to others.
        """
        latest_us = self._latest_us
        if latest_us is None:
            return
        for number, width_us in self._widths_us.items():
            kept, names = self._kept[number], former.fingerprints[number][1]
            is_open = bool(kept) and latest_us < kept[-1][0]
            if set(names) != set(routes.fingerprints[number][1]) and not is_open:
                kept.append(((latest_us // width_us + 1) * width_us, names))
                del kept[:-MOST_CHANGES]
            kept[:] = [(until_us, tuple(each for each in under if each in demanded)) for until_us, under in kept]

    def names(self, number: int, stamp_us: int, routes: Routes) -> tuple[str, ...]:
        """Return the fingerprints under which an aggregate of a report is passed on."""
        for until_us, names in self._kept.get(number, ()):
            if stamp_us < until_us:
                return names
        return routes.fingerprints[number][1]

    def covered_by(self, stamp_us: int, routes: Routes) -> str | None:
        """Return the fingerprints of the aggregates that contain a sample; None for none."""
        if not any(kept and stamp_us < kept[-1][0] for kept in self._kept.values()):
            return routes.covered_by
        found = {name for number in self._kept for name in self.names(number, stamp_us, routes)}
        return " ".join(sorted(found)) or None


class EventDetection:
    """The state of one detector for one mote.

    Parameters
    ----------
    detection
        What it finds.
    published
        Whether the samples are tuples that a device stamped at instants of its own. Then it looks at the first tuple of
        each period; of a device that publishes freely, at all if no period is demanded.
    """

    def __init__(self, detection: Detection, *, published: bool = False) -> None:
        self.detection = detection
        self._published = published
        self._latest_us: int | None = None
        """Stamp of the last published tuple that the detector has looked at."""
        self._detector = VehicleDetector(detection.threshold)

    @property
    def open_us(self) -> int | None:
        """No later event is stamped before this; None if no event has begun."""
        return self._detector.open_us

    def lost(self) -> None:
        """Note that a packet is missing: an event that began before it cannot be continued."""
        self._detector = VehicleDetector(self.detection.threshold)

    def sample(self, instant_us: int, value: Value) -> Iterator[tuple[int, Aggregated]]:
        """Yield the events that a sample completes, with their stamps."""
        if isinstance(value, str) or not self._looks_at(instant_us):
            return
        arrived, passing = self._detector.take(instant_us, value)
        front_us = self._detector.front_us if passing is None else passing.front_us
        if arrived and front_us is not None:
            for fingerprint in self.detection.count_fingerprints:
                yield front_us, Aggregated(fingerprint, pane_us=1, samples=1)
        if passing is not None:
            for fingerprint in self.detection.event_fingerprints:
                yield passing.front_us, Aggregated(fingerprint, pane_us=passing.rear_us - passing.front_us, samples=1)

    def _looks_at(self, instant_us: int) -> bool:
        period_us = self.detection.period_us
        if not self._published:
            return instant_us % period_us == 0
        latest_us = self._latest_us
        # A detector needs its samples in order: one that comes behind a later one is in no event.
        if latest_us is not None and (instant_us < latest_us or _share_period(latest_us, instant_us, period_us)):
            return False
        self._latest_us = instant_us
        return True


def _share_period(one_us: int, other_us: int, period_us: int) -> bool:
    return period_us > 0 and one_us // period_us == other_us // period_us
