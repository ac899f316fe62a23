"""Generated traffic: the same for the same seed, believable, with jams that come and go."""

from __future__ import annotations

import pytest

from firmware_sim.errors import SimulationError
from firmware_sim.phenomena.traffic import JAM_EVERY_SECONDS, Traffic, rush_hour

SECOND = 1_000_000
FIELDS = ("speed", "flow")


def test_same_seed_same_traffic_whatever_the_order() -> None:
    one, other = Traffic(8, seed=3), Traffic(8, seed=3)
    instants = [at * SECOND for at in range(50)]
    forwards = [one.sense(place, at, FIELDS) for at in instants for place in range(8)]
    backwards = [other.sense(place, at, FIELDS) for at in reversed(instants) for place in reversed(range(8))]
    assert forwards == backwards[::-1]
    assert forwards != [Traffic(8, seed=4).sense(place, at, FIELDS) for at in instants for place in range(8)]


def test_values_are_believable_and_there_are_jams() -> None:
    road = Traffic(16)
    sensed = [road.sense(place, at * SECOND, FIELDS) for at in range(int(JAM_EVERY_SECONDS)) for place in range(16)]
    speeds = [float(speed or 0) for speed, _ in sensed]
    assert all(1 <= speed <= 90 for speed in speeds)
    assert all(0 <= float(flow or 0) <= 3_000 for _, flow in sensed)
    slow = sum(speed < 30 for speed in speeds) / len(speeds)
    assert 0.02 < slow < 0.3


def test_fields_come_in_the_order_asked_for() -> None:
    road = Traffic(1)
    speed, flow = road.sense(0, 0, FIELDS)
    assert road.sense(0, 0, ("flow", "speed")) == (flow, speed)
    assert road.sense(0, 0, ("flow",)) == (flow,)


def test_sixty_four_loops_stand_on_sixteen_segments_of_four_lanes() -> None:
    motes = Traffic(64).motes
    assert len({mote.name for mote in motes}) == 64
    assert {mote.properties["segment"] for mote in motes} == set(range(1, 17))
    assert {mote.properties["lane"] for mote in motes} == {1, 2, 3, 4}


def test_rush_hours_are_in_the_morning_and_the_afternoon() -> None:
    by_hour = [rush_hour(hour * 3600.0) for hour in range(24)]
    assert by_hour.index(max(by_hour)) in {8, 17}
    assert by_hour[3] < 0.1 < by_hour[16]


def test_a_road_without_loops_is_refused() -> None:
    with pytest.raises(SimulationError, match="0 loops"):
        Traffic(0)
