"""Speed and length of single vehicles, by SQL, from pairs of motes in the road (papers/fjords.md section 6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmware_sim.phenomena.road import METRES_PER_FOOT, MPH, Road, RoadSettings
from tests.system.pushed_down import SECOND, kinds, run

SECONDS = 240
EVENTS = "road EVENTS(level ABOVE 0.5) SAMPLE EVERY 5556 US"  # 180 Hz
PAIRS = f"""
    SELECT u.lane AS lane, (d.place - u.place) * 1000000 / apart_us AS speed,
           (d.place - u.place) * u.passing_us / apart_us AS length
    FROM (SELECT station, lane, place, passing_us FROM {EVENTS} WHERE sensor LIKE '%u') AS u
    ZIP JOIN (SELECT station, lane, place FROM {EVENTS} WHERE sensor LIKE '%d') AS d
    WITHIN 0 SECONDS TO 1 SECOND ON u.station = d.station AND u.lane = d.lane
"""
LONG = f"""
    SELECT lane, COUNT(*) AS vehicles, AVG(length) AS mean FROM ({PAIRS}) AS v WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE)
    GROUP BY lane
"""


def test_speed_and_length_within_a_foot_at_60_mph_and_180_hz(tmp_path: Path) -> None:
    road = Road(RoadSettings(stations=1, lanes=2, vehicles_per_hour=700, apart_feet=10), seed=4, origin_us=0)
    road.begins_us, road.ends_us = 0, SECONDS * SECOND
    outcome = run(road, {"vehicles": PAIRS, "minutes": LONG}, tmp_path)
    assert not outcome.errors
    assert {tuple(kinds(program)) for program in outcome.programs.values()} == {("VehicleEvents",)}, (
        "nothing else is sent"
    )
    near_60 = found = 0
    for lane in (1, 2):
        rows = [(start, row) for start, _, row in outcome.rows["vehicles"] if row["lane"] == lane]
        # A mote begins with its program, and vehicles that have not left are not known.
        truth = [each for each in road.passages(2 * lane - 1) if 30 < each.front < SECONDS - 5]
        for passage in truth:
            start, row = min(rows, key=lambda pair: abs(pair[0] / SECOND - passage.front))
            assert abs(start / SECOND - passage.front) < 0.1, "a pair is valid when its vehicle arrives downstream"
            assert row["speed"] == pytest.approx(passage.speed_mps / METRES_PER_FOOT, abs=1.0), "a foot a second"
            assert row["length"] == pytest.approx(passage.length_metres / METRES_PER_FOOT, abs=1.0), "a foot"
            near_60 += 55 <= passage.speed_mps / MPH <= 70
            found += 1
    assert found >= 50
    assert near_60 >= 0.7 * found, "the test is about fast vehicles"
    counted = sum(row["vehicles"] for _, _, row in outcome.rows["minutes"])
    assert counted == len([start for start, *_ in outcome.rows["vehicles"] if start < (SECONDS - 1) * SECOND])
