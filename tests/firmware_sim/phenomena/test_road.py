"""Vehicles on a road: they keep apart, jam where the road is too slow, and two motes tell their speed and length."""

from __future__ import annotations

import numpy as np
import pytest

from firmware_sim.errors import SimulationError
from firmware_sim.execution.execution import Execution
from firmware_sim.phenomena.road import METRES_PER_FOOT, MPH, ROAD, Lane, LaneSettings, Road, RoadSettings
from firmware_sim.power.program_file import OVER, paper_program
from firmware_sim.virtual_time.fleet import VirtualFleet, VirtualSettings
from protocols.power.profiles import find_profile
from protocols.wire.packets import VehicleEvent, VehicleTally
from protocols.wire.programs import SamplingProgram, VehicleEvents

SECOND = 1_000_000
HERTZ_180 = 5_556
ONE_LANE = RoadSettings(stations=1, lanes=1, vehicles_per_hour=900)
PAPER = find_profile("atmel8515")


def events_of(road, mote, seconds):
    """Event pairs that a mote sends, sampling at 180 Hz."""
    execution = Execution(SamplingProgram(("level",), HERTZ_180, report=VehicleEvents(OVER)), 0)
    return [
        (stamp, record)
        for tick in range(seconds * SECOND // HERTZ_180)
        for stamp, record in execution.take(tick * HERTZ_180, road.sense(mote, tick * HERTZ_180, ("level",)))
    ]


def test_speed_and_length_within_a_foot_at_60_mph_and_180_hz():
    road = Road(RoadSettings(stations=1, lanes=1, vehicles_per_hour=700, apart_feet=10), seed=4, origin_us=0)
    upstream, downstream = (events_of(road, mote, 240) for mote in (0, 1))
    truth = [passage for passage in road.passages(0) if 1 < passage.front < 235]
    errors, near_60 = [], 0
    for passage in truth:
        t0, first = min(upstream, key=lambda event: abs(event[0] / SECOND - passage.front))
        t1 = min(stamp for stamp, _ in downstream if stamp > t0)
        # papers/fjords.md section 6: speed = d / (t1 - t0), length = speed (t2 - t0).
        feet_per_second = 10 / (t1 - t0) * SECOND
        length_feet = feet_per_second * first.passing_us / SECOND
        near_60 += 55 <= passage.speed_mps / MPH <= 70
        errors.append(abs(length_feet - passage.length_metres / METRES_PER_FOOT))
        assert feet_per_second == pytest.approx(passage.speed_mps / METRES_PER_FOOT, abs=1.0), "a foot a second"
    assert len(errors) >= 30
    assert near_60 >= 0.8 * len(errors), "the test is about fast vehicles"
    assert max(errors) < 1.0


def test_motes_in_virtual_time_see_every_vehicle():
    road = Road(ONE_LANE, seed=2, origin_us=0)
    programs = {"r01l1u": paper_program("events", PAPER, 180), "r01l1d": paper_program("count", PAPER, 180)}
    received = {"r01l1u": 0, "r01l1d": 0}

    def listen(_, packet):
        for record in packet.records:
            if isinstance(record, VehicleEvent):
                received[packet.mote] += 1
            elif isinstance(record, VehicleTally):
                received[packet.mote] += record.vehicles

    VirtualFleet(road, programs, VirtualSettings(PAPER), listen).run(200 * SECOND)
    truth = len([passage for passage in road.passages(0) if passage.front > 3 and passage.rear < 199])
    assert truth > 30
    assert received["r01l1u"] == pytest.approx(truth, abs=2)
    assert received["r01l1d"] == pytest.approx(truth, abs=3)


def drive(settings, seconds, per_hour, seed=1):
    lane = Lane(settings, (1500.0,), np.random.default_rng(seed), begins=0.0)
    passed = []
    while lane.seconds < seconds:
        passed += [passage for _, passage in lane.step(per_hour)]
    return lane, passed


def test_vehicles_never_touch():
    lane, _ = drive(LaneSettings(slow_from_metres=1600, slow_share=0.2), 900, 1800)
    gaps = lane._front[:-1] - lane._length[:-1] - lane._front[1:]
    assert lane.vehicles > 20
    assert gaps.min() > 0
    assert (lane._speed >= 0).all()


def test_an_open_road_flows_and_a_slow_stretch_jams_it():
    _, free = drive(LaneSettings(), 1200, 1000)
    _, jammed = drive(LaneSettings(slow_from_metres=1700, slow_share=0.15), 1200, 1700)
    free_mph = np.array([passage.speed_mps for passage in free if passage.front > 600]) / MPH
    jammed_mph = np.array([passage.speed_mps for passage in jammed if passage.front > 600]) / MPH
    assert free_mph.mean() > 50
    assert jammed_mph.mean() < 25
    assert len(free) == pytest.approx(1000 / 3, rel=0.15)


def test_the_jam_travels_upstream():
    settings = LaneSettings(slow_from_metres=1900, slow_share=0.1)
    lane = Lane(settings, (600.0, 1200.0, 1800.0), np.random.default_rng(3), begins=0.0)
    slow_since: dict[int, float] = {}
    while lane.seconds < 3000:
        for sensor, passage in lane.step(1700):
            if passage.speed_mps < 20 * MPH:
                slow_since.setdefault(sensor, passage.front)
    assert slow_since[2] < slow_since[1] < slow_since[0]


def test_a_seed_is_a_road():
    one, same, other = (Road(ONE_LANE, seed=seed, origin_us=0) for seed in (1, 1, 2))
    levels = [[road.level(0, tick * 50_000) for tick in range(2000)] for road in (one, same, other)]
    assert levels[0] == levels[1] != levels[2]
    assert max(levels[0]) == 1.0
    assert min(levels[0]) == 0.0


def test_motes_of_the_road():
    road = Road(RoadSettings(stations=2, lanes=3))
    assert len(road.motes) == 12
    assert len({mote.name for mote in road.motes}) == 12
    first, second = road.motes[:2]
    assert second.properties["place"] - first.properties["place"] == pytest.approx(10.0, abs=0.02)
    assert {each.name for each in ROAD.sampled} == {"level"}
    with pytest.raises(SimulationError, match="9 lanes"):
        Road(RoadSettings(lanes=9))


def test_rush_hours_bring_more_vehicles():
    hour = 3600 * SECOND
    counts = []
    for at in (3 * hour, 8 * hour):
        road = Road(RoadSettings(stations=1, lanes=1, vehicles_per_hour=1500, rush=True), origin_us=at)
        road.level(0, at + 300 * SECOND)
        counts.append(len(road.passages(0)))
    assert counts[1] > 3 * counts[0]
