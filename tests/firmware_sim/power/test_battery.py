"""Batteries: what they hold, lose and give."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware_sim.power.battery import (
    YEAR_SECONDS,
    Charges,
    Supply,
    find_battery,
    ideal,
    known_batteries,
    seconds_until,
)
from firmware_sim.power.surroundings import Climate, Solar, sine_of_elevation
from protocols.power.profiles import find_profile

TELOSB, MICA2 = find_profile("telosb"), find_profile("mica2")
ALKALINE = find_battery("alkaline-aa-pair")


def test_ideal_battery_is_a_quotient():
    assert ideal(100).full_joules(5.0) == pytest.approx(1800)
    assert ideal(100).life_seconds(13, supply_v=5.0) / 3600 == pytest.approx(38.5, abs=0.05)
    assert ideal(100).life_seconds(0, supply_v=5.0) == math.inf


def test_a_mote_that_needs_more_voltage_gets_less_of_an_alkaline_pair():
    shares = [ALKALINE.usable_share(volts) for volts in (1.0, 2.1, 2.7, 3.2)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert shares[1] == pytest.approx(0.86, abs=0.02)
    assert shares[2] == pytest.approx(0.22, abs=0.02)
    assert shares[3] == 0.0


@pytest.mark.parametrize("name", sorted(known_batteries()))
def test_a_battery_on_the_shelf_loses_what_its_sheet_says(name):
    battery = known_batteries()[name]
    left = math.exp(-float(battery.loss_per_second(20.0)) * YEAR_SECONDS)
    assert left == pytest.approx(1 - battery.self_discharge_per_year)
    warm = float(battery.loss_per_second(20.0 + battery.doubles_every_c))
    assert warm == pytest.approx(2 * float(battery.loss_per_second(20.0)))
    colder = [battery.full_joules(3.0, degrees) for degrees in (20, 0, -20)]
    assert colder == sorted(colder, reverse=True)


@pytest.mark.parametrize("loss", [0.0, 1e-9, 1e-7])
@pytest.mark.parametrize("watts", [1e-5, 1e-3])
def test_life_in_closed_form_is_that_of_small_steps(loss, watts):
    charge, floor, step = 1000.0, 200.0, 1000.0
    left, seconds = charge, 0.0
    while left > floor:
        left -= (watts + loss * left) * step
        seconds += step
    assert seconds_until(charge, floor, watts, loss) == pytest.approx(seconds, rel=2e-3)


AMOUNTS = st.floats(0, 5000)


@given(
    st.sampled_from(sorted(known_batteries())),
    st.lists(st.tuples(AMOUNTS, AMOUNTS, st.floats(1, 1e7), st.floats(-20, 50)), max_size=20),
)
def test_what_goes_in_and_out_of_a_battery_is_accounted_for(name, steps):
    supplies = [Supply(TELOSB, known_batteries()[name], 10.0), Supply(MICA2, ideal(500), 10.0)]
    charges = Charges(supplies)
    for drawn, sun, seconds, degrees in steps:
        before, alive = charges.drawn.copy(), charges.alive.copy()
        share = charges.step(np.array([drawn, drawn / 2]), seconds, np.array([degrees, degrees]), np.array([sun, 0.0]))
        assert np.all((share >= 0) & (share <= 1))
        assert np.all(share[~alive] == 0)
        assert charges.drawn - before == pytest.approx(share * [drawn, drawn / 2], abs=1e-9)  # of some 10,000 joules
    flow = charges.drawn + charges.lost - charges.harvested
    assert charges.begun - charges.left == pytest.approx(flow, rel=1e-9, abs=1e-6)
    assert np.all(charges.left >= charges.floor - 1e-6)
    assert np.all(charges.left <= charges.begun + 1e-6)
    assert np.all(charges.lost >= -1e-6)


def test_death_within_a_step_is_found_to_the_second():
    charges = Charges([Supply(MICA2, ideal(100))])
    full = float(charges.begun[0])
    share = charges.step(np.array([full * 4]), 3600.0, np.array([20.0]))
    assert share[0] == pytest.approx(0.25)
    assert charges.drawn[0] == pytest.approx(full)
    assert not charges.alive[0]
    assert charges.step(np.array([1.0]), 3600.0, np.array([20.0]))[0] == 0
    assert charges.drawn[0] == pytest.approx(full), "the dead draw nothing"


def test_the_sun_fills_a_rechargeable_battery_and_only_spares_another():
    nimh = find_battery("nimh-aa-pair")
    charges = Charges([Supply(TELOSB, nimh), Supply(TELOSB, ALKALINE)])
    charges.step(np.array([1000.0, 1000.0]), 3600.0, np.array([20.0, 20.0]))
    charges.step(np.array([10.0, 10.0]), 3600.0, np.array([20.0, 20.0]), np.array([500.0, 500.0]))
    assert charges.harvested == pytest.approx([500.0, 10.0])
    charges.step(np.array([0.0, 0.0]), 3600.0, np.array([20.0, 20.0]), np.array([1e6, 1e6]))
    assert charges.left[0] == pytest.approx(charges.begun[0], rel=1e-5), "and no fuller than full"


def test_sun_and_temperature_follow_day_and_season():
    hour = 3600.0
    noon, midnight, june = 12 * hour, 0.0, 172 * 86_400.0
    assert sine_of_elevation(midnight, 40) < 0 < sine_of_elevation(noon, 40) < sine_of_elevation(june + noon, 40)
    assert sine_of_elevation(june + noon, 40) == pytest.approx(math.sin(math.radians(90 - 40 + 23.44)), abs=1e-3)
    panel = Solar(peak_mw=100, latitude_deg=40, cloud_share=0.4)
    assert panel.clear_sky_mw(midnight) == 0
    generator = np.random.default_rng(1)
    assert np.mean([panel.day_clearness(generator) for _ in range(4000)]) == pytest.approx(0.6, abs=0.02)
    assert 5 < panel.mean_mw() < 30
    climate = Climate(mean_c=10, day_swing_c=5, season_swing_c=8)
    assert climate.temperature_c(200 * 86_400 + 15 * hour) == pytest.approx(23, abs=0.1)
    assert climate.temperature_c(17 * 86_400 + 3 * hour) < 0
