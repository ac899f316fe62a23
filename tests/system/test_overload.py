"""Spark stops while samples come, and then the whole cluster: rows wait on disk, the lag shows, and all are answered.

    Java stopped       |=========================|                lag grows; the stream's table takes all rows
    cluster stopped             |======|                           no acknowledgements: the proxy's spool takes them
    samples        ------------------------------------.           none is lost, none is doubled
"""  # fmt: skip

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import psutil
import pytest

from cluster.demo.parts import Child, Children, Parts, free_port
from cluster.ingest.batch_reception import MAX_WAITING_BYTES
from cluster.service.client.api_client import ApiClient
from protocols.mqtt.link import BrokerAddress, Message, MqttLink
from protocols.wire import topics
from tests.system.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

SECONDS = 180.0
LAGGING_ROWS = 3_000
SPOOLED_BATCHES = 50
"""More than a proxy has in flight."""
MOST_IN_MEMORY = 2_000
"""Samples at the proxy: those of the batch being written, and of the previous one."""


@contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def java_of(cluster: Child) -> psutil.Process:
    children = psutil.Process(cluster.process.pid).children(recursive=True)
    return next(each for each in children if "java" in each.name())


def metrics(address: str) -> dict[str, float]:
    """Return all metrics of a process, summed by name."""
    found: dict[str, float] = {}
    for line in httpx.get(f"{address}/metrics", timeout=30.0, trust_env=False).text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name.partition("{")[0]] = found.get(name.partition("{")[0], 0.0) + float(value)
    return found


def samples_in(table: Path) -> pl.DataFrame:
    stored = pl.read_delta(str(table))
    if "fjord_form" in stored.columns:
        stored = stored.filter(pl.col("fjord_form").is_null())
    return stored.select("fjord_start_us", "sensor", "speed").sort(pl.all())


def answers_in(table: Path) -> pl.DataFrame:
    rows = pl.read_delta(str(table)).filter(pl.col("query") == "all")
    decoded = rows["row"].str.json_decode(pl.Struct({"sensor": pl.String, "speed": pl.Float64})).struct.unnest()
    return rows.select(pl.col("start_us").alias("fjord_start_us")).hstack(decoded).sort(pl.all())


async def publish_garbage(broker: BrokerAddress) -> None:
    """Publish frames that the proxy rejects: when it does, it has received everything published before."""
    link = MqttLink(broker, client_id="garbage")
    running = asyncio.create_task(link.run(lambda _: asyncio.sleep(0)))
    await asyncio.wait_for(link.connected.wait(), SECONDS)
    await link.publish(Message(topics.packet("roadside", "m0"), b"garbage"))
    running.cancel()


def test_rows_beyond_sparks_speed_wait_on_disk_and_are_answered(tmp_path: Path) -> None:
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        at_proxy, table = free_port(), tmp_path / "cluster" / "streams" / "traffic"
        parts.start_broker()
        cluster = parts.start_cluster("--max-rows", "1000")
        proxy = parts.start_proxy("roadside", "--metrics-port", str(at_proxy))
        motes = parts.start_motes("roadside", "--motes", "48")
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            api.add("SELECT sensor, speed FROM traffic SAMPLE EVERY 100 MILLISECONDS", "all")

            def lag() -> dict[str, Any]:
                return api.query("all")["lag"] or {"rows": 0, "seconds": 0.0}

            def seen_at_proxy() -> dict[str, float]:
                found = metrics(f"http://127.0.0.1:{at_proxy}")
                assert found["fjord_proxy_samples_waiting"] <= MOST_IN_MEMORY
                return found

            wait_for(lambda: api.query("all")["rows"] > 100, "nothing is answered", seconds=SECONDS)
            with stopped(java_of(cluster)):
                wait_for(lambda: lag()["rows"] > LAGGING_ROWS, "no lag is shown", seconds=SECONDS)
                status = api.status()
                assert status["lag"]["rows"] > LAGGING_ROWS
                assert status["lag"]["seconds"] > 1
                assert status["fjord"]["silent_seconds"] > 1
                at_cluster = metrics(parts.api_address)
                assert at_cluster["fjord_ingest_waiting_bytes"] <= MAX_WAITING_BYTES
                assert at_cluster["fjord_query_lag_rows"] > LAGGING_ROWS
                assert seen_at_proxy()["fjord_proxy_spool_batches"] < SPOOLED_BATCHES, "Spark holds up acknowledgements"
                with stopped(psutil.Process(cluster.process.pid)):
                    wait_for(
                        lambda: seen_at_proxy()["fjord_proxy_spool_batches"] > SPOOLED_BATCHES,
                        "the spool does not grow",
                        seconds=SECONDS,
                    )
            wait_for(lambda: seen_at_proxy()["fjord_proxy_spool_batches"] < SPOOLED_BATCHES, seconds=SECONDS)
            children.forget(motes)
            motes.process.terminate()
            motes.process.wait(20)
            refused = "fjord_proxy_frames_refused_total"
            before = seen_at_proxy().get(refused, 0)
            asyncio.run(publish_garbage(parts.broker))
            wait_for(lambda: seen_at_proxy().get(refused, 0) > before, "garbage is not rejected", seconds=SECONDS)
            sent = seen_at_proxy()["fjord_proxy_samples_total"]
            wait_for(lambda: samples_in(table).height >= sent, "not all is stored", seconds=SECONDS)
            wait_for(lambda: not seen_at_proxy()["fjord_proxy_spool_batches"], seconds=SECONDS)
            wait_for(lambda: lag() == {"rows": 0, "seconds": 0.0}, "the lag stays", seconds=SECONDS)
            stored = samples_in(table)
            assert api.status()["rows_late"] == 0
            assert stored.height == sent == seen_at_proxy()["fjord_proxy_samples_total"]
            wait_for(lambda: api.query("all")["rows"] >= stored.height, "not all is answered", seconds=SECONDS)
        assert answers_in(tmp_path / "cluster" / "results").equals(stored)
