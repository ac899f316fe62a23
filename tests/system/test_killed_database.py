"""PostgreSQL is killed under a running query and comes back with other rows; every answer is correct.

kill      1               2
server    |----away------)|-away-)
answers   stale, errors    ...    new rows

One kill by default, which lasts until the query gets errors; ``make test-faults`` asks for more, of random length.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cluster.demo.parts import Children, Parts
from cluster.service.client.api_client import ApiClient
from cluster.storage.relation_versions import RelationVersion, RelationVersions
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from tests.postgres_server import PostgresServer, find_postgres, running_postgres

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults]

KILLS = int(os.environ.get("FJORD_KILLS", "1"))
SECONDS = 60.0
STALE_SECONDS = 3
JOINED = "SELECT t.sensor, c.reason FROM traffic AS t, closures AS c WHERE t.lane = c.lane"
ALL = "SELECT sensor, lane FROM traffic"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of this test's own, as it is killed."""
    programs = find_postgres()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with running_postgres(programs) as running:
        running.execute("CREATE TABLE closures (lane bigint, reason text)")
        yield running


@contextmanager
def published(broker: BrokerAddress, query: str) -> Iterator[list[dict[str, Any]]]:
    """Collect all messages of a query, errors too, as a subscriber that is always connected."""
    found: list[dict[str, Any]] = []
    subscriptions = [Subscription(topics.results(query)), Subscription(topics.query_errors(query))]

    async def take(message: Message) -> None:
        found.append(json.loads(message.payload))

    async def follow() -> None:
        link = MqttLink(broker, client_id=f"follower-{query}", subscriptions=subscriptions)
        running = asyncio.create_task(link.run(take))
        await link.connected.wait()
        ready.set()
        await asyncio.to_thread(ended.wait)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    ready, ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(follow()))
    thread.start()
    try:
        assert ready.wait(SECONDS)
        yield found
    finally:
        ended.set()
        thread.join(SECONDS)


def wait_for(reached: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def rows_of(api: ApiClient, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while part := api.results(query, after=len(found), limit=10_000):
        found += part
    return found


def stamp_us(message: dict[str, Any]) -> int:
    return (datetime.fromisoformat(message["start"]) - EPOCH) // timedelta(microseconds=1)


def change(server: PostgresServer, number: int) -> None:
    """Close lanes 1 (for two reasons) and 2; lanes 3 and 4 are open."""
    server.execute(
        f"DELETE FROM closures; INSERT INTO closures VALUES (1, 'works {number}'), (1, 'flood {number}'), "
        f"(2, 'works {number}'), (NULL, 'nowhere')"
    )


def expected(all_rows: list[dict[str, Any]], versions: RelationVersions) -> Counter[tuple[int, str, str]]:
    """Join each tuple with the version of its stamp, from the files of the versions alone."""
    known: list[tuple[int, RelationVersion]] = []
    for number in versions.numbers():
        version = versions.version(number)
        known.append((version.begins_us.get("traffic", 0) if known else 0, version))
    reasons: dict[int, list[tuple[int, str]]] = {
        version.number: [] if version.failure else pl.read_parquet(versions.snapshot(version.number)).rows()
        for _, version in known
    }
    found: Counter[tuple[int, str, str]] = Counter()
    for message in all_rows:
        stamp, row = stamp_us(message), message["row"]
        active = next(version for since, version in reversed(known) if since <= stamp)
        found.update((stamp, row["sensor"], reason) for lane, reason in reasons[active.number] if lane == row["lane"])
    return found


def test_kill_minus_nine_of_postgresql_under_a_running_query(tmp_path: Path, server: PostgresServer) -> None:
    dice = random.Random()
    change(server, 0)
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        parts.start_cluster()
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--motes", "8", "--period", "200ms")
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api, published(parts.broker, "near") as messages:
            api.declare_relation(
                f"CREATE RELATION closures (lane INTEGER, reason TEXT) FROM '{server.url()}' "
                f"REFRESH EVERY 1 SECOND STALE AFTER {STALE_SECONDS} SECONDS"
            )
            api.add(ALL, "all")
            api.add(JOINED, "near")

            def answered(reason: str) -> bool:
                return any(reason in message.get("row", {}).get("reason", "") for message in messages)

            wait_for(lambda: answered("works 0"), "the first answer")
            for number in range(1, KILLS + 1):
                server.kill()
                wait_for(lambda: api.relation("closures")["state"] != "fresh", "the cluster to notice")
                if number == 1:
                    wait_for(lambda: any("error" in message for message in messages), "an error")
                    away = api.relation("closures")
                    assert (away["state"], away["age"] >= STALE_SECONDS) == ("away", True), away
                    stale = [message["stale"]["closures"] for message in messages if "stale" in message]
                    assert stale == sorted(stale), "it gets older"
                    assert len(set(stale)) > 1
                    error = next(message for message in messages if "error" in message)
                    assert "closures has been stale for 3 seconds: connection to server" in error["error"]
                    assert api.query("near")["state"] == "running"
                else:
                    time.sleep(dice.uniform(0, 2 * STALE_SECONDS))
                server.start()
                change(server, number)
                wait_for(lambda wanted=f"works {number}": answered(wanted), "the new rows")
            last = len(messages)
            wait_for(lambda: len(messages) > last + 20, "more answers")
            assert not any("stale" in message for message in messages[-5:])
            schema_changes(server, api)
            wait_for(lambda: answered("after the change"), "answers after the change of columns")
            all_rows, near = rows_of(api, "all"), rows_of(api, "near")
            (folder,) = (tmp_path / "cluster" / "relations").glob("closures@*")
            versions = RelationVersions(folder)
            check(all_rows, near, messages, versions)


def schema_changes(server: PostgresServer, api: ApiClient) -> None:
    """Take a column away under the query, and give it back beside another one."""
    server.execute("ALTER TABLE closures RENAME COLUMN reason TO why")
    wait_for(lambda: "no column 'reason'" in (api.relation("closures")["reason"] or ""), "the column to be missed")
    server.execute(
        "ALTER TABLE closures RENAME COLUMN why TO reason",
        "ALTER TABLE closures ADD COLUMN since timestamptz DEFAULT now()",
        "UPDATE closures SET reason = reason || ' after the change'",
    )


def check(
    all_rows: list[dict[str, Any]],
    near: list[dict[str, Any]],
    messages: list[dict[str, Any]],
    versions: RelationVersions,
) -> None:
    """Compare every answer with the expected one, by the stamps of the tuples."""
    assert any(versions.version(number).failure for number in versions.numbers())
    assert [message["sequence"] for message in near] == list(range(1, len(near) + 1))
    assert [message["sequence"] for message in messages] == list(range(1, len(messages) + 1)), (
        "published once, in order"
    )
    answers = [message for message in near if "row" in message]
    # Each mote begins with both queries, and both are complete up to the last answer of the slower one.
    first = max(min(stamp_us(message) for message in rows) for rows in (all_rows, answers)) + 2_000_000
    last = min(max(stamp_us(message) for message in rows) for rows in (all_rows, answers))
    wanted = expected([row for row in all_rows if first <= stamp_us(row) < last], versions)
    found = Counter(
        (stamp_us(message), message["row"]["sensor"], message["row"]["reason"])
        for message in answers
        if first <= stamp_us(message) < last
    )
    assert found == wanted, (found - wanted, wanted - found)
    numbers = {int(reason.split()[1]) for _, _, reason in found}
    assert numbers >= set(range(1, KILLS + 1)), "each state of the table had answers"
    assert max(found.values()) == 1
    assert len(found) > 100
    assert all(a["start"] <= b["start"] for a, b in itertools.pairwise(answers))
