"""Motes, proxy and cluster with keys, started as a user starts them, at a broker where an intruder publishes."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx
import pytest

from cluster.demo.parts import Children, Parts, free_port
from cluster.service.client.api_client import ApiClient
from protocols.mqtt.link import Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Ack
from protocols.wire.catalog import Presence, Status
from protocols.wire.demands import StreamDemand
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Control, Packet, RunProgram
from protocols.wire.programs import SLEEP
from tests.system.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.system, pytest.mark.spark]

PROXY = "roadside"


class Intruder:
    """Reads all frames, and publishes what it has forged and what it has seen, until it is stopped.

    Parameters
    ----------
    parts
        Where the broker is.
    """

    def __init__(self, parts: Parts) -> None:
        self.seen: dict[str, list[bytes]] = {}
        self.rounds = 0
        self._link = MqttLink(parts.broker, client_id="intruder", subscriptions=[Subscription("fjord/v1/#")])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    async def _run(self) -> None:
        receiving = asyncio.create_task(self._link.run(self._receive))
        await self._link.connected.wait()
        while not self._stopping.is_set():
            for message in self._messages():
                await self._link.publish(message)
            self.rounds += 1
            await asyncio.sleep(0.3)
        receiving.cancel()

    async def _receive(self, message: Message) -> None:
        kept = self.seen.setdefault(message.topic, [])
        if len(kept) < 3:
            kept.append(message.payload)

    def _messages(self) -> list[Message]:
        forged = [
            Message(
                topics.demand("traffic"), encode(StreamDemand(VERSION, "cluster", "traffic", 9_999, ())), retain=True
            ),
            Message(topics.proxy_status(PROXY), encode(Status(VERSION, PROXY, Presence.OFFLINE, "e", 0)), retain=True),
            Message(topics.cluster_status("cluster"), encode(Status(VERSION, "cluster", Presence.ONLINE, "e", 0))),
            Message(topics.stream_offer(PROXY, "traffic"), b"", retain=True),
        ]
        motes = {topics.parse(topic).names[1] for topic in self.seen if topic.endswith("/packet")}
        for mote in motes:
            forged += [
                Message(topics.packet(PROXY, mote), encode(Packet(VERSION, mote, 2**62, 0, 0, 0, 0, 0, ())), qos=0),
                Message(topics.control(PROXY, mote), encode(Control(VERSION, mote, (RunProgram(SLEEP, 0),))), qos=0),
                Message(topics.mote_entry(PROXY, mote), b"", retain=True),
            ]
        forged += [Message(topics.acks(PROXY), encode(Ack(VERSION, PROXY, "e", "traffic", 2**40)))]
        sealed = [
            Message(each.topic, b"\xc1" + bytes(8) + each.payload + bytes(64), each.qos, each.retain) for each in forged
        ]
        kinds = ("/packet", "/control", "/announcement", "/batches", "/acks", "/status", "demands/traffic")
        replayed = [
            Message(topic, payload, 0 if "/motes/" in topic else 1)
            for topic, payloads in self.seen.items()
            if topic.endswith(kinds)
            for payload in payloads
        ]
        return [*forged, *sealed, *replayed]


def metrics(address: str) -> dict[str, float]:
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def refused(address: str, family: str) -> dict[str, float]:
    start = f'{family}{{reason="'
    return {name[len(start) : -2]: value for name, value in metrics(address).items() if name.startswith(start)}


def test_an_intruder_changes_nothing_where_all_parts_have_keys(tmp_path: Path) -> None:
    soon: Callable[..., object] = wait_for
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        keys = tmp_path / "keys"
        command = [sys.executable, "-m", "protocols.command_line", "security", "keys", str(keys), "--proxy", PROXY]
        subprocess.run(command, check=True, capture_output=True)
        parts.start_broker()
        parts.start_cluster("--keys", str(keys / "cluster.keys"))
        port = free_port()
        proxy = parts.start_proxy(PROXY, "--keys", str(keys / f"proxy-{PROXY}.keys"), "--metrics-port", str(port))
        parts.start_motes(PROXY, "--motes", "4", "--keys", str(keys / f"motes-{PROXY}.keys"))
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api, Intruder(parts) as intruder:
            api.add("SELECT sensor, speed FROM traffic", "all")
            soon(lambda: len(api.results("all", limit=1000)) > 20, seconds=120)
            soon(lambda: intruder.rounds > 30, seconds=120)
            before = len(api.results("all", limit=1000))
            soon(lambda: len(api.results("all", limit=1000)) > before + 20, seconds=120)
            of_proxy = refused(f"http://127.0.0.1:{port}", "fjord_proxy_frames_refused_total")
            of_cluster = refused(parts.api_address, "fjord_ingest_refused_total")
            for found in (of_proxy, of_cluster):
                assert all(found.get(reason, 0) > 0 for reason in ("unsealed", "forged", "replayed")), found
            sensors = api.sensors()["rows"]
            assert len(sensors) == 4
            rows = api.results("all", limit=10_000)
            assert len({(row["start"], row["row"]["sensor"]) for row in rows}) == len(rows), "a replay counted again"
    with sqlite3.connect(tmp_path / f"proxy-{PROXY}" / "spool.sqlite") as spool:
        (obeyed,) = spool.execute("SELECT identity FROM cluster").fetchone()
    assert obeyed.startswith("cluster/")
