"""Which queries the records of a program answer, and in what form they are told. Pure."""

from __future__ import annotations

from collections.abc import Iterable
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
    parts_of,
)

Needs = tuple[tuple[Need, tuple[DemandClass, ...]], ...]


@dataclass(frozen=True, slots=True)
class Detection:
    """Events that the proxy has to find in samples, as the mote does not.

    Parameters
    ----------
    part
        Number of the part whose samples are looked at, at whole multiples of `period_us`.
    threshold
        What an event is.
    event_fingerprints, count_fingerprints
        In which each event is told: as an event, and as one more of them.
    """

    part: int
    period_us: int
    threshold: Threshold
    event_fingerprints: tuple[str, ...]
    count_fingerprints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Routes:
    """What becomes of the records of one program.

    Parameters
    ----------
    forms
        By part: in which its aggregates and events are told, apart: as events, and as numbers of them.
    excepted
        Forms whose aggregates contain the samples of this mote already; None for none.
    detections
        Events to find in its samples.
    forwards_samples
        False if nobody needs the samples themselves.
    periods_us
        Samples that are stamped at a multiple of one of these are needed.
    """

    forms: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    excepted: str | None = None
    detections: tuple[Detection, ...] = ()
    forwards_samples: bool = True
    periods_us: tuple[int, ...] = ()


def routes_of(program: SamplingProgram, needs: Needs) -> Routes:
    """Return the routes of a program under today's needs; it may be an older one than they led to."""
    parts = parts_of(program)
    told: list[tuple[list[str], list[str]]] = [([], []) for _ in parts]
    excepted: list[str] = []
    detections: dict[tuple[int, int, Threshold], tuple[list[str], list[str]]] = {}
    periods_us: set[int] = set()
    for need, classes in needs:
        forms = [each.form for each in classes if each.form]
        names = list(dict.fromkeys(forms))
        number = _part_for(parts, need)
        if need.kind is NeedKind.SAMPLES:
            periods_us.add(need.period_us)
        elif need.kind is NeedKind.PANES:
            if number is None or not isinstance(parts[number].report, Panes):
                periods_us.add(need.period_us)
            else:
                told[number][1].extend(names)
                excepted += names
        elif number is not None and need.threshold is not None:
            as_tallies = int(need.kind is NeedKind.TALLIES)
            if isinstance(parts[number].report, VehicleEvents | VehicleCount):
                told[number][as_tallies].extend(names)
            else:
                found = detections.setdefault((number, need.period_us, need.threshold), ([], []))
                found[as_tallies].extend(names)
    # Where every tick is wanted, nobody need look.
    some = () if any(part.period_us in periods_us for part in parts if _sends_samples(part)) else sorted(periods_us)
    return Routes(
        tuple((tuple(events), tuple(tallies)) for events, tallies in told),
        " ".join(sorted(set(excepted))) or None,
        tuple(
            Detection(number, period_us, threshold, tuple(events), tuple(tallies))
            for (number, period_us, threshold), (events, tallies) in detections.items()
        ),
        bool(periods_us) or not needs,
        tuple(some),
    )


def _part_for(parts: Iterable[SamplingProgram], need: Need) -> int | None:
    """Return the one part whose records tell what a need is about; None if only samples come near it.

    Panes of the very samples it is about are told in its form even if they are not as it would have them, being made
    for somebody else: who reads them sees whether they fit.
    """
    numbered = list(enumerate(parts))
    aggregates = [(number, part) for number, part in numbered if not _sends_samples(part)]
    samples = [(number, part) for number, part in numbered if _sends_samples(part)]
    for number, part in (*aggregates, *samples):
        if answers(part, need):
            return number
    for number, part in aggregates:
        if need.kind is NeedKind.PANES and aggregates_the_same(part, need):
            return number
    return None


def _sends_samples(part: SamplingProgram) -> bool:
    return part.report is None or isinstance(part.report, SendOnChange)
