"""A device that publishes numbers, its driver, and a proxy with that driver, to be killed.

    python -m tests.proxy.numbered_device HOST PORT FOLDER

Each number becomes a tuple, stamped with so many times ten seconds after 1970; "half" waits in the driver for the next
number. Numbers of packets do not follow from those of messages, and nothing is ever late: a message that is handled
twice leads to two tuples.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

from protocols.mqtt.link import BrokerAddress
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement, Packet, Sample
from protocols.wire.programs import SamplingProgram, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.drivers.driver import NOTHING, Capabilities, DriverOutput, Rejection
from proxy.running.link_interface import mqtt_link
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores

S = 1_000_000
STREAM = StreamSchema("numbers", (Field("n", FieldType.INTEGER),))
PROGRAM = program_number(SamplingProgram(("n",), 10 * S))
TOPIC = "counter/a"
DEMAND = StreamDemand(VERSION, "c", "numbers", 1, (QueryDemand("q", ("n",), 10 * S),))


class NumberDriver:
    """The driver of one device."""

    name = "numbers"
    subscriptions = ("counter/+",)

    def __init__(self):
        self._next = time.time_ns() // 1_000
        self._announced = self.waits = self.another = False

    def capabilities_of(self, mote):
        return Capabilities()

    def owns(self, mote):
        return True

    def received(self, topic, payload, *, radio_us, received_us, retained=False):
        if payload == b"half":
            self.waits = True
            return DriverOutput(waits=("a", 1))
        self.waits = False
        if not payload.isdigit():
            return DriverOutput(rejections=(Rejection("payload", "no number"),))
        instant = int(payload) * 10 * S
        frames = () if self._announced else (Announcement(VERSION, "a", 0, "counter", STREAM, {}, 10 * S, 10 * S),)
        self._announced = True
        self._next += 1
        sample = Sample(0, (int(payload),))
        return DriverOutput((*frames, Packet(VERSION, "a", 0, self._next, instant, 0, 0, PROGRAM, (sample,))))

    def restore(self, devices, *, radio_us, received_us):
        return NOTHING

    def device_of(self, mote):
        return mote

    def state_of(self, mote):
        return b""

    def counts_of(self, mote):
        return {}

    def trouble_of(self, mote):
        return ""

    def waiting(self, mote):
        return 1 if self.waits or self.another else None

    def finish(self, **_times):
        return NOTHING

    def hold_promises(self, *, held):
        self.held = held

    def run(self, mote, program, *, radio_us, received_us, not_before_us=None):
        return NOTHING

    def announce(self, mote, *, radio_us, received_us):
        return NOTHING

    def listen(self, mote, *, radio_us, received_us):
        return NOTHING

    def time_passed(self, *, radio_us, received_us):
        return NOTHING


def settings_of(folder, **more):
    fixed = {"flush_interval": 10_000, "max_clock_behind": 0, "reorder_within": 0, "entry_interval": 1}
    return ProxySettings(name="p", data=str(folder), **fixed, **more)


async def _run(host, port, folder):
    settings = settings_of(folder)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with open_stores(settings.folder, "p", quarantine_entries=10) as stores:
        link = mqtt_link(BrokerAddress(host, int(port)))
        await ProxyService(settings, stores, link, drivers=[NumberDriver()]).run(stop)


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:]))
