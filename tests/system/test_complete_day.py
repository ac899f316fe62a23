"""A recorded day through all parts, of which nothing gets lost, is complete."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.system.recorded_day import DAY, SPEED, expected_averages
from tests.system.test_recorded_day import Subscriber

if TYPE_CHECKING:
    from tests.system.conftest import RunningCluster

pytestmark = [pytest.mark.system, pytest.mark.spark]


async def test_all_half_hours_of_a_day_are_complete(cluster: RunningCluster) -> None:
    proxy = cluster.parts.start_proxy("counter")
    cluster.parts.start_motes("counter", "--trace", str(DAY), "--stream", "counted", "--speed", str(SPEED))
    await asyncio.to_thread(cluster.parts.wait_for_stream, "counted", proxy)
    expected = expected_averages()
    sql = """SELECT sensor, COUNT(*) AS n, COMPLETENESS() AS seen
             FROM counted WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES) GROUP BY sensor"""
    async with Subscriber(cluster, "seen") as subscriber:
        rows = subscriber.rows["seen"]
        await asyncio.to_thread(cluster.api.add, sql, "seen")
        await subscriber.until(lambda: len(rows) >= len(expected), seconds=120)
    assert {row["row"]["seen"] for row in rows} == {1.0}
    await asyncio.to_thread(cluster.api.drop, "seen")
