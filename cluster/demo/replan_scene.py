"""The scene in which rates change: the query goes on with another plan, and no answer is lost or answered twice.

**The road of the scene: three streams, how many readings they bring, and what the query must answer.**

    brakings   1/s ----------> 300/s      hard brakings: few, then many
    speeds     300/s -------> 300/s
    rain       300/s ---------> 1/s       wet sensors report often while it rains

An answer holds while a reading of each stream is in its window, all of the same segment.

seconds        0            40           about 70     about 85 streams        it rains     rush hour query          plan
1                    both plans   the cheaper plan
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

from rich.console import Console

from cluster.demo.parts import Parts, stage
from cluster.service.client.api_client import ApiClient
from protocols.child_process import child_environment, python_module
from protocols.errors import FjordError, FrameError
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Batch, decode_ack, encode_batch, make_columns
from protocols.wire.catalog import Presence, Status, StreamOffer
from protocols.wire.frames import VERSION, encode
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND_US = 1_000_000
WINDOW_US = 5 * SECOND_US
SEGMENTS = 200
VALUES = {"brakings": "force", "speeds": "mph", "rain": "mm"}
"""By stream: what it measures."""
RAIN = {"brakings": 1, "speeds": 300, "rain": 300}
"""Readings a second while it rains."""
RUSH_HOUR = {"brakings": 300, "speeds": 300, "rain": 1}
"""Readings a second once it has stopped, and everyone drives home."""
SCHEMAS = {
    stream: StreamSchema(stream, (Field("segment", FieldType.INTEGER), Field(value, FieldType.INTEGER)))
    for stream, value in VALUES.items()
}
QUERY = (
    "SELECT brakings.segment, force, mph, mm FROM brakings WINDOW(RANGE 5 SECONDS), speeds WINDOW(RANGE 5 SECONDS), "
    "rain WINDOW(RANGE 5 SECONDS) WHERE brakings.segment = speeds.segment AND speeds.segment = rain.segment"
)

Reading = tuple[int, int, int]
"""Its stamp, in microseconds since 1970, the segment, and what was measured."""
Answer = tuple[int, int, int, int, int, int]
"""Start and end, the segment, and what was measured of each stream."""


def readings(dice: random.Random, rate: int, begin_us: int, end_us: int) -> list[Reading]:
    """Return readings of a stream from an instant to another, as many in each second, evenly spread."""
    first, last = (-(-at_us * rate // SECOND_US) for at_us in (begin_us, end_us))
    return [(place * SECOND_US // rate, dice.randrange(SEGMENTS), dice.randrange(100)) for place in range(first, last)]


def answers(sent: Mapping[str, Iterable[Reading]]) -> Counter[Answer]:
    """Return what the query answers, by brute force: each combination of readings that hold together.

    Parameters
    ----------
    sent
        By stream: all its readings, in the order of time.
    """
    by_segment: defaultdict[int, dict[str, list[Reading]]] = defaultdict(lambda: {stream: [] for stream in VALUES})
    for stream, found in sent.items():
        for reading in found:
            by_segment[reading[1]][stream].append(reading)
    return Counter(answer for streams in by_segment.values() for answer in _of_segment(streams))


def _of_segment(streams: Mapping[str, list[Reading]]) -> Iterable[Answer]:
    # From the stream with the fewest, so that most of the others are never looked at.
    few = min(VALUES, key=lambda stream: len(streams[stream]))
    for reading in streams[few]:
        near = [[reading] if stream == few else _near(streams[stream], reading[0]) for stream in VALUES]
        for held in product(*near):
            start_us, end_us = max(each[0] for each in held), min(each[0] for each in held) + WINDOW_US
            if start_us < end_us:
                yield (start_us, end_us, reading[1], held[0][2], held[1][2], held[2][2])


def _near(found: list[Reading], at_us: int) -> list[Reading]:
    """Return the readings whose windows meet that of a reading at an instant."""
    return found[bisect_left(found, (at_us - WINDOW_US + 1,)) : bisect_left(found, (at_us + WINDOW_US,))]


PROXY = "road"
TICK_US = SECOND_US // 4
"""A batch of each stream has the readings of so long."""
AFTER_US = 86_400 * SECOND_US
"""By which watermarks move on after the last reading, so that windows close."""


class Feed:
    """The road's proxy.

    Parameters
    ----------
    broker
        Takes the batches.
    """

    def __init__(self, broker: BrokerAddress) -> None:
        self.rates: Mapping[str, int] = RAIN
        """Readings a second; another stream may take these from the next batch on."""
        self.sent: dict[str, list[Reading]] = {stream: [] for stream in VALUES}
        self._epoch = uuid4().hex
        self._sequences = dict.fromkeys(VALUES, 0)
        self._stored = dict.fromkeys(VALUES, 0)
        self._dice = random.Random(1)  # noqa: S311 - no secret
        online = Status(VERSION, PROXY, Presence.ONLINE, self._epoch, _now_us())
        self._link = MqttLink(
            broker,
            client_id="fjord-demo-road",
            subscriptions=[Subscription(topics.acks(PROXY))],
            births=[
                Message(topics.proxy_status(PROXY), encode(online), retain=True),
                *(
                    Message(
                        topics.stream_offer(PROXY, stream), encode(StreamOffer(VERSION, PROXY, schema)), retain=True
                    )
                    for stream, schema in SCHEMAS.items()
                ),
            ],
        )

    @property
    def is_stored(self) -> bool:
        """Whether the cluster has acknowledged every batch."""
        return self._stored == self._sequences

    async def connect(self) -> None:
        """Keep the connection and offer the streams, until cancelled."""
        await self._link.run(self._receive)

    async def send(self, stop: asyncio.Event) -> None:
        """Send readings of the present until `stop`, then let the windows close."""
        await self._link.connected.wait()
        begin_us = _now_us() // TICK_US * TICK_US
        while not stop.is_set():
            end_us = begin_us + TICK_US
            await asyncio.sleep(max(0.0, (end_us - _now_us()) / 1e6))
            for stream, rate in self.rates.items():
                found = readings(self._dice, rate, begin_us, end_us)
                self.sent[stream] += found
                await self._publish(stream, found, end_us, sampling=True)
            begin_us = end_us
        for stream in VALUES:
            await self._publish(stream, [], begin_us + AFTER_US, sampling=False)

    async def _publish(self, stream: str, found: list[Reading], watermark_us: int, *, sampling: bool) -> None:
        self._sequences[stream] += 1
        sequence, rows = self._sequences[stream], len(found)
        stamps, segments, measured = zip(*found, strict=True) if found else ((), (), ())
        columns = make_columns(
            SCHEMAS[stream], stamps, [f"{stream}-{each}" for each in segments], [True] * rows,
            {"segment": segments, VALUES[stream]: measured},
        )  # fmt: skip
        batch = Batch(VERSION, PROXY, self._epoch, stream, sequence, watermark_us, sampling, rows, columns)
        await self._link.publish(Message(topics.batches(PROXY), encode_batch(batch)))

    async def _receive(self, message: Message) -> None:
        try:
            ack = decode_ack(message.payload)
        except FrameError:
            return
        if ack.epoch == self._epoch and ack.stream in self._stored:
            self._stored[ack.stream] = max(self._stored[ack.stream], ack.through)


def _now_us() -> int:
    return time.time_ns() // 1_000


NAME = "joined"
RAIN_SECONDS = 40.0
"""Shares of pairs count as measured once a query has run for half a minute and a window."""
DECIDED_SECONDS = 90.0
MIGRATED_SECONDS = 90.0
AFTER_SECONDS = 8.0
ANSWERED_SECONDS = 60.0
POLL_SECONDS = 0.5
PAGE = 10_000


class SceneError(FjordError):
    """The scene did not go as it should."""


def run_replan_scene(keep: Path | None) -> None:
    """Run the scene to its end.

    Parameters
    ----------
    keep
        The folder of all data and logs; None for one that is removed.

    Raises
    ------
    ChildError
        If a part fails.
    SceneError
        If no other plan is taken, or the answers are not those of the readings.
    """
    console = Console()
    with ExitStack() as stack:
        parts = stack.enter_context(stage(keep, console))
        console.print("starting the broker and the cluster: Spark takes some seconds", highlight=False)
        parts.start_broker()
        parts.start_cluster()
        client = stack.enter_context(ApiClient(parts.api_address))
        asyncio.run(_Scene(parts, client, console).run())
    console.print("all parts have been stopped")


class _Scene:
    """One run of the scene."""

    def __init__(self, parts: Parts, client: ApiClient, console: Console) -> None:
        self._parts = parts
        self._client = client
        self._console = console
        self._feed = Feed(parts.broker)
        self._began = time.monotonic()

    async def run(self) -> None:
        """Run it to its end."""
        stop = asyncio.Event()
        connection = asyncio.create_task(self._feed.connect(), name="connection")
        sending = None
        try:
            await self._until("the cluster has all streams", self._has_streams, 30.0)
            await asyncio.to_thread(self._client.add, QUERY, NAME)
            sending = asyncio.create_task(self._feed.send(stop), name="readings")
            self._began = time.monotonic()
            self._print(f"[bold]{NAME}[/]: {QUERY}")
            await self._play()
            stop.set()
            await sending
            await self._compare()
        finally:
            connection.cancel()
            if sending is not None:
                sending.cancel()

    async def _play(self) -> None:
        self._print(f"it rains: {self._rates()} readings/s")
        await self._pause(RAIN_SECONDS)
        await self._show("alternatives", NAME)
        self._feed.rates = RUSH_HOUR
        self._print(f"it has stopped raining, and it is rush hour: {self._rates()} readings/s")
        await self._until("the cluster chooses another plan", self._is_migrating, DECIDED_SECONDS)
        await self._show("alternatives", NAME)
        await self._show("migrations")
        await self._until("the plan before has ended", self._has_migrated, MIGRATED_SECONDS)
        self._print("the plan before has been removed")
        await self._show("history")
        await self._pause(AFTER_SECONDS)

    async def _compare(self) -> None:
        """Compare what was answered with what follows from the readings that were sent."""
        await self._until("every reading is stored", lambda: self._feed.is_stored, ANSWERED_SECONDS)
        wanted = await asyncio.to_thread(answers, self._feed.sent)
        sent = sum(len(each) for each in self._feed.sent.values())
        due = wanted.total()
        self._print(f"{sent:,} readings were sent; by brute force they have {due:,} answers")
        late = False
        try:
            await self._until("all are answered", lambda: self._answered() >= due, ANSWERED_SECONDS)
        except SceneError:
            late = True  # What is missing is counted below.
        found = await asyncio.to_thread(self._answers)
        lost, more = (wanted - found).total(), (found - wanted).total()
        self._print(f"{NAME} has answered {found.total():,}: {lost:,} lost, {more:,} too many or wrong")
        if late or lost or more:
            raise SceneError("the answers are not those of the readings", hint="keep the data with --keep")

    def _answers(self) -> Counter[Answer]:
        found: Counter[Answer] = Counter()
        after = 0
        while page := self._client.results(NAME, after=after, limit=PAGE):
            found.update(map(_answer, page))
            after = page[-1]["sequence"]
        return found

    def _answered(self) -> int:
        return int(self._client.query(NAME)["rows"])

    def _has_streams(self) -> bool:
        return {each["name"] for each in self._client.streams()} >= set(VALUES)

    def _is_migrating(self) -> bool:
        return bool(self._client.migrations()) or self._has_migrated()

    def _has_migrated(self) -> bool:
        return any(each["migrations_end"] for each in self._client.plan_history(10))

    def _rates(self) -> str:
        return ", ".join(f"{stream} {rate:,}" for stream, rate in self._feed.rates.items())

    async def _until(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not await asyncio.to_thread(holds):
            self._parts.children.check()
            if time.monotonic() > deadline:
                raise SceneError(f"after {seconds:.0f} s it still does not hold that {what}")
            await asyncio.sleep(POLL_SECONDS)

    async def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._parts.children.check()
            await asyncio.sleep(POLL_SECONDS)

    async def _show(self, *arguments: str) -> None:
        """Print a command of `fjord plan`, and what it prints."""
        self._print(f"[bold]$ fjord plan {' '.join(arguments)}[/]")
        command = python_module("protocols.command_line", "plan", *arguments, "--api", self._parts.api_address)
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, env=child_environment()
        )
        if done.returncode:
            raise SceneError(f"`fjord plan {arguments[0]}` failed: {done.stderr.strip()}")
        self._console.print(done.stdout.rstrip(), highlight=False, markup=False, soft_wrap=True)

    def _print(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        self._console.print(f"[dim]{seconds:5.0f} s[/]  {text}", highlight=False, soft_wrap=True)


def _answer(result: dict[str, Any]) -> Answer:
    row = result["row"]
    return (_us(result["start"]), _us(result["end"]), row["segment"], row["force"], row["mph"], row["mm"])


def _us(text: str) -> int:
    """Return an instant as microseconds since 1970, without rounding."""
    at = datetime.fromisoformat(text)
    return int(at.replace(microsecond=0).timestamp()) * 1_000_000 + at.microsecond
