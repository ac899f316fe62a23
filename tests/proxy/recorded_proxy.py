"""A proxy among scripted motes and a scripted cluster, recorded while it runs.

    python -m tests.proxy.recorded_proxy tests/proxy/recorded/faulty_seconds.fjordlog

writes the log that tests replay: packets that are lost or garbled, a broker that goes away, acknowledgements that do.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path

from protocols.recording.timeline import TickingLoop
from protocols.wire import topics
from protocols.wire.batches import Ack, decode_batch
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import RunProgram, decode_control
from protocols.wire.programs import program_number
from proxy.drivers.settings import read_drivers
from proxy.running.recorded_run import begin_recording, run_on
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores
from tests.protocols.recording.scripted_link import ScriptedLink
from tests.proxy.conftest import announcement, demand, packet

MEBIBYTE = 1024 * 1024
MOTES = ("m0", "m1", "m2")
DRIVERS = """
[[driver]]
kind = "json"
name = "rooms"
topic = "rooms/{mote}"
stream = "climate"
minimum_period = "1ms"
field = [{ name = "t", path = "t", type = "real" }]
"""


class ClusterAndMotes(ScriptedLink):
    """A link to a broker beside which motes and a cluster live."""

    def __init__(self, session):
        super().__init__(session.on_connect, session.on_disconnect)
        self.programs = {}
        self.unacknowledged = 0

    def answer(self, message):
        parsed = topics.parse(message.topic)
        if parsed.kind == "batches":
            batch = decode_batch(message.payload)
            if self.unacknowledged:
                self.unacknowledged -= 1
                return
            ack = Ack(VERSION, "p", batch.epoch, batch.stream, batch.sequence)
            asyncio.get_running_loop().call_later(0.003, self.put, topics.acks("p"), ack)
        elif parsed.kind == "control":
            for each in decode_control(message.payload).instructions:
                if isinstance(each, RunProgram):
                    self.programs[parsed.names[1]] = each.program


async def _drive(link, seconds, pause):
    link.put(topics.demand("traffic"), demand(("a", ["speed"], 100_000)), retain=True)
    link.put(topics.demand("climate"), demand(("b", ["t"], 1_000), stream="climate"), retain=True)
    for mote in MOTES:
        link.put(topics.announcement("p", mote), announcement(mote, minimum=50_000))
    numbers = Counter()
    for count in range(round(seconds / (2 * pause))):  # however busy the machine is
        mote = MOTES[count % len(MOTES)]
        now_us = time.time_ns() // 1_000
        program = link.programs.get(mote)
        number = program_number(program) if program is not None else 0
        samples = [(now_us, float(count % 7))] if program is not None else []
        sent = encode(packet(numbers[mote], *samples, mote=mote, clock=now_us, listen=100_000, program=number))
        numbers[mote] += 1
        if count % 17 != 16:  # else it is lost
            link.put(topics.packet("p", mote), sent[:-3] if count % 23 == 22 else sent)
        if count % 5 == 4:
            link.put("rooms/kitchen", b'{"t": %d}' % count)  # ignored without a driver
        if count % 40 == 39:
            link.unacknowledged = 2
        if count == 25:
            link.go_away()
        await asyncio.sleep(pause * (1 + count % 3))


def record(folder, log, *, seconds=1.0, pause=0.005, log_bytes=MEBIBYTE, drivers="", **settings):
    """Record a proxy for so long, in real time, with drivers of a TOML text; return the recorder."""
    if drivers:
        settings["drivers"] = f"{folder}.toml"
        Path(settings["drivers"]).write_text(drivers, "utf-8")
    settings = ProxySettings(name="p", data=str(folder), flush_interval=20_000, resend_after=200_000, **settings)
    links = []

    def make_link(session):
        links.append(ClusterAndMotes(session))
        return links[0]

    with open_stores(settings.folder, "p", quarantine_entries=10) as stores:
        recorder = begin_recording(Path(log), log_bytes, settings)

        async def drive():
            await asyncio.sleep(0.02)
            await _drive(links[0], seconds, pause)
            recorder.stop()

        async def run():
            driving = []
            await run_on(
                recorder,
                settings,
                stores,
                make_link,
                read_drivers(tomllib.loads(drivers), "drivers") if drivers else [],
                lambda _: driving.append(asyncio.create_task(drive(), context=recorder.outside.copy())),
            )

        with asyncio.Runner(loop_factory=lambda: TickingLoop(recorder)) as runner:
            runner.run(run())
        recorder.close()
    return recorder


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        record(Path(name) / "data", Path(name) / "log", seconds=4.0, pause=0.02)
        (segment,) = (Path(name) / "log").iterdir()
        shutil.copy(segment, sys.argv[1])
