"""Files of sampling programs: TOML with durations in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from firmware_sim.power.settings_text import SettingsText
from protocols.errors import ProgramError
from protocols.power.constants_file import convert, read_table, refuse_other_kind
from protocols.text.plain_text import read_text_file
from protocols.wire.programs import (
    MOST_PER_PACKET,
    Band,
    DeadBand,
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
