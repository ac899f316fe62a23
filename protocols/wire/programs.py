"""Sampling programs: the work of a mote, as data.

A program states which fields to sample, how often, which values are of interest, how they are reported (every sample,
only changes, partial aggregates, vehicles, a count), how many of them make a packet and when the radio listens.
"""

from __future__ import annotations

import zlib
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.errors import ProgramError
from protocols.text.quantities import format_duration
from protocols.wire.frames import DurationMicroseconds, PositiveMicroseconds
from protocols.wire.streams import FieldName, StreamSchema

SECOND_US = 1_000_000


class ListenSchedule(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """When the mote's radio listens, on the radio's own clock (real time, even when sample time is replayed faster).

    Parameters
    ----------
    every_us
        At least this long between the starts of two listen windows. A window follows a packet; a mote with nothing to
        send for this long polls: it sends an empty packet.
    for_us
        Length of one window. The paper needs a few tens of milliseconds a second (papers/fjords.md section 3).
    """

    every_us: PositiveMicroseconds = 2 * SECOND_US
    for_us: PositiveMicroseconds = 100_000

    def __post_init__(self) -> None:
        if self.for_us > self.every_us:
            raise ProgramError(
                f"listen windows of {format_duration(self.for_us)} every {format_duration(self.every_us)} overlap",
                hint="make them shorter or less frequent",
            )


class Band(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Values of a field that a query needs: from `low` to `high`, both included; None is unbounded.

    Raises
    ------
    ProgramError
        If no value lies in it.
    """

    field: FieldName
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and not self.low <= self.high:
            raise ProgramError(f"no value of {self.field!r} lies between {self.low} and {self.high}")


class DeadBand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A field that counts as changed when it differs by more than `width` from what was last sent."""

    field: FieldName
    width: Annotated[float, Meta(ge=0)]


class SendOnChange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0):
    """Send a sample only when a field left its dead band, or after a long silence.

    Parameters
    ----------
    dead_bands
        At most one per sampled field; a field without one counts as changed when it is not equal.
    maximum_silence_us
        A sample is sent at the latest this much sample time after the previous one.
    """

    dead_bands: Annotated[tuple[DeadBand, ...], Meta(max_length=256)]
    maximum_silence_us: PositiveMicroseconds


class Measure(StrEnum):
    """A measure of a field that a partial aggregate may have."""

    COUNT = "count"
    """How many values were not NULL."""
    SUM = "sum"
    SUM_OF_SQUARES = "sum_of_squares"
    MIN = "min"
    MAX = "max"


class Panes(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """Send partial aggregates, one per pane, instead of samples.

    Parameters
    ----------
    pane_us
        Panes begin at whole multiples of this much sample time, as samples do.
    measures
        The measures of every sampled field; the number of samples in a pane is always reported.
    """

    pane_us: PositiveMicroseconds
    measures: Annotated[tuple[Measure, ...], Meta(max_length=5)] = (
        Measure.COUNT,
        Measure.SUM,
        Measure.MIN,
        Measure.MAX,
    )


class Threshold(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The time that a vehicle is over the sensor: from the field rising to `above` until it falls to `below`.

    Raises
    ------
    ProgramError
        If the two are the wrong way round.
    """

    field: FieldName
    above: float
    below: float

    def __post_init__(self) -> None:
        if not self.below <= self.above:
            raise ProgramError(f"a vehicle that comes at {self.above} cannot leave at {self.below}, which is higher")


class VehicleEvents(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """Send a pair of times per vehicle: its front arrives, its rear leaves (papers/fjords.md section 6).

    Parameters
    ----------
    threshold
        When a vehicle is over the sensor.
    at_most_per_second
        Further vehicles in one second of sample time are counted by the mote and not sent; the paper has five.
    """

    threshold: Threshold
    at_most_per_second: Annotated[int, Meta(ge=1, le=1000)] = 5


class VehicleCount(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """Send how many vehicles arrived in each interval of sample time."""

    threshold: Threshold
    every_us: PositiveMicroseconds = SECOND_US


PlainReportKind = SendOnChange | Panes | VehicleEvents | VehicleCount
MOST_REPORTS = 16
MOST_PER_PACKET = 1_024


class ProgramReport(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One of several reports that a mote makes of the same samples.

    Parameters
    ----------
    fields
        The fields that it reports: some of the program's fields, in their order.
    every_us
        It covers the samples taken at whole multiples of this, which is a multiple of the program's period.
    bands
        As in :class:`SamplingProgram`.
    kind
        As `report` of :class:`SamplingProgram`.
    """

    fields: Annotated[tuple[FieldName, ...], Meta(min_length=1, max_length=256)]
    every_us: PositiveMicroseconds
    bands: Annotated[tuple[Band, ...], Meta(max_length=256)] = ()
    kind: PlainReportKind | None = None


class Several(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """Make several reports at once: rare values at a high rate, for example, and the means per minute of the others.

    A sample that several reports would send is sent once, with the fields of all of them and their numbers.
    """

    reports: Annotated[tuple[ProgramReport, ...], Meta(min_length=2, max_length=MOST_REPORTS)]


ReportKind = SendOnChange | Panes | VehicleEvents | VehicleCount | Several
"""How a mote reports samples; without one, it sends each."""


class SamplingProgram(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a mote does until it gets another program.

    Parameters
    ----------
    fields
        Sampled fields, in the order in which samples carry them; empty only when the mote sleeps.
    period_us
        Sample time between two samples; 0 sleeps. Samples are taken at whole multiples of the period since
        1970-01-01T00:00:00Z, so that motes of one rate sample at the same instants and a proxy knows when it has
        received them all.
    samples_per_packet
        How many samples make a packet. More of them save radio start-ups and cost delay.
    listen
        When the radio listens.
    bands
        If a field has bands, only samples in one of them are reported; every field with bands has to match.
    report
        How the samples in the bands are reported; None sends each.
    patience_us
        A record waits at most this long for a full packet, in sample time; 0 sets no limit. Useful if the time of the
        next record is not known.

    Raises
    ------
    ProgramError
        If it samples no field, or a field twice, names a field that it does not sample, or has panes shorter than its
        period.
    """

    fields: Annotated[tuple[FieldName, ...], Meta(max_length=256)] = ()
    period_us: DurationMicroseconds = 0
    samples_per_packet: Annotated[int, Meta(ge=1, le=MOST_PER_PACKET)] = 1
    listen: ListenSchedule = ListenSchedule()
    bands: Annotated[tuple[Band, ...], Meta(max_length=256)] = ()
    report: ReportKind | None = None
    patience_us: DurationMicroseconds = 0

    def __post_init__(self) -> None:
        if self.period_us > 0 and not self.fields:
            raise ProgramError("a program with a sample period names no field to sample")
        if len(set(self.fields)) != len(self.fields):
            raise ProgramError(f"a program samples a field twice: {', '.join(self.fields)}")
        for name in self._named:
            if name not in self.fields:
                raise ProgramError(
                    f"a program looks at {name!r} and does not sample it", hint=f"it samples {', '.join(self.fields)}"
                )
        if isinstance(self.report, Several):
            self._check_reports(self.report)
        interval_us = self.interval_us
        if interval_us is not None and interval_us < self.period_us:
            raise ProgramError(
                f"an interval of {format_duration(interval_us)} is shorter than the {format_duration(self.period_us)} "
                "between two samples",
                hint=f"report every {format_duration(self.period_us)} at the most often, or sample faster",
            )
        if isinstance(self.report, SendOnChange):
            widths = [each.field for each in self.report.dead_bands]
            if len(set(widths)) != len(widths):
                raise ProgramError(f"a field has two dead bands: {', '.join(widths)}")

    def _check_reports(self, several: Several) -> None:
        if self.bands:
            raise ProgramError("a program of several reports has bands of its own", hint="give them to its reports")
        for report in several.reports:
            if self.period_us == 0 or report.every_us % self.period_us:
                raise ProgramError(
                    f"a report looks every {format_duration(report.every_us)} at samples taken every "
                    f"{format_duration(self.period_us)}",
                    hint="take a multiple",
                )
            _as_program(report, 1, self.listen)

    @property
    def interval_us(self) -> int | None:
        """Sample time that one reported value covers, for programs that aggregate; else None."""
        match self.report:
            case Panes(pane_us=interval_us) | VehicleCount(every_us=interval_us):
                return interval_us
            case _:
                return None

    @property
    def _named(self) -> tuple[str, ...]:
        """The fields that bands and report read."""
        banded = tuple(band.field for band in self.bands)
        match self.report:
            case SendOnChange(dead_bands=dead_bands):
                return banded + tuple(each.field for each in dead_bands)
            case VehicleEvents(threshold=threshold) | VehicleCount(threshold=threshold):
                return (*banded, threshold.field)
            case Several(reports=reports):
                return tuple(name for report in reports for name in report.fields)
            case _:
                return banded

    @property
    def sleeping(self) -> bool:
        """True if the program takes no samples."""
        return self.period_us == 0


@lru_cache(maxsize=16_384)
def reports_of(program: SamplingProgram) -> tuple[SamplingProgram, ...]:
    """Return a program's reports, each as a program of its own; a program with a single report is returned as it is."""
    if not isinstance(program.report, Several):
        return (program,)
    return tuple(_as_program(report, program.samples_per_packet, program.listen) for report in program.report.reports)


@lru_cache(maxsize=16_384)
def _as_program(report: ProgramReport, samples_per_packet: int, listen: ListenSchedule) -> SamplingProgram:
    """Return a report as a program of its own; cached, since many candidate programs have the same reports."""
    return SamplingProgram(report.fields, report.every_us, samples_per_packet, listen, report.bands, report.kind)


SLEEP = SamplingProgram()
"""The program of a mote after a reboot, and whenever no query demands its samples."""


@lru_cache(maxsize=4_096)
def publishing_program(schema: StreamSchema) -> SamplingProgram:
    """Return the program of a device that publishes by its own rules: all sampled fields, stamped to the microsecond.

    Examples
    --------
    >>> from protocols.wire.streams import Field, FieldType
    >>> schema = StreamSchema("rooms", (Field("room", FieldType.TEXT, fixed=True), Field("t", FieldType.REAL)))
    >>> publishing_program(schema).fields, publishing_program(schema).period_us
    (('t',), 1)
    """
    return SamplingProgram(tuple(field.name for field in schema.sampled), 1)


def program_number(program: SamplingProgram) -> int:
    """Return the number by which mote and proxy name a program: the CRC-32 of its bytes, 0 for :data:`SLEEP`.

    A number derived from the content needs no counter that would have to survive reboots: a proxy compares the number
    in a packet with that of the program it wants.
    """
    return 0 if program == SLEEP else zlib.crc32(msgspec.msgpack.encode(program))


def first_sample_at_or_after(instant_us: int, period_us: int) -> int:
    """Return the first multiple of `period_us` that is at or after `instant_us`."""
    return -(-instant_us // period_us) * period_us
