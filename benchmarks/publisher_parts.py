"""The processes of benchmarks/publisher.py beside the publisher: one commits rows, one receives them, one is paho."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import paho.mqtt.client as mqtt
import polars as pl

from cluster.service.publishing.result_messages import result_frames
from cluster.storage.committed_results import RESULT_SCHEMA
from cluster.storage.results_table import ResultsTable
from protocols.event_log import configure_logging
from protocols.mqtt.frames import take_messages
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.mqtt.publishing import MOST_IN_FLIGHT
from protocols.wire import topics

QUERIES = 100
COMMITS_A_SECOND = 10
BEGAN_US = 1_700_000_000_000_000
SEQUENCE = b'"sequence":'


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts that processes share in memory.

    Parameters
    ----------
    newest
        The newest version of the results table.
    taken, missing
        Messages received, and how many numbers were left out before them.
    """

    newest: Synchronized[int]
    taken: Synchronized[int]
    missing: Synchronized[int]


def rows(count: int) -> pl.DataFrame:
    """Return rows as a micro-batch answers them, of many queries."""
    start = range(BEGAN_US, BEGAN_US + 1_000 * count, 1_000)
    return pl.DataFrame(
        {
            "query": [f"q{place % QUERIES}" for place in range(count)],
            "start_us": start,
            "end_us": [at + 1 for at in start],
            "kind": ["row"] * count,
            "row": [
                f'{{"sensor":"m{place % 300}","segment":{place % 50},"speed":{place % 80}.5}}' for place in range(count)
            ],
        }
    )


def commit_rows(folder: str, counts: Counts, orders: Connection) -> None:
    """Commit rows at the rates, and for the seconds, that are ordered; answer with how many they were."""
    configure_logging("error")
    table = ResultsTable(f"{folder}/results", "benchmark")
    micro_batch = 0
    orders.send(None)
    while True:
        rate, seconds = orders.recv()
        each = rows(round(rate / COMMITS_A_SECOND))
        began = time.monotonic()
        for number in range(round(seconds * COMMITS_A_SECOND)):
            time.sleep(max(0.0, began + number / COMMITS_A_SECOND - time.monotonic()))
            counts.newest.value = table.append(each, micro_batch)
            micro_batch += 1
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        orders.send(each.height * round(seconds * COMMITS_A_SECOND))


def receive(port: int, counts: Counts, ready: Connection) -> None:
    """Receive all rows, and count the numbers that are left out."""
    configure_logging("error")
    last: dict[str, int] = {}

    async def take(messages: Sequence[Message]) -> None:
        for message in messages:
            begin = message.payload.index(SEQUENCE) + len(SEQUENCE)
            number = int(message.payload[begin : message.payload.index(b",", begin)])
            known = last.get(message.topic, 0)
            counts.missing.value += max(0, number - known - 1)
            last[message.topic] = max(known, number)
        counts.taken.value += len(messages)

    async def connected() -> None:
        ready.send(None)

    link = MqttLink(
        BrokerAddress(port=port),
        client_id="subscriber",
        subscriptions=[Subscription(topics.results("+"))],
        on_connect=connected,
    )
    asyncio.run(link.run_in_bursts(take))


def publish_with_paho(port: int, count: int, report: Connection) -> None:
    """Publish as many rows as ordered, one a message; report rows a second and processor time a row."""
    stored = rows(count).with_columns((pl.int_range(count) // QUERIES + 1).alias("sequence"))
    batch = (
        stored.with_columns(closes=pl.lit(None, pl.Int64))
        .select(RESULT_SCHEMA.names)
        .to_arrow()
        .cast(RESULT_SCHEMA)
        .combine_chunks()
        .to_batches()[0]
    )
    messages: list[Message] = []
    frames = result_frames(batch)
    take_messages(bytes(frames.numbered(0, count, 0)), 0, messages, [])
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="paho")
    client.max_inflight_messages_set(MOST_IN_FLIGHT)
    client.connect("127.0.0.1", port)
    client.loop_start()
    while not client.is_connected():
        time.sleep(0.01)
    began, before = time.monotonic(), time.process_time()
    waiting = [client.publish(each.topic, each.payload, qos=1) for each in messages]
    for each in waiting:
        each.wait_for_publish()
    report.send((count / (time.monotonic() - began), (time.process_time() - before) * 1e6 / count))
    client.disconnect()
    client.loop_stop()
