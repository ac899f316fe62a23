"""A recording with uneven stamps and a long gap, through all parts: what is answered is what the file holds."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.system.waiting import wait_for

if TYPE_CHECKING:
    from tests.system.conftest import RunningCluster

pytestmark = [pytest.mark.system, pytest.mark.spark]

BEGIN = datetime(2012, 3, 1, tzinfo=UTC)
WINDOW_S = 60
READINGS: tuple[tuple[float, str, float | None], ...] = (
    (0.25, "a", 1.0), (5.5, "b", 10.0), (7.0, "a", 2.0), (7.0, "a", 3.0), (17.5, "a", None), (29.999999, "a", 4.0),
    (30.0, "a", 5.0), (61.000001, "b", 20.0), (68.0, "b", 21.0), (300.0, "a", 6.0), (303.0, "b", 30.0),
)  # fmt: skip
"""Seconds, sensor and speed: nothing for four minutes in the middle, and two readings of one instant."""


def rows_of(cluster: RunningCluster, query: str, count: int) -> list[dict[str, Any]]:
    wait_for(lambda: cluster.api.query(query)["rows"] >= count, f"{query} has {count} rows")
    return cluster.api.results(query)


def seconds(row: dict[str, Any]) -> float:
    return (datetime.fromisoformat(row["start"]) - BEGIN) / timedelta(seconds=1)


def test_a_recording_is_answered_with_its_own_stamps_and_gaps(cluster: RunningCluster, tmp_path: Path) -> None:
    path = tmp_path / "uneven.csv"
    lines = [
        f"{(BEGIN + timedelta(seconds=at)).isoformat()},{sensor},{'' if speed is None else speed}"
        for at, sensor, speed in READINGS
    ]
    path.write_text("\n".join(["time,sensor,speed", *lines]) + "\n")
    cluster.parts.start_proxy("uneven")
    cluster.parts.start_motes(
        "uneven", "--trace", str(path), "--stream", "uneven", "--speed", "30", "--hold", "60s", "--exit-at-end"
    )
    wait_for(lambda: any(each["name"] == "uneven" for each in cluster.api.streams()), "the proxy offers its stream")
    queries = {
        "every": "SELECT sensor, speed FROM uneven",
        "means": f"SELECT sensor, AVG(speed) AS mean, COUNT(*) AS n FROM uneven WINDOW(RANGE {WINDOW_S} SECONDS SLIDE "
        f"{WINDOW_S} SECONDS) GROUP BY sensor",
        "firsts": "SELECT sensor, speed FROM uneven SAMPLE EVERY 30 SECONDS",
        "seen": f"SELECT sensor, COMPLETENESS() AS seen FROM uneven WINDOW(RANGE {WINDOW_S} SECONDS SLIDE {WINDOW_S} "
        "SECONDS) GROUP BY sensor",
    }  # fmt: skip
    added = {name: cluster.api.add(text, name) for name, text in queries.items()}
    assert ["as it is, without a rate" in each for each in added["seen"]["warnings"]] == [True]

    every = [(seconds(each), each["row"]["sensor"], each["row"]["speed"]) for each in rows_of(cluster, "every", 11)]
    assert sorted(every, key=str) == sorted(READINGS, key=str)

    grouped: dict[tuple[int, str], list[float | None]] = defaultdict(list)
    for at, sensor, speed in READINGS:
        grouped[int(at // WINDOW_S), sensor].append(speed)
    means = {
        (round(seconds(each)) // WINDOW_S - 1, each["row"]["sensor"]): (each["row"]["mean"], each["row"]["n"])
        for each in rows_of(cluster, "means", len(grouped))
    }
    known = {key: [each for each in speeds if each is not None] for key, speeds in grouped.items()}
    assert means == {key: (sum(known[key]) / len(known[key]), len(speeds)) for key, speeds in grouped.items()}

    firsts: dict[tuple[int, str], tuple[float, str, float | None]] = {}
    for reading in READINGS:
        firsts.setdefault((int(reading[0] // 30), reading[1]), reading)
    found = [(seconds(each), *each["row"].values()) for each in rows_of(cluster, "firsts", len(firsts))]
    assert sorted(found, key=str) == sorted(firsts.values(), key=str)

    assert [each["row"]["seen"] for each in rows_of(cluster, "seen", len(grouped))] == [None] * len(grouped)
    for name in queries:
        cluster.api.drop(name)
