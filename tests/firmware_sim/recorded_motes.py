"""Motes on a bad radio beside a scripted proxy, recorded while they run.

    python -m tests.firmware_sim.recorded_motes tests/firmware_sim/recorded/bad_radio.fjordlog

writes the log that tests replay: a broker that goes away, control that cannot be read, programs that change.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from firmware_sim import recorded_run
from firmware_sim.recorded_run import RunOptions, begin_recording, run_on
from firmware_sim.virtual_time.fleet import Gateway
from protocols.mqtt.link import BrokerAddress
from protocols.recording.timeline import TickingLoop
from protocols.wire import topics
from protocols.wire.frames import encode
from protocols.wire.programs import ListenSchedule, SamplingProgram
from tests.protocols.recording.scripted_link import ScriptedLink

MEBIBYTE = 1024 * 1024
FAULTS = """
garbled = 0.05
duplicated = 0.05
reordered = 0.1
reordered_by_us = 50_000
latency_us = 1_000
jitter_us = 4_000

[loss]
kind = "bernoulli"
share = 0.1
"""


def program(period_us):
    return SamplingProgram(("speed", "flow"), period_us, 1, ListenSchedule(100_000, 50_000))


class Proxy(ScriptedLink):
    """A link to a broker beside which a proxy lives."""

    def __init__(self, address, *, client_id, subscriptions, on_connect, on_disconnect, seals):
        assert seals is None
        super().__init__(on_connect, on_disconnect)
        self._gateways = {}

    def answer(self, message):
        if len(self.published) == 60:
            self.go_away()
        names = topics.parse(message.topic)
        if names.kind != "packet":
            return
        mote = names.names[1]
        gateway = self._gateways.setdefault(mote, Gateway({mote: program(20_000)}))
        if len(self.published) > 120:
            gateway = self._gateways[mote] = Gateway({mote: program(30_000)})
        control = gateway.receive(0, message.payload)
        if control is not None:
            content = encode(control)
            self.put(topics.control("roadside", mote), content[:-2] if len(self.published) % 7 == 0 else content, qos=0)


def record(folder, log, *, seconds=1.5, log_bytes=MEBIBYTE, **options):
    """Record motes for so long, in real time; return the fleet."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "radio.toml").write_text(FAULTS)
    given = RunOptions(motes=3, seconds=seconds, radio=str(folder / "radio.toml"), counted=True, **options)
    before, recorded_run.MqttLink = recorded_run.MqttLink, Proxy
    try:
        recorder = begin_recording(log, log_bytes, given)

        async def run():
            return await run_on(
                recorder, given, BrokerAddress(), lambda fleet: lambda: (fleet.progress, fleet.counters())
            )

        with asyncio.Runner(loop_factory=lambda: TickingLoop(recorder)) as runner:
            fleet = runner.run(run())
        recorder.close()
    finally:
        recorded_run.MqttLink = before
    return fleet


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        record(Path(name) / "files", Path(name) / "log", seconds=3.0)
        (segment,) = (Path(name) / "log").iterdir()
        shutil.copy(segment, sys.argv[1])
