"""Programs that a device cannot run are refused with the limit."""

from __future__ import annotations

import msgspec
import pytest

from firmware_sim.power.program_file import OVER, paper_program
from protocols.errors import OverloadError, ProgramError
from protocols.power.estimate import Workload, draw_mw
from protocols.power.payload import check_program
from protocols.power.profiles import find_profile
from protocols.wire.programs import Panes, SamplingProgram, VehicleEvents

SECOND = 1_000_000


@pytest.mark.parametrize(("preset", "program", "message"), [
    ("atmel8515", SamplingProgram(("a",), 50), r"2e\+04 Hz of 1 field.*converter of atmel8515 can do: 1.667e\+04 Hz"),
    ("atmel8515", SamplingProgram(("a", "b"), 119), r"of 2 fields.*8333 Hz"),
    ("atmel8515", SamplingProgram(("a",), 200), "5000 Hz is above what the processor of atmel8515 can do: 3571 Hz"),
    ("telosb", SamplingProgram(("a",), SECOND, 100), "100 records has 200 bytes, the radio of telosb takes 116"),
    ("lora-sf12", SamplingProgram(("a",), SECOND, 26), "takes 51.*at most 25 records"),
    ("lora-sf12", SamplingProgram(("a",), SECOND), "packet every 1000 ms.*lora-sf12 can do: each takes 11[56]. ms"),
    ("lora-sf12", SamplingProgram(("a",), SECOND, report=Panes(SECOND)), "packet every 1000 ms"),
])  # fmt: skip
def test_programs_beyond_a_device_are_refused_with_the_limit(preset, program, message):
    with pytest.raises(ProgramError, match=message):
        check_program(find_profile(preset), program)


@pytest.mark.parametrize(("preset", "program"), [
    ("atmel8515", SamplingProgram(("a",), 280, report=Panes(SECOND))),
    ("atmel8515", SamplingProgram(("a",), 1600)),
    ("telosb", SamplingProgram(("a",), SECOND, 58)),
    ("lora-sf12", SamplingProgram(("a",), SECOND, 25)),
    ("lora-sf12", SamplingProgram(("a",), SECOND, report=Panes(10 * SECOND))),
    ("esp32-wifi", SamplingProgram()),
])  # fmt: skip
def test_programs_at_the_limit_of_a_device_are_accepted(preset, program):
    check_program(find_profile(preset), program)


def test_a_workload_that_overloads_a_mote_is_an_error_with_the_figure():
    slow = find_profile("lora-sf12")
    program = SamplingProgram(("level",), 10_000, report=VehicleEvents(OVER))
    check_program(slow, program)
    with pytest.raises(OverloadError, match="busy for 672%"):
        draw_mw(slow, program, Workload(vehicles_per_second=5))


def test_raw_packets_are_full_but_never_wait_for_more_than_a_second():
    paper = find_profile("atmel8515")
    assert paper_program("raw", paper, 180).samples_per_packet == 15
    assert paper_program("raw", paper, 4).samples_per_packet == 4
    assert paper_program("raw", paper, 0.1).samples_per_packet == 1


def test_the_fastest_period_is_written_as_a_duration():
    device = find_profile("telosb")
    slow = msgspec.structs.replace(device, adc=msgspec.structs.replace(device.adc, latch_us=1e8))
    for profile, period in ((slow, "1m40s"), (device, "20us")):
        with pytest.raises(ProgramError) as caught:
            check_program(profile, SamplingProgram(("a",), 1))
        assert caught.value.hint == f"sample every {period} at the fastest"
