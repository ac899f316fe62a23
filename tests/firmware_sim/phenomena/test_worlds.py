"""Worlds by name."""

from __future__ import annotations

import pytest

from firmware_sim.phenomena.worlds import WORLDS, make_world
from protocols.errors import SettingsError


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_a_world_has_its_motes_and_senses(name):
    world = make_world(name, motes=16, seed=2, default_period_us=250_000)
    assert len(world.motes) == 16
    assert {mote.default_period_us for mote in world.motes} == {250_000}
    names = tuple(each.name for each in world.motes[0].stream.sampled)
    assert all(value is not None for value in world.sense(3, 10**12, names))


@pytest.mark.parametrize(("motes", "expected"), [(1, 2), (2, 2), (8, 8), (20, 16), (64, 64)])
def test_a_road_has_whole_stations(motes, expected):
    assert len(make_world("road", motes=motes).motes) == expected


def test_an_unknown_world_is_answered_with_those_there_are():
    with pytest.raises(SettingsError, match="traffic, road, climate"):
        make_world("moon", motes=1)
