"""A recorded day through all parts: every average is DuckDB's, all are complete, and a late query disturbs no other."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest

from protocols.mqtt.link import Message, MqttLink, Subscription
from protocols.wire import topics
from tests.system.recorded_day import DAY, SPEED, assert_all_averages, averages_sql, expected_averages, expected_below

if TYPE_CHECKING:
    from tests.system.conftest import RunningCluster

pytestmark = [pytest.mark.system, pytest.mark.spark]

COMPLETENESS = """SELECT sensor, COMPLETENESS() AS seen
                  FROM recorded WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES) GROUP BY sensor"""


class Subscriber:
    """Collects the results of some queries, as any MQTT client would."""

    def __init__(self, cluster: RunningCluster, *queries: str) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {query: [] for query in queries}
        self._arrived = asyncio.Event()
        self._link = MqttLink(
            cluster.parts.broker,
            client_id=f"subscriber-{'-'.join(queries)}",
            subscriptions=[Subscription(topics.results(query)) for query in queries],
        )

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._link.run(self._take))
        await self._link.connected.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _take(self, message: Message) -> None:
        row = msgspec.json.decode(message.payload)
        self.rows[row["query"]].append(row)
        self._arrived.set()

    async def until(self, reached: Any, *, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not reached():
                self._arrived.clear()
                await self._arrived.wait()


async def test_every_average_of_a_day_and_a_second_query_midway(cluster: RunningCluster) -> None:
    proxy = cluster.parts.start_proxy("recorder")
    trace = ("--trace", str(DAY), "--stream", "recorded", "--speed", str(SPEED))
    cluster.parts.start_motes("recorder", *trace, "--resample")  # so that a sample is due at each of its instants
    await asyncio.to_thread(cluster.parts.wait_for_stream, "recorded", proxy)
    expected = expected_averages()
    starts_before = cluster.api.status()["fjord"]["starts"]
    async with Subscriber(cluster, "averages", "complete", "crowded") as subscriber:
        averages, complete, crowded = (subscriber.rows[name] for name in ("averages", "complete", "crowded"))
        await asyncio.to_thread(cluster.api.add, averages_sql("recorded"), "averages")
        await asyncio.to_thread(cluster.api.add, COMPLETENESS, "complete")
        await subscriber.until(lambda: len(averages) > len(expected) // 3, seconds=120)
        await asyncio.to_thread(cluster.api.add, "SELECT sensor, speed FROM recorded WHERE speed < 45", "crowded")
        await subscriber.until(lambda: crowded, seconds=30)
        assert len(averages) < len(expected), "the second query was to begin while the first runs"
        await subscriber.until(lambda: min(len(averages), len(complete)) >= len(expected), seconds=120)

    assert_all_averages(averages)
    assert len(complete) == len(expected)
    assert {row["row"]["seen"] for row in complete} == {1.0}

    # The second: of each sensor, from some reading on, exactly those below 45 mph; up to the end of its answer.
    rows = [(row["row"]["sensor"], datetime.fromisoformat(row["start"]), row["row"]["speed"]) for row in crowded]
    assert [row["sequence"] for row in crowded] == list(range(1, len(rows) + 1))
    assert [at for _, at, _ in rows] == sorted(at for _, at, _ in rows)
    reached = rows[-1][1]
    readings = [row for row in expected_below(45) if row[1] < reached]
    for sensor in {sensor for sensor, _, _ in readings}:
        wanted = [row for row in readings if row[0] == sensor]
        got = [row for row in rows if row[0] == sensor and row[1] < reached]
        assert got == wanted[len(wanted) - len(got) :], f"sensor {sensor} lost or doubled a reading"
    assert len(rows) > len(readings) // 4
    assert cluster.api.status()["fjord"]["starts"] == starts_before, "no query may restart the engine"
    for query in ("averages", "complete", "crowded"):
        stored = cluster.api.results(query, after=0, limit=10_000)
        published = subscriber.rows[query]
        assert stored[: len(published)] == published
        await asyncio.to_thread(cluster.api.drop, query)
