"""Motes in virtual time: the real state machines, against the closed form, over good and bad radios."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firmware_sim.mote.mote_events import MoteDescription
from firmware_sim.power.battery import find_battery, ideal
from firmware_sim.power.program_file import OVER
from firmware_sim.radio.channel import Bernoulli, GilbertElliott, RadioFaults
from firmware_sim.virtual_time.fleet import VirtualFleet, VirtualSettings
from protocols.power.estimate import Workload, draw_mw
from protocols.power.profiles import find_profile
from protocols.wire.packets import Health, Packet, Partial, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import (
    SLEEP,
    Band,
    DeadBand,
    ListenSchedule,
    Panes,
    ProgramReport,
    SamplingProgram,
    SendOnChange,
    Several,
    VehicleCount,
    VehicleEvents,
)
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND = 1_000_000
HOUR = 3600 * SECOND
SPARSE = ListenSchedule(30 * SECOND, 50_000)
FIELDS = (Field("level", FieldType.REAL), Field("x", FieldType.REAL), Field("steps", FieldType.INTEGER))
SCHEMA = StreamSchema("hall", FIELDS)


class Blinking:
    """A world whose level is 1 in some seconds (a tenth of all), whose steps grow in a fifth of them, and x in all."""

    begins_us = None
    ends_us = None

    def __init__(self, motes=1):
        self.motes = [MoteDescription(f"m{n}", "t", SCHEMA, {}, SECOND, 1000) for n in range(1, motes + 1)]
        chances = np.random.default_rng(7).random((2, 8 * 3600))
        self.on = chances[0] < 0.1
        self.steps = np.cumsum(chances[1] < 0.2)

    def sense(self, mote, instant_us, fields):
        second = instant_us // SECOND
        values = {"level": float(self.on[second]), "x": instant_us / SECOND, "steps": int(self.steps[second])}
        return tuple(values[name] for name in fields)


def run(program, *, hours=2.0, motes=1, preset="telosb", listener=None, **options):
    world = Blinking(motes)
    fleet = VirtualFleet(
        world, {each.name: program for each in world.motes}, VirtualSettings(find_profile(preset), **options), listener
    )
    fleet.run(round(hours * HOUR))
    return fleet


REPORTS = {
    "asleep": (SLEEP, Workload()),
    "raw": (SamplingProgram(("level", "x"), SECOND, 7, SPARSE), Workload()),
    "slow": (SamplingProgram(("level",), 600 * SECOND, 1, SPARSE), Workload()),
    "band": (SamplingProgram(("level",), SECOND, 1, SPARSE, (Band("level", 0.5),)), Workload(kept_share=0.1)),
    "change": (
        SamplingProgram(("steps",), SECOND, 1, SPARSE, report=SendOnChange((), HOUR)), Workload(changed_share=0.2)
    ),
    "panes": (SamplingProgram(("level", "x"), SECOND, 1, SPARSE, report=Panes(60 * SECOND)), Workload()),
    "events": (SamplingProgram(("level",), 100_000, 1, SPARSE, report=VehicleEvents(OVER)), Workload(0.09)),
    "count": (SamplingProgram(("level",), 100_000, 2, SPARSE, report=VehicleCount(OVER, 10 * SECOND)), Workload(0.09)),
}  # fmt: skip


@pytest.mark.parametrize("preset", ["atmel8515", "telosb", "nrf52840-ble", "lora-sf7"])
@pytest.mark.parametrize("name", sorted(REPORTS))
def test_sample_by_sample_costs_what_the_closed_form_says(name, preset):
    program, workload = REPORTS[name]
    hours = 1 if name in ("events", "count") else 6
    fleet = run(program, hours=0.05, preset=preset)
    (mote,) = fleet.motes
    began = float(mote.meter.joules.sum())  # announcing itself costs much on a slow radio
    fleet.run(round((0.05 + hours) * HOUR))
    assert mote.refusal == ""
    simulated = (float(mote.meter.joules.sum()) - began) / (hours * 3600) * 1e3
    expected = float(draw_mw(mote.meter.profile, program, workload).sum())
    assert simulated == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("name", ["band", "change", "events"])
def test_sample_by_sample_costs_what_the_closed_form_says_for_irregular_records(name, size):
    program, workload = REPORTS[name]
    program = msgspec.structs.replace(program, samples_per_packet=size)
    hours = 1 if name == "events" else 6
    fleet = run(program, hours=0.05)
    (mote,) = fleet.motes
    began = float(mote.meter.joules.sum())
    fleet.run(round((0.05 + hours) * HOUR))
    simulated = (float(mote.meter.joules.sum()) - began) / (hours * 3600) * 1e3
    assert simulated == pytest.approx(float(draw_mw(mote.meter.profile, program, workload).sum()), rel=0.025)


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("others", [(), (ProgramReport(("level",), 40 * SECOND, kind=Panes(HOUR)),)])
def test_sample_by_sample_costs_what_the_closed_form_says_for_changes(size, others):
    """No rule foresees these packets, and yet they come evenly: of those of seven a window follows every second one."""
    listen, silence_us = ListenSchedule(300 * SECOND, 50_000), 280 * SECOND
    report = SendOnChange((DeadBand("x", 0.0),), silence_us)
    program = SamplingProgram(
        ("x",), 40 * SECOND, size, listen, report=report, patience_us=0 if size == 1 else silence_us
    )
    if others:
        reports = (ProgramReport(("x",), 40 * SECOND, kind=report), *others)
        program = msgspec.structs.replace(program, fields=("level", "x"), report=Several(reports))
    fleet = run(program, hours=0.2)
    (mote,) = fleet.motes
    began = float(mote.meter.joules.sum())
    fleet.run(round(7.2 * HOUR))
    simulated = (float(mote.meter.joules.sum()) - began) / (7 * 3600) * 1e3
    assert simulated == pytest.approx(float(draw_mw(mote.meter.profile, program, Workload()).sum()), rel=0.01)


def records(program, kind, **options):
    found: list[tuple[int, object]] = []

    def listen(_, packet: Packet):
        assert packet.promise_us >= max((stamp for stamp, _ in found), default=-math.inf)
        found.extend((packet.clock_us - each.age_us, each) for each in packet.records if isinstance(each, kind))

    run(program, listener=listen, hours=0.1, **options)
    return found


def test_what_arrives_is_what_was_asked_for():
    partials = records(SamplingProgram(("x",), SECOND, report=Panes(10 * SECOND)), Partial)
    whole = [(stamp, each) for stamp, each in partials if each.pane_us == 10 * SECOND]
    assert len(whole) >= 34
    for stamp, each in whole:
        begins = stamp // SECOND - 9
        assert each.measures == ((10, sum(range(begins, begins + 10)), begins, begins + 9),)
    events = records(REPORTS["events"][0], VehicleEvent)
    on = Blinking().on[:360]
    passed = np.flatnonzero(on[1:-1] & ~on[2:])
    assert len(events) == pytest.approx(len(passed), abs=1), "the first may have been there before the program"
    assert all(round(each.passing_us / SECOND) >= 1 for _, each in events)
    tallies = records(REPORTS["count"][0], VehicleTally)
    assert sum(each.vehicles for _, each in tallies) == pytest.approx(len(passed), abs=2)
    banded = records(REPORTS["band"][0], Sample)
    assert {each.values for _, each in banded} == {(1.0,)}


def test_an_impossible_program_is_refused_with_the_limit_and_the_old_one_goes_on():
    (mote,) = run(SamplingProgram(("x",), SECOND, 100)).motes
    assert mote.program == SLEEP
    assert mote.counters.programs_refused > 0
    assert "the radio of telosb takes 116" in mote.refusal


FAULTS = st.builds(
    lambda loss, garbled, duplicated, reordered, load: RadioFaults(
        loss=loss, garbled=garbled, duplicated=duplicated, reordered=reordered, jitter_us=3000,
        collisions_above_load=load,
    ),
    st.builds(lambda share: Bernoulli(share=share), st.floats(0, 0.6))
    | st.builds(
        lambda bad, good: GilbertElliott(turns_bad=bad, turns_good=good), st.floats(0.01, 0.5), st.floats(0.1, 1)
    ),
    st.floats(0, 0.2), st.floats(0, 0.3), st.floats(0, 0.3), st.none() | st.floats(0, 0.5),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(REPORTS)), FAULTS, st.sampled_from(["ideal:1", "ideal:0.005", "alkaline-aa-pair"]),
    st.sampled_from(["atmel8515", "mica2", "telosb", "esp32-wifi"]), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_whatever_happens_the_ledger_is_what_the_battery_gave(name, faults, battery, preset, drifting, seed):
    fleet = run(
        REPORTS[name][0], hours=0.2, motes=2, preset=preset, faults=faults, battery=find_battery(battery),
        drifting=drifting, seed=seed,
    )  # fmt: skip
    for mote in fleet.motes:
        assert float(mote.meter.joules.sum()) == pytest.approx(mote.meter.drained_joules, rel=1e-9, abs=1e-12)
        assert np.all(mote.meter.joules >= 0)
        assert 0 <= mote.meter.battery_share <= 1
    sent = fleet.channel.counters
    understood = sum(received.packets + received.repeated for received in fleet.gateway.received.values())
    assert understood + fleet.gateway.rejected <= sent.packets - sent.lost + sent.duplicated


def test_a_seed_is_a_run():
    faults = RadioFaults(loss=Bernoulli(share=0.3), garbled=0.1, jitter_us=5000)
    one, same, other = (run(REPORTS["raw"][0], faults=faults, seed=seed, drifting=True) for seed in (1, 1, 2))
    assert np.array_equal(one.motes[0].meter.joules, same.motes[0].meter.joules)
    assert one.channel.counters == same.channel.counters != other.channel.counters


def test_losses_are_counted_and_cost_repeats():
    faults = RadioFaults(loss=Bernoulli(share=0.3))
    lossy, clean = run(REPORTS["raw"][0], faults=faults), run(REPORTS["raw"][0])
    assert lossy.motes[0].meter.joules.sum() > clean.motes[0].meter.joules.sum() * 1.03
    assert clean.gateway.received["m1"].missing == 0
    never = run(REPORTS["raw"][0], faults=RadioFaults(loss=Bernoulli(share=0.3), maximum_attempts=1), hours=6)
    received = never.gateway.received["m1"]
    assert received.missing / (received.highest_sequence + 1) == pytest.approx(0.3, abs=0.05)


def test_a_mote_whose_battery_is_empty_is_silent():
    fleet = run(REPORTS["raw"][0], battery=ideal(0.01), hours=4)
    (mote,) = fleet.motes
    assert mote.meter.dead
    assert mote.meter.battery_share == 0
    assert 0 < mote.meter.died_us < 4 * HOUR
    packets = mote.counters.packets
    fleet.run(5 * HOUR)
    assert mote.counters.packets == packets


def test_health_tells_how_full_the_battery_is():
    found: list[float] = []

    def listen(_, packet: Packet):
        found.extend(each.battery for each in packet.records if isinstance(each, Health))

    run(REPORTS["raw"][0], battery=ideal(1), listener=listen, hours=1)
    assert found[0] == 1
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.99


def test_drifting_clocks_stamp_wrong_and_sense_true():
    seen: list[float] = []

    def listen(_, packet: Packet):
        seen.extend(
            each.values[1] - (packet.clock_us - each.age_us) / SECOND
            for each in packet.records
            if isinstance(each, Sample)
        )

    run(REPORTS["raw"][0], listener=listen, hours=1, drifting=True, preset="mica2", seed=5)
    worst = max(map(abs, seen))
    assert 0.0005 < worst <= 40e-6 * 300 * 1.01, "as far as the drift goes between two synchronisations"
