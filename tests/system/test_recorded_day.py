"""A recorded day through all parts: every average is DuckDB's, and a query that joins midway disturbs nobody."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import duckdb
import msgspec
import pytest

from protocols import topics
from protocols.mqtt import Message, MqttLink, Subscription

if TYPE_CHECKING:
    from tests.system.conftest import RunningCluster

DAY = Path(__file__).parents[2] / "examples" / "traffic" / "la_loop_speeds_day.parquet"
AVERAGES = "SELECT sensor, AVG(speed) AS speed FROM recorded WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES) GROUP BY sensor"
CROWDED = "SELECT sensor, speed FROM recorded WHERE speed < 45"
SPEED = 2_880
"""A day in half a minute."""
HALF_HOUR = timedelta(minutes=30)

pytestmark = [pytest.mark.system, pytest.mark.spark]


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


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def expected_averages() -> dict[tuple[str, datetime], float]:
    """By sensor and end of its half hour, from the file itself."""
    rows = duckdb.sql(
        f"SELECT sensor::VARCHAR, time_bucket(INTERVAL 30 MINUTES, time) + INTERVAL 30 MINUTES, AVG(speed) "
        f"FROM read_parquet('{DAY}') GROUP BY ALL"
    ).fetchall()
    return {(sensor, ended.replace(tzinfo=UTC)): mean for sensor, ended, mean in rows}


def expected_crowded() -> list[tuple[str, datetime, float]]:
    rows = duckdb.sql(
        f"SELECT sensor::VARCHAR, time, speed FROM read_parquet('{DAY}') WHERE speed < 45 ORDER BY time"
    ).fetchall()
    return [(sensor, at.replace(tzinfo=UTC), speed) for sensor, at, speed in rows]


async def test_every_average_of_a_day_and_a_second_query_midway(cluster: RunningCluster) -> None:
    proxy = cluster.parts.start_proxy("recorder")
    cluster.parts.start_motes("recorder", "--trace", str(DAY), "--stream", "recorded", "--speed", str(SPEED))
    await asyncio.to_thread(cluster.parts.wait_for_stream, "recorded", proxy)
    expected = expected_averages()
    assert len(expected) == 207 * 48
    starts_before = cluster.api.status()["fjord"]["starts"]
    async with Subscriber(cluster, "averages", "crowded") as subscriber:
        averages, crowded = subscriber.rows["averages"], subscriber.rows["crowded"]
        await asyncio.to_thread(cluster.api.add, AVERAGES, "averages")
        await subscriber.until(lambda: len(averages) > len(expected) // 3, seconds=120)
        await asyncio.to_thread(cluster.api.add, CROWDED, "crowded")
        await subscriber.until(lambda: crowded, seconds=30)
        assert len(averages) < len(expected), "the second query was to begin while the first runs"
        await subscriber.until(lambda: len(averages) >= len(expected), seconds=120)

    # The first query: every average, once, in order, numbered without gaps.
    assert [row["sequence"] for row in averages] == list(range(1, len(expected) + 1))
    assert [row["start"] for row in averages] == sorted(row["start"] for row in averages)
    found = {
        (row["row"]["sensor"], instant(row["start"]) + timedelta(microseconds=1)): row["row"]["speed"]
        for row in averages
    }
    assert found.keys() == expected.keys()
    for key, mean in expected.items():
        assert found[key] == pytest.approx(mean, rel=1e-12, abs=0)
    assert all(instant(row["end"]) - instant(row["start"]) == HALF_HOUR for row in averages)

    # The second: of each sensor, from some reading on, exactly those below 45 mph; up to where its answer has come.
    rows = [(row["row"]["sensor"], instant(row["start"]), row["row"]["speed"]) for row in crowded]
    assert [row["sequence"] for row in crowded] == list(range(1, len(rows) + 1))
    assert [at for _, at, _ in rows] == sorted(at for _, at, _ in rows)
    reached = rows[-1][1]
    readings = [row for row in expected_crowded() if row[1] < reached]
    for sensor in {sensor for sensor, _, _ in readings}:
        wanted = [row for row in readings if row[0] == sensor]
        got = [row for row in rows if row[0] == sensor and row[1] < reached]
        assert got == wanted[len(wanted) - len(got) :], f"sensor {sensor} lost or doubled a reading"
    assert len(rows) > len(readings) // 4
    assert cluster.api.status()["fjord"]["starts"] == starts_before, "no query may restart the Fjord"
    for query in ("averages", "crowded"):
        stored = cluster.api.results(query, after=0, limit=10_000)
        published = subscriber.rows[query]
        assert stored[: len(published)] == published
        await asyncio.to_thread(cluster.api.drop, query)
