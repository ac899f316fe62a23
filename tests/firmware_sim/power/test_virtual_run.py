"""Motes in virtual time: the ledger is the battery's drain, a seed is a run, and estimate and simulation agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firmware_sim.power.battery import find_battery, ideal
from firmware_sim.power.many_motes import VirtualMote
from firmware_sim.power.program_file import OVER
from firmware_sim.power.surroundings import Climate, Solar
from firmware_sim.power.virtual_run import run_motes
from protocols.errors import SettingsError
from protocols.power.costs import Component
from protocols.power.estimate import Workload, draw_mw, mean_attempts
from protocols.power.profiles import find_profile, preset_names
from protocols.wire.programs import (
    SLEEP,
    Band,
    ListenSchedule,
    Panes,
    SamplingProgram,
    SendOnChange,
    VehicleCount,
    VehicleEvents,
)

SECOND = 1_000_000
HALF_MINUTE = ListenSchedule(30 * SECOND, 50_000)
PROGRAMS = {
    "asleep": SLEEP,
    "raw": SamplingProgram(("level", "x"), SECOND, 8, HALF_MINUTE),
    "slow": SamplingProgram(("level",), 300 * SECOND, 1, HALF_MINUTE),
    "band": SamplingProgram(("level",), SECOND, 4, HALF_MINUTE, (Band("level", 0.5),)),
    "change": SamplingProgram(("level",), SECOND, 1, HALF_MINUTE, report=SendOnChange((), 600 * SECOND)),
    "panes": SamplingProgram(("level",), SECOND, 1, HALF_MINUTE, report=Panes(60 * SECOND)),
    "events": SamplingProgram(("level",), 10_000, 2, HALF_MINUTE, report=VehicleEvents(OVER)),
    "count": SamplingProgram(("level",), 10_000, 5, HALF_MINUTE, report=VehicleCount(OVER, 10 * SECOND)),
}
MOTES = st.builds(
    lambda preset, program, battery, workload, climate, sun: VirtualMote(
        "m", find_profile(preset), PROGRAMS[program], find_battery(battery), workload, climate, sun
    ),
    st.sampled_from([name for name in preset_names() if not name.startswith(("lora-sf12", "esp32"))]),
    st.sampled_from(sorted(PROGRAMS)),
    st.sampled_from(["ideal:50", "alkaline-aa-pair", "lisocl2-aa", "nimh-aa-pair"]),
    st.builds(Workload, st.floats(0, 6), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.9)),
    st.builds(lambda mean, day: Climate(mean_c=mean, day_swing_c=day), st.floats(-10, 40), st.floats(0, 10)),
    st.none() | st.builds(lambda peak: Solar(peak_mw=peak), st.floats(0, 50)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(MOTES, min_size=1, max_size=4), st.floats(0.02, 40), st.integers(0, 1000))
def test_joules_by_component_sum_to_what_the_battery_gave(motes, days, seed):
    outcome = run_motes(motes, days=days, seed=seed)
    assert outcome.joules.sum(axis=1) == pytest.approx(outcome.drawn, rel=1e-9, abs=1e-9)
    flow = outcome.drawn + outcome.lost - outcome.harvested
    assert outcome.begun - outcome.left == pytest.approx(flow, rel=1e-9, abs=1e-6)
    assert np.all(outcome.joules >= 0)
    assert np.all(np.diff(outcome.curve, axis=0) <= 1e-9) or any(each.solar for each in motes)


def test_a_seed_is_a_run():
    motes = [VirtualMote("m", find_profile("telosb"), PROGRAMS["events"], ideal(100), Workload(2.0, loss=0.2))] * 3
    one, same, other = (run_motes(motes, days=3, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.joules, same.joules)
    assert not np.array_equal(one.joules, other.joules)


@pytest.mark.parametrize("preset", ["atmel8515", "mica2", "telosb", "nrf52840-154", "nrf52840-ble"])
@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_estimate_and_simulation_agree(preset, program):
    profile = find_profile(preset)
    workload = Workload(vehicles_per_second=0.4, kept_share=0.3, changed_share=0.05, loss=0.15)
    mote = VirtualMote("m", profile, PROGRAMS[program], ideal(1e6), workload)
    outcome = run_motes([mote] * 5, days=5, seed=1)
    simulated = float(outcome.joules.mean(axis=0).sum()) / (5 * 86_400) * 1e3
    assert simulated == pytest.approx(float(draw_mw(profile, PROGRAMS[program], workload).sum()), rel=0.005)


def test_life_beyond_the_run_is_what_a_longer_run_finds():
    mote = VirtualMote("m", find_profile("telosb"), SLEEP, find_battery("alkaline-aa-pair"))
    short, long = run_motes([mote], days=10), run_motes([mote], days=200)
    assert short.died_days[0] == math.inf
    assert 10 < long.died_days[0] < 200
    assert short.expected_days[0] == pytest.approx(long.died_days[0], rel=0.01)


def test_loss_costs_repeats_where_there_are_acknowledgements():
    with_acks, without = find_profile("telosb"), find_profile("mica2")
    assert mean_attempts(with_acks, 0.5) == pytest.approx(1 + 0.5 + 0.25 + 0.125)
    assert mean_attempts(without, 0.5) == 1
    lossy, clean = (draw_mw(with_acks, PROGRAMS["raw"], Workload(loss=loss)).sum() for loss in (0.5, 0.0))
    assert lossy > clean


def test_which_mote_dies_first_and_why():
    raw, quiet = PROGRAMS["raw"], PROGRAMS["panes"]
    telosb, cell = find_profile("telosb"), ideal(200)
    outcome = run_motes([VirtualMote("quiet", telosb, quiet, cell), VirtualMote("raw", telosb, raw, cell)], days=400)
    assert outcome.motes[outcome.first].name == "raw"
    assert isinstance(outcome.dearest(outcome.first)[0], Component)
    assert 0 < outcome.dearest(outcome.first)[1] < 1
    assert outcome.died_days[1] < outcome.died_days[0]


def test_curves_do_not_grow_with_the_run():
    mote = VirtualMote("m", find_profile("telosb"), SLEEP, ideal(1000))
    assert len(run_motes([mote], days=700).curve) <= 202


def test_a_run_of_nothing_is_refused():
    with pytest.raises(SettingsError, match="0 motes"):
        run_motes([], days=1)
    with pytest.raises(SettingsError, match="nan"):
        run_motes([VirtualMote("m", find_profile("telosb"), SLEEP, ideal(1))], days=math.nan)
