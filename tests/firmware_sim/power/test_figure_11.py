"""Figure 11 and table (papers/fjords.md section 6), and TinyDB's rule (papers/mote_currents.md section 3)."""

from __future__ import annotations

import msgspec
import pytest

from firmware_sim.power.battery import ideal
from firmware_sim.power.many_motes import VirtualMote
from firmware_sim.power.program_file import PAPER_PROGRAMS, VEHICLES_PER_SECOND, paper_program
from firmware_sim.power.virtual_run import run_motes
from protocols.power.costs import COMPONENTS, Component
from protocols.power.estimate import NEVER_US, Workload, draw_mw
from protocols.power.profiles import Adc, DeviceProfile, Processor, Radio, Sensor, find_profile
from protocols.wire.programs import ListenSchedule, SamplingProgram

PAPER = find_profile("atmel8515")
BUSY = Workload(vehicles_per_second=VEHICLES_PER_SECOND)


def part(draw, component):
    return draw[COMPONENTS.index(component)]


@pytest.mark.parametrize(("program", "printed_mw", "printed_days"), [
    ("raw", 13.0, 1.6), ("events", 1.1, 18.9), ("count", 0.38, 54.8),
])  # fmt: skip
def test_draw_and_life_at_180_hz(program, printed_mw, printed_days):
    draw = draw_mw(PAPER, paper_program(program, PAPER, 180), BUSY)
    assert draw.sum() == pytest.approx(printed_mw, rel=0.10)
    days = ideal(100).life_seconds(draw.sum(), supply_v=5.0) / 86_400
    assert days == pytest.approx(printed_days, rel=0.10)


@pytest.mark.parametrize("program", PAPER_PROGRAMS)
def test_virtual_time_agrees_with_the_closed_form(program):
    asked = paper_program(program, PAPER, 180)
    outcome = run_motes([VirtualMote("m", PAPER, asked, ideal(100), BUSY)], days=1.0, seed=3)
    assert outcome.draw_mw(0).sum() == pytest.approx(draw_mw(PAPER, asked, BUSY).sum(), rel=0.01)


def test_parts_of_the_figure_worked_out_by_hand():
    raw = draw_mw(PAPER, paper_program("raw", PAPER, 180), BUSY)
    hertz = 1e6 / 5556  # periods are whole microseconds
    assert part(raw, Component.RADIO_TRANSMIT) == pytest.approx(hertz * 16 * 4.31e-6 * 1e3)
    assert part(raw, Component.PROCESSOR_ACTIVE) == pytest.approx(hertz * 280 / 1e6 * 6.0)
    assert part(raw, Component.ADC) == pytest.approx(hertz * 60e-6 * 0.6)


def test_sending_dominates_raw_and_computing_dominates_the_others():
    raw = draw_mw(PAPER, paper_program("raw", PAPER, 500), BUSY)
    events, count = (draw_mw(PAPER, paper_program(name, PAPER, 1000), BUSY) for name in ("events", "count"))
    assert part(raw, Component.RADIO_TRANSMIT) / raw.sum() > 0.9, "communication"
    for draw in (events, count):
        computing = part(draw, Component.PROCESSOR_ACTIVE) + part(draw, Component.ADC)
        assert computing > part(draw, Component.RADIO_TRANSMIT), "processor and converter at high rates"


TINYDB = DeviceProfile(
    name="tinydb", title="TinyDB's rule: 12 mA while awake, 0.1 mA asleep", battery="ideal:2400", uncertainty=0.0,
    processor=Processor(supply_v=3.0, clock_hz=1e6, active_mw=0, idle_mw=0, sleep_mw=0.3, cycles_per_sample=4e6),
    adc=Adc(mw=0, latch_us=1), sensor=Sensor(mw=36.0, warm_up_us=4_000_000 - 1),
    radio=Radio(transmit_mw=0, receive_mw=0, bits_per_second=1e6, max_payload_bytes=29),
)  # fmt: skip


@pytest.mark.parametrize(("period_s", "days"), [(30, 59), (120, 201)])
def test_tinydb_rule(period_s, days):
    """hours = 2400 / ((4/d) 12 + ((d-4)/d) 0.1)."""
    program = SamplingProgram(("light",), period_s * 1_000_000, listen=ListenSchedule(NEVER_US, 1))
    draw = draw_mw(TINYDB, program)
    rule_ma = 4 / period_s * 12 + (period_s - 4) / period_s * 0.1
    assert draw.sum() / 3.0 == pytest.approx(rule_ma)
    assert round(ideal(2400).life_seconds(draw.sum(), supply_v=3.0) / 86_400) == days
    outcome = run_motes([VirtualMote("m", TINYDB, program, ideal(2400))], days=days + 30)
    assert round(float(outcome.died_days[0])) == days


def test_a_sensor_that_cannot_warm_up_in_time_is_never_off():
    slow = msgspec.structs.replace(TINYDB, processor=msgspec.structs.replace(TINYDB.processor, cycles_per_sample=0))
    draw = draw_mw(slow, SamplingProgram(("light",), 1_000_000, listen=ListenSchedule(NEVER_US, 1)))
    assert part(draw, Component.SENSOR) == pytest.approx(36.0)
