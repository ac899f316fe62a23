"""Which queries the records of a program answer, and under which push-down fingerprints. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from protocols.acquisition.covering import aggregates_the_same, answers
from protocols.acquisition.needs import DemandClass, Need, NeedKind
from protocols.wire.programs import (
    Panes,
    SamplingProgram,
    SendOnChange,
    Threshold,
    VehicleCount,
    VehicleEvents,
    reports_of,
)

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
