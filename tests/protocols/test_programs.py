"""Bands and reports of sampling programs and the records they lead to: refused where senseless, plain MessagePack."""

from __future__ import annotations

import msgpack
import msgspec
import pytest

from protocols.errors import FrameError, ProgramError
from protocols.wire.frames import encode
from protocols.wire.packets import (
    Control,
    Packet,
    Partial,
    RunProgram,
    VehicleEvent,
    VehicleTally,
    decode_control,
    decode_packet,
)
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
    program_number,
)

SECOND = 1_000_000
OVER = Threshold("level", 0.6, 0.4)
REPORTS: list[tuple[ReportKind | None, list[object] | None]] = [
    (None, None),
    (SendOnChange((DeadBand("level", 0.5),), SECOND), [0, [["level", 0.5]], SECOND]),
    (Panes(2 * SECOND, (Measure.COUNT, Measure.MAX)), [1, 2 * SECOND, ["count", "max"]]),
    (VehicleEvents(OVER, 5), [2, ["level", 0.6, 0.4], 5]),
    (VehicleCount(OVER, SECOND), [3, ["level", 0.6, 0.4], SECOND]),
]


@pytest.mark.parametrize(("report", "on_the_wire"), REPORTS)
def test_a_program_reads_back_and_is_plain_messagepack(
    report: ReportKind | None, on_the_wire: list[object] | None
) -> None:
    program = SamplingProgram(("level",), SECOND, bands=(Band("level", None, 4.5),), report=report)
    frame = encode(Control(1, "m1", (RunProgram(program, 0),)))
    assert decode_control(frame).instructions == (RunProgram(program, 0),)
    assert msgpack.unpackb(frame)[2][0][1][4:] == [[["level", None, 4.5]], on_the_wire, 0]


def test_programs_that_differ_in_their_report_differ_in_their_number() -> None:
    numbers = {program_number(SamplingProgram(("level",), SECOND, report=report)) for report, _ in REPORTS}
    assert len(numbers) == len(REPORTS)


def test_a_program_without_bands_and_report_may_leave_them_out() -> None:
    short = msgpack.packb([1, "m1", [[0, [["level"], SECOND, 1, [2 * SECOND, 100_000]], 0]]])
    (instruction,) = decode_control(short).instructions
    assert instruction == RunProgram(SamplingProgram(("level",), SECOND), 0)


def test_records_of_reports_read_back_and_are_plain_messagepack() -> None:
    records = (Partial(5, SECOND, ((3, 1.5, None),)), VehicleEvent(7, 200_000), VehicleTally(9, SECOND, 4))
    frame = encode(Packet(1, "m1", 1, 0, 0, 0, 0, 1, records))
    assert decode_packet(frame).records == records
    assert msgpack.unpackb(frame)[8] == [
        [2, 5, SECOND, [[3, 1.5, None]], 0, 0],
        [3, 7, 200_000, 0],
        [4, 9, SECOND, 4, 0],
    ]
    assert decode_packet(frame).samples == ()


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Band("level", 2.0, 1.0), "no value of 'level' lies between 2.0 and 1.0"),
    (lambda: Threshold("level", 0.4, 0.6), "cannot leave at 0.6"),
    (lambda: ListenSchedule(2 * SECOND, 5 * SECOND), "windows of 5s every 2s overlap"),
    (lambda: SamplingProgram(("a",), SECOND, bands=(Band("b", 1.0),)), "looks at 'b' and does not sample it"),
    (lambda: SamplingProgram(("a",), SECOND, report=VehicleEvents(OVER)), "looks at 'level'"),
    (lambda: SamplingProgram(("a",), SECOND, report=Panes(SECOND - 1)), "999ms999us is shorter than the 1s between"),
    (lambda: SamplingProgram(("level",), SECOND, report=VehicleCount(OVER, 10)), "10us is shorter"),
    (
        lambda: SamplingProgram(("a",), SECOND, report=SendOnChange((DeadBand("a", 1), DeadBand("a", 2)), SECOND)),
        "two dead bands",
    ),
])  # fmt: skip
def test_senseless_programs_are_refused(make: object, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        make()  # type: ignore[operator]


def test_a_senseless_program_on_the_wire_is_refused_as_well() -> None:
    program = msgspec.msgpack.decode(msgspec.msgpack.encode(SamplingProgram(("level",), SECOND)))
    program[5] = [1, 10, ["count"]]
    with pytest.raises(FrameError, match="shorter"):
        decode_control(msgpack.packb([1, "m1", [[0, program, 0]]]))
