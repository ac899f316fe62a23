"""The execution of a program, sample by sample: filter, then report; a class for each kind of report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from protocols.wire.packets import Health, Partial, Record, Sample, SampleValue, VehicleEvent, VehicleTally
from protocols.wire.programs import (
    SECOND_US,
    Band,
    Measure,
    Panes,
    SamplingProgram,
    SendOnChange,
    Several,
    VehicleCount,
    VehicleEvents,
    reports_of,
)
from protocols.wire.vehicles import VehicleDetector

Values = tuple[SampleValue, ...]
Stamped = tuple[int, Record]
"""The stamp of a record and the record, whose age is set when it is sent."""


class Reporter(Protocol):
    """Turns samples into records, in stamp order."""

    @property
    def open_us(self) -> int | None:
        """No later record of earlier samples is stamped before this; None if no record is open."""
        ...

    @property
    def suppressed(self) -> int:
        """How many records were left out although events occurred."""
        ...

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes."""
        ...

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open record, cut off at the instant from which no more samples are taken."""
        ...


def in_bands(program: SamplingProgram) -> Callable[[Values], bool]:
    """Return whether values count for a program: each field with bands has to lie in one of them.

    NULL lies in no band.

    Examples
    --------
    >>> counts = in_bands(SamplingProgram(("speed",), 1000, bands=(Band("speed", high=30.0), Band("speed", low=80.0))))
    >>> [counts((speed,)) for speed in (30, 31.0, 90.0, None)]
    [True, False, True, False]
    """
    by_place: dict[int, list[Band]] = {}
    for band in program.bands:
        by_place.setdefault(program.fields.index(band.field), []).append(band)

    def count(values: Values) -> bool:
        return all(_in_one(values[place], bands) for place, bands in by_place.items())

    return count


def _in_one(value: object, bands: Iterable[Band]) -> bool:
    if not isinstance(value, int | float):
        return False
    return any((band.low is None or band.low <= value) and (band.high is None or value <= band.high) for band in bands)


class EverySample:
    """Sends samples unchanged."""

    open_us: int | None = None
    suppressed = 0

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the sample."""
        return [(instant_us, Sample(0, values))]

    def close(self, until_us: int) -> list[Stamped]:
        """Return no records: none is ever open."""
        _ = until_us
        return []


@dataclass(slots=True)
class _Sums:
    """Running measures of one field."""

    count: int = 0
    sum: int | float = 0
    sum_of_squares: int | float = 0
    min: int | float | None = None
    max: int | float | None = None

    def add(self, value: float) -> None:
        self.count += 1
        self.sum += value
        self.sum_of_squares += value * value
        self.min = value if self.min is None or value < self.min else self.min
        self.max = value if self.max is None or value > self.max else self.max

    def measure(self, name: Measure) -> int | float | None:
        found: int | float | None = getattr(self, name.value)
        return found


@dataclass(slots=True)
class _Pane:
    begins_us: int
    ends_us: int
    samples: int
    sums: list[_Sums] = field(default_factory=list)


class PaneReporter:
    """Aggregates samples pane by pane. A pane that began or ended with the program has the period that it covers.

    A pane is stamped with its last instant, or that of the change of program that ended it, so that an open pane does
    not hold back watermarks.

    Parameters
    ----------
    program, report
        The report to make.
    began_us
        Samples before this are not part of it.
    """

    suppressed = 0

    def __init__(self, program: SamplingProgram, report: Panes, began_us: int) -> None:
        self._fields = len(program.fields)
        self._report = report
        self._began_us = began_us
        self._pane: _Pane | None = None

    @property
    def open_us(self) -> int | None:
        """Last instant of the open pane."""
        return None if self._pane is None else self._pane.ends_us - 1

    def pass_by(self, instant_us: int) -> list[Stamped]:
        """Count a sample outside the bands; return the pane that ended before it, if one did.

        The pane of the sample is open from now on: a later sample in the bands will be part of it.
        """
        done = self.close(self._pane.ends_us) if self._pane and instant_us >= self._pane.ends_us else []
        if self._pane is None:
            begins_us = instant_us // self._report.pane_us * self._report.pane_us
            sums = [_Sums() for _ in range(self._fields)]
            self._pane = _Pane(max(begins_us, self._began_us), begins_us + self._report.pane_us, 0, sums)
        return done

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Add a sample; return the pane that ended before it, if one did."""
        done = self.pass_by(instant_us)
        if self._pane is not None:
            self._pane.samples += 1
            for total, value in zip(self._pane.sums, values, strict=True):
                if isinstance(value, int | float):
                    total.add(value)
        return done

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open pane up to now, if it has a sample in the bands."""
        pane, self._pane = self._pane, None
        if pane is None or pane.samples == 0:
            return []
        covered_us = max(min(until_us, pane.ends_us) - pane.begins_us, 1)
        measures = tuple(tuple(sums.measure(name) for name in self._report.measures) for sums in pane.sums)
        return [(min(until_us, pane.ends_us - 1), Partial(0, covered_us, measures, pane.samples))]


class ChangeReporter:
    """Sends samples that differ from the last one sent, and finally the last one, which stands for all before it."""

    open_us: int | None = None
    suppressed = 0

    def __init__(self, program: SamplingProgram, report: SendOnChange) -> None:
        widths = {each.field: each.width for each in report.dead_bands}
        self._widths = [widths.get(name, 0.0) for name in program.fields]
        self._period_us = program.period_us
        self._silence_us = report.maximum_silence_us
        self._sent: tuple[int, Values] | None = None
        self._latest: tuple[int, Values] | None = None

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the sample if it differs enough, or if the longest silence ends."""
        self._latest = (instant_us, values)
        if self._sent is not None:
            sent_us, before = self._sent
            changed = any(map(_left, before, values, self._widths))
            if not changed and instant_us + self._period_us - sent_us <= self._silence_us:
                return []
        self._sent = (instant_us, values)
        return [(instant_us, Sample(0, values))]

    def close(self, until_us: int) -> list[Stamped]:
        """Return the last sample, if it was not sent."""
        _ = until_us
        latest, self._latest = self._latest, None
        return [] if latest is None or latest == self._sent else [(latest[0], Sample(0, latest[1]))]


def _left(before: SampleValue, now: SampleValue, width: float) -> bool:
    """Return whether a value has left the dead band around the previous one."""
    if isinstance(before, int | float) and isinstance(now, int | float):
        return not abs(now - before) <= width  # of NaN, too
    return before != now


class ReportExecution(Protocol):
    """The execution of one report."""

    @property
    def filtered(self) -> int:
        """Samples that were in no band."""
        ...

    @property
    def open_us(self) -> int | None:
        """See :class:`firmware_sim.execution.execution.Reporter`."""
        ...

    @property
    def suppressed(self) -> int:
        """See :class:`firmware_sim.execution.execution.Reporter`."""
        ...

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes."""
        ...

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open record."""
        ...


class SeveralReporter:
    """Passes each sample to the reports that use it.

    Parameters
    ----------
    program
        The program with its reports.
    began_us
        Samples before this are not part of it.
    execute
        Returns the execution of one report.
    """

    def __init__(
        self, program: SamplingProgram, began_us: int, execute: Callable[[SamplingProgram, int], ReportExecution]
    ) -> None:
        self._fields = program.fields
        self._reports = [
            (alone, execute(alone, began_us), [program.fields.index(name) for name in alone.fields])
            for alone in reports_of(program)
        ]

    @property
    def open_us(self) -> int | None:
        """Start of the oldest open record."""
        begun = [execution.open_us for _, execution, _ in self._reports]
        return min((each for each in begun if each is not None), default=None)

    @property
    def suppressed(self) -> int:
        """Sum over the reports."""
        return sum(execution.suppressed for _, execution, _ in self._reports)

    @property
    def filtered(self) -> int:
        """Samples that were in no band of a report, summed over the reports."""
        return sum(execution.filtered for _, execution, _ in self._reports)

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes, the sample itself last."""
        found: list[Stamped] = []
        sent_by = 0
        shown: set[int] = set()
        for number, (alone, execution, places) in enumerate(self._reports):
            if instant_us % alone.period_us:
                continue
            for stamped in execution.take(instant_us, tuple(values[place] for place in places)):
                if isinstance(stamped[1], Sample):
                    sent_by |= 1 << number
                    shown.update(places)
                else:
                    found.append(_of_report(stamped, number))
        found.sort(key=lambda stamped: stamped[0])
        if sent_by:
            found.append((instant_us, Sample(0, tuple(values[place] for place in sorted(shown)), sent_by)))
        return found

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open records of all reports."""
        found = [
            _of_report(stamped, number)
            for number, (_, execution, _) in enumerate(self._reports)
            for stamped in execution.close(until_us)
        ]
        return sorted(found, key=lambda stamped: stamped[0])


def _of_report(stamped: Stamped, number: int) -> Stamped:
    stamp_us, record = stamped
    if isinstance(record, Health):
        return stamped
    if isinstance(record, Sample):
        return stamp_us, msgspec.structs.replace(record, reports=1 << number)
    return stamp_us, msgspec.structs.replace(record, report=number)


class VehicleCountReporter:
    """Sends one number per interval, even if it is zero, stamped with its last instant.

    Parameters
    ----------
    program, report
        The report to make.
    began_us
        Samples before this are not part of it.
    """

    suppressed = 0

    def __init__(self, program: SamplingProgram, report: VehicleCount, began_us: int) -> None:
        self._place = program.fields.index(report.threshold.field)
        self._detector = VehicleDetector(report.threshold)
        self._every_us = report.every_us
        self._begins_us = began_us
        self._ends_us = (began_us // report.every_us + 1) * report.every_us
        self._vehicles = 0

    @property
    def open_us(self) -> int | None:
        """Last instant of the interval."""
        return self._ends_us - 1

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Count; return the interval that ended before this sample, if one did."""
        arrived, _ = self._detector.take(instant_us, values[self._place])
        front_us = self._detector.front_us
        # Its front may have passed after the previous sample, before this interval began.
        before = arrived and front_us is not None and front_us < self._ends_us <= instant_us
        self._vehicles += before
        done: list[Stamped] = []
        while instant_us >= self._ends_us:
            done += self.close(self._ends_us)
        self._vehicles += arrived and not before
        return done

    def close(self, until_us: int) -> list[Stamped]:
        """Return the count so far, and begin a new interval."""
        begins_us, ends_us, vehicles = self._begins_us, self._ends_us, self._vehicles
        if until_us <= begins_us:
            return []
        self._begins_us, self._vehicles = until_us, 0
        self._ends_us = (until_us // self._every_us + 1) * self._every_us
        return [(min(until_us, ends_us - 1), VehicleTally(0, min(until_us, ends_us) - begins_us, vehicles))]


class VehicleEventReporter:
    """Sends the arrival of each vehicle's front and how long it took to pass; at most so many a second."""

    def __init__(self, program: SamplingProgram, report: VehicleEvents) -> None:
        self._place = program.fields.index(report.threshold.field)
        self._detector = VehicleDetector(report.threshold)
        self._most = report.at_most_per_second
        self._second = -(2**62)
        self._in_second = 0
        self.suppressed = 0

    @property
    def open_us(self) -> int | None:
        """The arrival of the vehicle over the sensor, or the last sample without one."""
        return self._detector.open_us

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the vehicle whose rear has just left, if one has."""
        _, passing = self._detector.take(instant_us, values[self._place])
        if passing is None:
            return []
        second = passing.front_us // SECOND_US
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second > self._most:
            self.suppressed += 1
            return []
        return [(passing.front_us, VehicleEvent(0, passing.rear_us - passing.front_us))]

    def close(self, until_us: int) -> list[Stamped]:
        """Return no records: a vehicle that is still over the sensor has no second time."""
        _ = until_us
        self.suppressed += self._detector.front_us is not None
        return []


class Execution:
    """Executes one program from its first sample on.

    Parameters
    ----------
    program
        The program; not one that sleeps.
    began_us
        Instant of the first sample.
    """

    def __init__(self, program: SamplingProgram, began_us: int) -> None:
        self._counts = in_bands(program) if program.bands else None
        self._reporter = _reporter(program, began_us)
        self._filtered = 0

    @property
    def filtered(self) -> int:
        """Samples that were in no band."""
        return self._filtered + (self._reporter.filtered if isinstance(self._reporter, SeveralReporter) else 0)

    @property
    def open_us(self) -> int | None:
        """No later record of earlier samples is stamped before this; None if no record is open."""
        return self._reporter.open_us

    @property
    def suppressed(self) -> int:
        """Records that were left out although events occurred."""
        return self._reporter.suppressed

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes."""
        if self._counts is None or self._counts(values):
            return self._reporter.take(instant_us, values)
        self._filtered += 1
        if isinstance(self._reporter, PaneReporter):
            return self._reporter.pass_by(instant_us)
        return []

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open record, cut off at the instant from which no more samples are taken."""
        return self._reporter.close(until_us)


def _reporter(program: SamplingProgram, began_us: int) -> Reporter:
    match program.report:
        case None:
            return EverySample()
        case SendOnChange():
            return ChangeReporter(program, program.report)
        case Panes():
            return PaneReporter(program, program.report, began_us)
        case VehicleEvents():
            return VehicleEventReporter(program, program.report)
        case Several():
            return SeveralReporter(program, began_us, Execution)
        case VehicleCount():
            return VehicleCountReporter(program, program.report, began_us)
