"""The last query over a sensor is dropped: its mote goes to sleep, and its radio's counters show it."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.system.waiting import wait_for

if TYPE_CHECKING:
    from tests.system.conftest import RunningCluster

MOTES = 8
WAKE_UPS = 4
"""Polls of a sleeping mote, one every 2 s: at 1 Hz it would have taken six samples meanwhile."""
soon = partial(wait_for, seconds=30.0)

pytestmark = [pytest.mark.system, pytest.mark.spark]


def counters(path: Path) -> dict[str, dict[str, int]]:
    if not path.exists():
        return {}
    found: dict[str, dict[str, int]] = json.loads(path.read_text())["motes"]
    return found


def periods(path: Path) -> list[int]:
    return [mote["period_us"] for mote in counters(path).values()]


def sent(path: Path, name: str) -> int:
    return sum(mote[name] for mote in counters(path).values())


def test_rates_follow_the_queries_and_without_any_motes_sleep(cluster: RunningCluster, tmp_path: Path) -> None:
    path = tmp_path / "counters.json"
    proxy = cluster.parts.start_proxy("sleeper")
    motes = cluster.parts.start_motes("sleeper", "--motes", str(MOTES), "--counters", str(path))
    cluster.parts.wait_for_stream("traffic", proxy)

    cluster.api.add("SELECT sensor, speed FROM traffic", "slow")
    soon(lambda: periods(path) == [1_000_000] * MOTES)
    cluster.api.add("SELECT sensor, speed FROM traffic SAMPLE EVERY 250 MILLISECONDS", "fast")
    soon(lambda: periods(path) == [250_000] * MOTES)
    soon(lambda: len(cluster.api.results("fast", limit=1000)) > 100)
    soon(lambda: len(cluster.api.results("slow", limit=1000)) > 50)
    for name, period_us in (("fast", 250_000), ("slow", 1_000_000)):
        starts = [datetime.fromisoformat(row["start"]) for row in cluster.api.results(name, limit=1000)]
        assert all(start.microsecond % period_us == 0 for start in starts), f"{name} gets its own samples only"

    cluster.api.drop("fast")
    soon(lambda: periods(path) == [1_000_000] * MOTES)
    cluster.api.drop("slow")
    soon(lambda: periods(path) == [0] * MOTES)

    samples, packets, listened, woken = (sent(path, name) for name in ("samples", "packets", "listen_us", "wake_ups"))
    soon(lambda: sent(path, "wake_ups") >= woken + WAKE_UPS * MOTES)
    assert sent(path, "samples") == samples, "a sleeping mote takes no samples"
    # A sleeping mote only polls: a packet each time it wakes, and then it listens for a moment.
    polls = sent(path, "packets") - packets
    wake_ups = sent(path, "wake_ups") - woken
    assert MOTES <= polls <= wake_ups + MOTES
    assert sent(path, "listen_us") - listened <= 200_000 * (wake_ups + MOTES)
    motes.process.terminate()
