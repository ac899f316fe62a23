"""Files of sampling programs: TOML with durations in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from firmware_sim.power.paper_programs import NO_LISTENING
from protocols.errors import ProgramError, SettingsError
from protocols.power.constants_file import convert, line_of, read_table
from protocols.text.durations import DurationError, parse_duration_us
from protocols.text.plain_text import read_text_file
from protocols.wire.programs import (
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


class _Listen(msgspec.Struct, forbid_unknown_fields=True, rename={"window": "for"}):
    every: str = "2s"
    window: str = "100ms"


class _Band(msgspec.Struct, forbid_unknown_fields=True):
    field: str
    low: float | None = None
    high: float | None = None


class _SendOnChange(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="send_on_change"):
    maximum_silence: str
    dead_bands: dict[str, float] = {}


class _Panes(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="panes"):
    pane: str
    measures: tuple[Measure, ...] = (Measure.COUNT, Measure.SUM, Measure.MIN, Measure.MAX)


class _Vehicles(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="vehicle_events"):
    field: str
    above: float
    below: float
    at_most_per_second: int = 5


class _Count(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="vehicle_count"):
    field: str
    above: float
    below: float
    every: str = "1s"


class _ProgramTable(msgspec.Struct, forbid_unknown_fields=True):
    fields: Annotated[tuple[str, ...], Meta(min_length=1)]
    period: str
    samples_per_packet: int = 1
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
    table = convert(read_table(text, origin), _ProgramTable, text=text, origin=origin)

    def duration_us(words: str, path: str) -> int:
        try:
            return parse_duration_us(words)
        except DurationError as error:
            line = line_of(text, path)
            raise SettingsError(f"line {line} of {origin}, field {path}: {error.message}", hint=error.hint) from error

    try:
        return SamplingProgram(
            fields=table.fields,
            period_us=duration_us(table.period, "period"),
            samples_per_packet=table.samples_per_packet,
            listen=_schedule(table.listen, duration_us),
            bands=tuple(Band(each.field, each.low, each.high) for each in table.band),
            report=_report(table.report, duration_us),
        )
    except ProgramError as error:
        raise ProgramError(f"{origin}: {error.message}", hint=error.hint) from error


def _schedule(listen: _Listen | Literal["never"], duration_us: Callable[[str, str], int]) -> ListenSchedule:
    if listen == "never":
        return NO_LISTENING
    return ListenSchedule(duration_us(listen.every, "listen.every"), duration_us(listen.window, "listen.for"))


def _report(table: Any, duration_us: Any) -> ReportKind | None:
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
