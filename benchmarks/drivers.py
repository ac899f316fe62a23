"""JSON messages of devices through a driver against packets of motes, through the same proxy; bad messages, and memory.

A whole proxy, with its stores on disk, but a link that this process calls: there is no broker. In turn, as many
messages of devices that publish JSON (fields by path, stamped by the device) and packets of motes (a sample each) are
received, in bursts as they come from a link; both streams have the same columns and the same queries, and their batches
are acknowledged at once. What is encoded beforehand is not measured. Figures are by processor time, with all threads;
`..._by_clock` is by the clock.

Then come messages of which nothing can be read: memory must not grow with them (`bad_growth_bytes`).

    python benchmarks/drivers.py [--quick] [--json] [--rounds 7] [--messages 40000] [--bad 100000]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from reports import write_report

from protocols.event_log import configure_logging
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.batches import Ack, decode_batch
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Announcement, Packet, Sample
from protocols.wire.programs import SECOND_US, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.drivers.settings import read_drivers
from proxy.running.link_interface import ClientSession, Clocks
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores

PROXY = "benchmark"
DEVICES = 100
"""Devices, and as many motes."""
BURST = 100
PERIOD_US = 1_000
BEGAN_US = 1_700_000_000 * SECOND_US
QUERY_PERIODS_US = (None, None, SECOND_US, 5 * SECOND_US)
TAKEN_SECONDS = 20.0
WARM_BAD = 20_000
"""Bad messages before memory is measured: by then the quarantine in memory is full."""
FIELDS = (
    Field("temperature", FieldType.REAL, "degC"),
    Field("humidity", FieldType.REAL, "%"),
    Field("pulses", FieldType.INTEGER),
)
DRIVER = {
    "kind": "json",
    "name": "stations",
    "topic": "stations/{mote}/state",
    "stream": "stations",
    "device_kind": "station",
    "default_period": "1ms",
    "minimum_period": "1ms",
    "field": [
        {"name": "temperature", "path": "air.temperature", "type": "real", "unit": "degC"},
        {"name": "humidity", "path": "air.humidity", "type": "real", "unit": "%"},
        {"name": "pulses", "path": "pulses", "type": "integer"},
    ],
    "time": {"path": "time", "form": "milliseconds", "max_delay": "1s"},
}
NATIVE = "probes"


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer rounds and messages: within a minute")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--messages", type=int, default=40_000, help="in each round, of each kind")
    arguments.add_argument("--bad", type=int, default=100_000, help="messages that are rejected")
    options = arguments.parse_args()
    if options.quick:
        options.rounds, options.messages = 5, 10_000
    configure_logging("critical")
    with tempfile.TemporaryDirectory(prefix="fjord-drivers-") as folder:
        measured, report = asyncio.run(measure(Path(folder), options.rounds, options.messages, options.bad))
    write_report(report, "drivers", lambda path: plot(measured, path), as_json=options.json)


class Link:
    """A link to no broker: this process gives it messages, and it acknowledges batches as a cluster does."""

    def __init__(self, session: ClientSession) -> None:
        self.connected = asyncio.Event()
        self.hangs_total = 0
        self.rows: dict[str, int] = {}
        """Rows of batches, by stream."""
        self.take: Callable[[Sequence[Message]], Awaitable[None]]
        self._session = session
        self._through: dict[str, int] = {}

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Connect."""
        self.take = take
        self.connected.set()
        if self._session.on_connect is not None:
            await self._session.on_connect()
        await asyncio.Event().wait()

    async def publish(self, message: Message) -> None:
        """Take a message of the proxy; acknowledge a batch."""
        if message.topic == topics.batches(PROXY):
            batch = decode_batch(message.payload)
            if batch.sequence == self._through.get(batch.stream, 0) + 1:
                self._through[batch.stream] = batch.sequence
                self.rows[batch.stream] = self.rows.get(batch.stream, 0) + batch.rows
            ack = Ack(VERSION, PROXY, batch.epoch, batch.stream, self._through.get(batch.stream, 0))
            asyncio.get_running_loop().call_soon(self._answer, Message(topics.acks(PROXY), encode(ack)))

    def _answer(self, message: Message) -> None:
        self._answering = asyncio.ensure_future(self.take([message]))


@dataclass
class Kind:
    """Messages of one kind, and the seconds for each in each round."""

    name: str
    stream: str
    made: Callable[[int], Message]
    """The message with this number."""
    sent: int = 0
    processor_s: list[float] = field(default_factory=list)
    clock_s: list[float] = field(default_factory=list)

    def per_s(self, seconds: list[float]) -> int:
        """Return messages per second."""
        return round(1 / statistics.median(seconds))


class Time:
    """The time of the proxy and its devices: each has sent a message once a millisecond."""

    now_us = BEGAN_US

    def at(self, number: int) -> int:
        """Return when a message is made, in microseconds since 1970."""
        return BEGAN_US + (1 + number // DEVICES) * PERIOD_US


@contextlib.asynccontextmanager
async def running(folder: Path, clock: Time) -> AsyncIterator[ProxyService]:
    """Run a proxy."""
    settings = ProxySettings(
        name=PROXY, data=str(folder), max_clock_ahead=0, max_clock_behind=0, silence_after=3_600 * SECOND_US
    )
    clocks = Clocks(lambda: clock.now_us - BEGAN_US, lambda: clock.now_us)
    with open_stores(folder, PROXY, quarantine_entries=settings.quarantine_entries) as stores:
        drivers = read_drivers({"driver": [DRIVER]}, "benchmark")
        service = ProxyService(settings, stores, Link, clocks=clocks, drivers=drivers)  # type: ignore[arg-type]
        stop = asyncio.Event()
        task = asyncio.create_task(service.run(stop))
        await service.link.connected.wait()
        yield service
        stop.set()
        await task


async def measure(folder: Path, rounds: int, messages: int, bad: int) -> tuple[list[Kind], dict[str, Any]]:
    """Let both kinds take turns, then send bad messages; return what was measured, and the report."""
    clock = Time()
    async with running(folder, clock) as service:
        link: Link = service.link  # type: ignore[assignment]
        kinds = [Kind("json", DRIVER["stream"], json_message), Kind("native", NATIVE, announced)]  # type: ignore[arg-type]
        await introduce(service, link, kinds[0])
        number = program_number(service.fleet.motes["native-0"].desired)
        kinds[1].made = lambda place: native_packet(place, number)
        for turn in range(rounds + 1):
            for each in kinds if turn % 2 else reversed(kinds):
                await measure_round(link, clock, each, messages if turn else messages // 4, counts=turn > 0)
        for each in kinds:
            await until(lambda kind=each: link.rows.get(kind.stream, 0) >= kind.sent, fail=False)
        report = describe(kinds, link, rounds, messages)
        report |= await send_bad(service, link, bad)
    return kinds, report


async def introduce(service: ProxyService, link: Link, devices: Kind) -> None:
    """Let the proxy know demands, motes and devices, and wait until devices run their programs, where they have any."""
    for stream in (devices.stream, NATIVE):
        queries = tuple(
            QueryDemand(f"q{place}", ("humidity", "pulses", "temperature"), period_us)
            for place, period_us in enumerate(QUERY_PERIODS_US)
        )
        demand = StreamDemand(VERSION, "benchmark", stream, 1, queries)
        await link.take([Message(topics.demand(stream), encode(demand), retain=True)])
    await link.take([announced(place) for place in range(DEVICES)])
    await link.take([devices.made(place) for place in range(DEVICES)])
    await service.merging.settled()
    devices.sent = DEVICES
    link.rows[devices.stream] = 0
    await asyncio.sleep(0.5)
    devices_rows = link.rows[devices.stream]
    # Where a device is first met, its message becomes a row or not; from now on, each does.
    link.rows[devices.stream] = max(devices_rows, DEVICES)


async def measure_round(link: Link, clock: Time, kind: Kind, messages: int, *, counts: bool) -> None:
    """Send messages of one kind, and note the time that they take until their rows are acknowledged."""
    made = [kind.made(place) for place in range(kind.sent, kind.sent + messages)]
    gc.collect()
    processor, began = time.process_time(), time.perf_counter()
    for at in range(0, messages, BURST):
        clock.now_us = max(clock.now_us, clock.at(kind.sent + at))
        await link.take(made[at : at + BURST])
        await asyncio.sleep(0)
    kind.sent += messages
    await until(lambda: link.rows.get(kind.stream, 0) >= kind.sent, fail=False)
    if counts:
        kind.processor_s.append((time.process_time() - processor) / messages)
        kind.clock_s.append((time.perf_counter() - began) / messages)


def json_message(place: int) -> Message:
    """Return a message of a device."""
    at_us = Time().at(place)
    content = {
        "time": at_us // 1_000,
        "air": {"temperature": 20.5 + place % 50 / 10, "humidity": 40 + place % 97 / 10, "unit": "C"},
        "pulses": place,
        "battery": {"percent": 97, "low": False},
        "model": "ST-2",
    }
    return Message(f"stations/s{place % DEVICES}/state", json.dumps(content).encode())


def announced(place: int) -> Message:
    """Return the announcement of a mote."""
    schema = StreamSchema(NATIVE, FIELDS)
    name = f"native-{place}"
    frame = Announcement(VERSION, name, 1, "probe", schema, {}, PERIOD_US, PERIOD_US)
    return Message(topics.announcement(PROXY, name), encode(frame))


def native_packet(place: int, program: int) -> Message:
    """Return a packet of a mote with one sample."""
    sequence, mote = divmod(place, DEVICES)
    at_us = Time().at(place)
    sample = Sample(0, (20.5 + place % 50 / 10, 40 + place % 97 / 10, place))
    frame = Packet(VERSION, f"native-{mote}", 1, sequence, at_us, at_us, 0, program, (sample,))
    return Message(topics.packet(PROXY, f"native-{mote}"), encode(frame))


async def send_bad(service: ProxyService, link: Link, bad: int) -> dict[str, Any]:
    """Send messages that no driver accepts; return how fast they are rejected, and by how much memory grows."""
    stream = bad_messages()
    process = psutil.Process()
    await send_all(link, itertools.islice(stream, WARM_BAD))
    gc.collect()
    before, rejected = process.memory_info().rss, service.metrics.value("frames_refused")
    devices = sum(service.fleet.states().values())
    began = time.process_time()
    await send_all(link, itertools.islice(stream, bad))
    seconds = time.process_time() - began
    gc.collect()
    return {
        "bad_messages": bad,
        "bad_rejected": service.metrics.value("frames_refused") - rejected,
        "bad_growth_bytes": process.memory_info().rss - before,
        "bad_new_devices": sum(service.fleet.states().values()) - devices,
        "bad_messages_per_s": round(bad / seconds),
    }


async def send_all(link: Link, messages: Iterator[Message]) -> None:
    """Send messages, in bursts, with time for flushes."""
    while burst := list(itertools.islice(messages, BURST)):
        await link.take(burst)
        await asyncio.sleep(0)
    await asyncio.sleep(0.3)


def bad_messages() -> Iterator[Message]:
    """Yield messages without any value that can be read, of known devices and of ever new ones."""
    deep = b'{"air":' * 200 + b"1" + b"}" * 200
    payloads = [
        b"",
        b"\xff\xfe",
        b"{",
        b"[1, 2]",
        b"nan",
        deep,
        b'{"time": 1}',
        b'{"time": "soon", "air": {"temperature": 1, "humidity": 2}, "pulses": 3}',
        b'{"time": 1700000000000, "air": {"temperature": "warm", "humidity": []}, "pulses": "many"}',
        b'{"time": 1700000000000, "air": {"temperature": 1e400, "humidity": -1e999}, "pulses": 1e400}',
        b'{"time": 1700000000000, "air": [], "pulses": {}}',
        b'{"time": 1700000000000, "pulses": "' + b"9" * 5_000 + b'"}',
        b'"' + b"x" * 20_000 + b'"',
    ]
    for number in itertools.count():
        device = f"s{number % DEVICES}" if number % 2 else f"new-{number}"
        yield Message(f"stations/{device}/state", payloads[number % len(payloads)])


async def until(reached: Callable[[], bool], *, fail: bool = True) -> None:
    """Wait for a condition; after too long, fail or only go on."""
    deadline = time.monotonic() + TAKEN_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            if fail:
                raise TimeoutError("the proxy did not get ready")
            return
        await asyncio.sleep(0.002)


def describe(kinds: list[Kind], link: Link, rounds: int, messages: int) -> dict[str, Any]:
    """Return the report."""
    devices, native = kinds
    pairs = zip(native.processor_s, devices.processor_s, strict=True)
    ratios = sorted(of_native / of_json for of_native, of_json in pairs)
    return {
        "json_over_native": round(statistics.median(native.processor_s) / statistics.median(devices.processor_s), 3),
        "json_over_native_least": round(ratios[0], 3),
        "json_over_native_most": round(ratios[-1], 3),
        "json_over_native_by_clock": round(statistics.median(native.clock_s) / statistics.median(devices.clock_s), 3),
        **{f"{each.name}_per_s": each.per_s(each.processor_s) for each in kinds},
        **{f"{each.name}_us_for_each": round(statistics.median(each.processor_s) * 1e6, 1) for each in kinds},
        **{f"{each.name}_lost": each.sent - link.rows.get(each.stream, 0) for each in kinds},
        "devices": DEVICES,
        "messages": messages,
        "rounds": rounds,
    }


def plot(kinds: list[Kind], path: Path) -> None:
    """Draw messages per second by round."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4))
    for each in kinds:
        axes.plot(range(1, len(each.processor_s) + 1), [1 / s for s in each.processor_s], marker="o", label=each.name)
    axes.set(xlabel="round", ylabel="messages per second of processor time", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
