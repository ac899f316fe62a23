"""What the demonstration shows: its queries, and when one of them is dropped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A query of the demonstration."""

    name: str
    about: str
    sql: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """Three queries, and which are dropped when (share of the duration)."""

    queries: tuple[DemoQuery, ...]
    drops: tuple[tuple[float, str], ...]


GENERATED = Scenario(
    (
        DemoQuery(
            "segments",
            "average speed per road segment over the last 10 s, every 2 s",
            "SELECT segment, AVG(speed) AS speed, SUM(flow) AS flow, COUNT(*) AS samples"
            " FROM traffic WINDOW(RANGE 10 SECONDS SLIDE 2 SECONDS) GROUP BY segment",
        ),
        DemoQuery(
            "slow",
            "every sample below 30 mph",
            "SELECT sensor, segment, lane, speed FROM traffic WHERE speed < 30",
        ),
        DemoQuery(
            "quick",
            "four samples a second, counted per lane every 5 s",
            "SELECT lane, COUNT(*) AS samples, MIN(speed) AS slowest"
            " FROM traffic WINDOW(RANGE 5 SECONDS SLIDE 5 SECONDS) SAMPLE EVERY 250 MILLISECONDS GROUP BY lane",
        ),
    ),
    ((0.6, "quick"), (0.8, "slow"), (0.8, "segments")),
)
"""Over the traffic generator: dropping "quick" lets the motes go from 4 Hz to 1 Hz; at the end they fall asleep."""

TRACE = Scenario(
    (
        DemoQuery(
            "half_hours",
            "average speed per sensor, every 30 minutes",
            "SELECT sensor, AVG(speed) AS speed FROM traffic WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES) GROUP BY sensor",
        ),
        DemoQuery("slow", "every reading below 20 mph", "SELECT sensor, speed FROM traffic WHERE speed < 20"),
        DemoQuery(
            "whole_road",
            "all sensors over the last hour, every 15 minutes",
            "SELECT AVG(speed) AS speed, MIN(speed) AS slowest, COUNT(*) AS samples"
            " FROM traffic WINDOW(RANGE 1 HOUR SLIDE 15 MINUTES)",
        ),
    ),
    ((0.6, "slow"), (0.8, "half_hours"), (0.8, "whole_road")),
)
"""Over a recorded trace with the columns time, sensor and speed."""
