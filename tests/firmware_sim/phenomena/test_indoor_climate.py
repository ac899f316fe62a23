"""Rooms have days, doors, and fields that belong together."""

from __future__ import annotations

import numpy as np
import pytest

from firmware_sim.errors import SimulationError
from firmware_sim.phenomena.indoor_climate import INDOOR_CLIMATE, IndoorClimate
from protocols.wire.streams import check_value

SECOND = 1_000_000
FIELDS = ("temperature", "humidity", "light", "door_open")


def day(mote=0, seed=1, every_s=60):
    world = IndoorClimate(3, seed=seed)
    return np.array([world.sense(mote, second * SECOND, FIELDS) for second in range(0, 86_400, every_s)], dtype=float)


def test_values_fit_their_schema():
    world = IndoorClimate(12)
    for mote in range(12):
        for name, value in zip(FIELDS, world.sense(mote, 10**15, FIELDS), strict=True):
            check_value(INDOOR_CLIMATE.field(name), value)
    assert world.motes[11].properties == {"room": "202", "floor": 2}


def test_days_have_light_and_nights_have_none():
    light = day()[:, 2]
    assert light[:300].max() < 20
    assert light[600:1080].min() > 250


def test_doors_open_by_day_and_cool_the_room():
    found = day(every_s=10)
    is_open = found[:, 3] == 1
    by_day = is_open[8 * 360 : 18 * 360].mean()
    assert 0.005 < by_day < 0.08
    assert is_open[: 6 * 360].mean() < by_day / 3
    began = [place for place in np.flatnonzero(np.diff(is_open.astype(int)) == 1) if 8 * 360 < place < 17 * 360]
    drops = [found[place, 0] - found[place + 1 : place + 13, 0].min() for place in began]
    assert np.mean(drops) > 0.5


def test_warm_air_is_dry():
    found = day()
    assert np.corrcoef(found[:, 0], found[:, 1])[0, 1] < -0.5


def test_a_seed_is_a_building_and_rooms_differ():
    assert np.array_equal(day(), day())
    assert not np.array_equal(day(), day(seed=2))
    assert not np.array_equal(day(mote=0), day(mote=1))


def test_temperature_changes_slowly():
    steps = np.abs(np.diff(day(every_s=10)[:, 0]))
    assert np.quantile(steps, 0.99) < 0.6
    with pytest.raises(SimulationError, match="0 rooms"):
        IndoorClimate(0)
