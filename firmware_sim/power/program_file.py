"""Sampling programs: those of the paper, and files of them: TOML with durations in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from protocols.errors import ProgramError, SettingsError
from protocols.power.constants_file import convert, line_of, read_table, refuse_other_kind
from protocols.power.estimate import NEVER_US
from protocols.power.payload import most_records
from protocols.power.profiles import DeviceProfile
from protocols.text.plain_text import read_text_file
from protocols.text.quantities import DurationError, parse_duration_us
from protocols.wire.programs import (
    MOST_PER_PACKET,
    Band,
    DeadBand,
    ListenSchedule,
    Measure,
    Panes,
    ReportKind,
    SamplingProgram,
    SendOnChange,
    Threshold,
    VehicleCount,
    VehicleEvents,
)

SLOWEST_HZ, FASTEST_HZ = 1e-9, 1e6
"""One sample in thirty years, and in the shortest period there is."""
"""Periods are whole microseconds."""
FIELD = "level"
"""The field of the paper's sensor: how much of a vehicle is over it."""
OVER = Threshold(FIELD, above=0.6, below=0.4)
PAPER_PROGRAMS = ("raw", "events", "count")
VEHICLES_PER_SECOND = 5.0
"""The paper's worst case, at most five vehicles a second."""
NO_LISTENING = ListenSchedule(NEVER_US, 1)
"""The paper's figure leaves listening out."""


def paper_program(
    name: str, profile: DeviceProfile, rate_hz: float, *, listen: ListenSchedule = NO_LISTENING
) -> SamplingProgram:
    """Return one of the paper's programs.

    As many raw samples as fit travel in a packet, but none waits for more than a second.

    Raises
    ------
    SettingsError
        If there is no such program, or the rate is not positive.
    """
    period_us = period_of(rate_hz)
    fields = (FIELD,)
    match name:
        case "raw":
            single = SamplingProgram(fields, period_us)
            fitting = max(1, min(most_records(profile, single), round(rate_hz), 1024))
            return SamplingProgram(fields, period_us, fitting, listen)
        case "events":
            return SamplingProgram(fields, period_us, 1, listen, report=VehicleEvents(OVER))
        case "count":
            return SamplingProgram(fields, period_us, 1, listen, report=VehicleCount(OVER, max(1_000_000, period_us)))
        case _:
            raise SettingsError(f"there is no program {name!r}", hint=f"there are {', '.join(PAPER_PROGRAMS)}")


def period_of(rate_hz: float) -> int:
    """Return the sample period of a rate, in whole microseconds.

    Raises
    ------
    SettingsError
        If it is not a possible sample rate.
    """
    if not SLOWEST_HZ <= rate_hz <= FASTEST_HZ:
        raise SettingsError(f"{rate_hz:g} Hz is no rate", hint=f"give one from {SLOWEST_HZ:g} to {FASTEST_HZ:,.0f} Hz")
    return max(1, round(1e6 / rate_hz))


class ListenTable(Protocol):
    """``listen = { every = "30s", for = "50ms" }``."""

    every: str
    window: str


@dataclass(frozen=True, slots=True)
class SettingsText:
    """A text, and what its file is called."""

    text: str
    origin: str

    def wrong(self, path: str, reason: str, hint: str | None = None) -> SettingsError:
        """Return the error about the entry with this path."""
        line = line_of(self.text, path)
        where = self.origin if line is None else f"line {line} of {self.origin}"
        return SettingsError(f"{where}, field {path}: {reason}", hint=hint)

    def duration_us(self, words: str, path: str) -> int:
        """Return the duration that an entry has.

        Raises
        ------
        SettingsError
            If it is none, or no time at all.
        """
        try:
            found = parse_duration_us(words)
        except DurationError as error:
            raise self.wrong(path, error.message, error.hint) from error
        if found == 0:
            raise self.wrong(path, f"it must be longer than {words}")
        return found

    def schedule(self, listen: ListenTable | Literal["never"]) -> ListenSchedule:
        """Return when a mote listens by the entry ``listen``; raises as :meth:`duration_us`, or if windows overlap."""
        if isinstance(listen, str):
            return NO_LISTENING
        every_us, for_us = (
            self.duration_us(listen.every, "listen.every"),
            self.duration_us(listen.window, "listen.for"),
        )
        try:
            return ListenSchedule(every_us, for_us)
        except ProgramError as error:
            raise self.wrong("listen", error.message, error.hint) from error


class _Listen(msgspec.Struct, forbid_unknown_fields=True, rename={"window": "for"}):
    every: str = "2s"
    window: str = "100ms"


class _Band(msgspec.Struct, forbid_unknown_fields=True):
    field: str
    low: float | None = None
    high: float | None = None


class _SendOnChange(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="send_on_change"):
    maximum_silence: str
    dead_bands: dict[str, Annotated[float, Meta(ge=0)]] = {}


class _Panes(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="panes"):
    pane: str
    measures: tuple[Measure, ...] = (Measure.COUNT, Measure.SUM, Measure.MIN, Measure.MAX)


class _Vehicles(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="vehicle_events"):
    field: str
    above: float
    below: float
    at_most_per_second: Annotated[int, Meta(ge=1, le=1000)] = 5


class _Count(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="vehicle_count"):
    field: str
    above: float
    below: float
    every: str = "1s"


class _ProgramTable(msgspec.Struct, forbid_unknown_fields=True):
    fields: Annotated[tuple[str, ...], Meta(min_length=1)]
    period: str
    samples_per_packet: Annotated[int, Meta(ge=1, le=MOST_PER_PACKET)] = 1
    listen: _Listen | Literal["never"] = msgspec.field(default_factory=_Listen)
    band: tuple[_Band, ...] = ()
    report: _SendOnChange | _Panes | _Vehicles | _Count | None = None


def load_program(path: Path) -> SamplingProgram:
    """Return the sampling program in a file.

    Raises
    ------
    SettingsError
        If the file cannot be read or understood; the error has the place.
    ProgramError
        If no mote could run the program.
    """
    text = read_text_file(path, "the program", hint="name a file, or one of raw, events, count")
    return read_program(text, str(path))


def read_program(text: str, origin: str) -> SamplingProgram:
    """Return the sampling program in a TOML text; raises as :func:`load_program`."""
    content = read_table(text, origin)
    refuse_other_kind(content, "a sampling program", origin)
    table = convert(content, _ProgramTable, text=text, origin=origin)
    file = SettingsText(text, origin)
    try:
        return SamplingProgram(
            fields=table.fields,
            period_us=file.duration_us(table.period, "period"),
            samples_per_packet=table.samples_per_packet,
            listen=file.schedule(table.listen),
            bands=tuple(Band(each.field, each.low, each.high) for each in table.band),
            report=_report(table.report, file.duration_us),
        )
    except ProgramError as error:
        raise ProgramError(f"{origin}: {error.message}", hint=error.hint) from error


def _report(table: Any, duration_us: Callable[[str, str], int]) -> ReportKind | None:
    match table:
        case _SendOnChange(maximum_silence=silence, dead_bands=widths):
            bands = tuple(DeadBand(name, width) for name, width in widths.items())
            return SendOnChange(bands, duration_us(silence, "report.maximum_silence"))
        case _Panes(pane=pane, measures=measures):
            return Panes(duration_us(pane, "report.pane"), measures)
        case _Vehicles(field=field, above=above, below=below, at_most_per_second=most):
            return VehicleEvents(Threshold(field, above, below), most)
        case _Count(field=field, above=above, below=below, every=every):
            return VehicleCount(Threshold(field, above, below), duration_us(every, "report.every"))
        case _:
            return None
