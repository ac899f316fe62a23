"""A cluster without Spark beside scripted proxies and users, recorded while it runs.

    python -m tests.cluster.service.recorded_cluster tests/cluster/service/recorded/faulty_proxies.fjordlog

writes the log that tests replay: batches that come twice, too early or garbled, a broker that goes away, queries.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from cluster.service import server as server_module
from cluster.service.data_folder.folder import open_folder
from cluster.service.recorded_run import begin_recording, run_on
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from protocols.recording.timeline import TickingLoop
from protocols.wire import topics
from protocols.wire.batches import Batch, Resumption, encode_batch, make_columns
from protocols.wire.catalog import Presence, ProxyClock, Status, StreamOffer
from protocols.wire.frames import VERSION
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.protocols.recording.scripted_link import ScriptedLink

MEBIBYTE = 1024 * 1024
TOKEN = "a-secret-token"
SCHEMA = StreamSchema("traffic", (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.REAL, "mph")))
NOON_US = 1_330_603_200_000_000


def batch(sequence, rows=3):
    first_us = NOON_US + sequence * 1_000_000
    columns = make_columns(
        SCHEMA, [first_us + n for n in range(rows)], ["m"] * rows, [True] * rows,
        {"sensor": ["a"] * rows, "speed": [float(sequence)] * rows},
    )  # fmt: skip
    return encode_batch(Batch(VERSION, "p", "e", "traffic", sequence, first_us, True, rows, columns))


class Proxy(ScriptedLink):
    """A link to a broker beside which a proxy lives."""

    def __init__(self, address, *, on_connect, on_disconnect, **options):
        super().__init__(on_connect, on_disconnect)
        LINKS.append(self)


LINKS: list[Proxy] = []


class Server(ClusterServer):
    """A cluster without engine, publishers and sockets."""

    @asynccontextmanager
    async def _surrounded(self, tasks, ready):
        yield


async def _drive(server, seconds):
    link = LINKS[-1]
    link.put(topics.proxy_status("p"), Status(VERSION, "p", Presence.ONLINE, "e", NOON_US), retain=True)
    link.put(topics.stream_offer("p", "traffic"), StreamOffer(VERSION, "p", SCHEMA), retain=True)
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(server.guarded_api()), base_url="http://127.0.0.1",
        headers={"authorization": f"Bearer {TOKEN}"},
    )  # fmt: skip
    statuses = []
    async with client:
        for sequence in range(1, round(seconds * 150)):  # however busy the machine is
            link.put(topics.batches("p"), batch(sequence)[: -3 if sequence % 31 == 30 else None])
            if sequence % 7 == 0:
                link.put(topics.batches("p"), batch(sequence))  # twice
            if sequence % 11 == 0:
                link.put(topics.batches("p"), batch(sequence + 5))  # too early
            if sequence % 31 == 30:
                link.put(topics.resumptions("p"), Resumption(VERSION, "p", "e", "traffic", sequence + 1))
            if sequence % 20 == 0:
                link.put(topics.proxy_clock("p"), ProxyClock(VERSION, "p", NOON_US + sequence))
            if sequence == 25:
                link.go_away()
            if sequence % 15 == 5:
                sql = f"SELECT speed FROM traffic WHERE speed < {sequence}"
                statuses.append(await client.post("/v1/queries", json={"sql": sql, "name": f"q{sequence}"}))
                statuses.append(await client.get("/v1/queries"))
            if sequence % 30 == 15:
                statuses.append(await client.delete(f"/v1/queries/q{sequence - 10}"))
                statuses.append(await client.post("/v1/queries", json={"sql": "SELECT nothing FROM nowhere"}))
            await asyncio.sleep(0.002 * (1 + sequence % 3))
        statuses.append(await client.delete("/v1/queries/q5", headers={"authorization": "Bearer wrong"}))
    return [each.status_code for each in statuses]


def record(folder, log, *, seconds=1.5, log_bytes=8 * MEBIBYTE, **changes):
    """Record a cluster for so long, in real time; return the statuses of requests."""
    settings = ClusterSettings(folder=folder, api_token=TOKEN, commit_interval_seconds=0.02, **changes)
    before, server_module.MqttLink = server_module.MqttLink, Proxy
    open_folder(folder).close()
    found = []
    try:
        recorder = begin_recording(log, log_bytes, settings)

        async def drive(server):
            await asyncio.sleep(0.05)
            try:
                found.extend(await _drive(server, seconds))
            finally:
                recorder.stop()

        async def run():
            server = Server(settings, timeline=recorder)
            driving = asyncio.create_task(drive(server), context=recorder.outside.copy())
            await run_on(recorder, server)
            await driving

        with asyncio.Runner(loop_factory=lambda: TickingLoop(recorder)) as runner:
            runner.run(run())
        recorder.close()
        # A commit may still be made by a thread, which a process would wait for before it ends: the next run begins
        # with the folder as it is then.
        recorder._pool.shutdown(wait=True)
    finally:
        server_module.MqttLink = before
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        record(Path(name) / "data", Path(name) / "log", seconds=1.0)
        (segment,) = (Path(name) / "log").iterdir()
        shutil.copy(segment, sys.argv[1])
