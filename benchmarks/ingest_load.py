"""The batches of benchmarks/ingest.py, and the process that sends them as proxies do.

Sending is to use as little of the machine as possible: batches are encoded once, and many of them get their numbers
together, and leave in one write; acknowledgements are compared as bytes.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from protocols.mqtt.frames import frame_end, take_messages
from protocols.mqtt.messages import Message
from protocols.mqtt.sent_frames import InFlight, number_of
from protocols.wire import topics
from protocols.wire.batches import Batch, Column, decode_ack, encode_batch, make_columns
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import VERSION, encode
from protocols.wire.programs import SECOND_US
from protocols.wire.streams import Field, FieldType, StreamSchema

BEGAN_US = 1_700_000_000 * SECOND_US
FIELDS = (
    Field("sensor", FieldType.TEXT, fixed=True),
    Field("segment", FieldType.INTEGER, fixed=True),
    Field("speed", FieldType.REAL, "mph"),
    Field("lane", FieldType.INTEGER),
)
SENSORS = 300
NULL_SHARE = 0.02
DIFFERENT_BATCHES = 32
LEAST_RUN, MOST_RUN = 32, 256
"""Batches of a proxy that are written to the socket together: least, unless few may be in flight, and most."""
RESEND_SECONDS = 3.0
"""Without an acknowledgement, everything that has none is sent again."""
PUBLISH, PUBLISH_RETAINED = 0x30, 0x33
"""With a quality of service of 0, as batches have; retained, and with 1, as offers have."""
PUBACK = 0x40
LONGEST_ONE_BYTE_LENGTH = 127
SEQUENCE_WIDTH, WATERMARK_WIDTH = b"\xce", b"\xcf"
"""MessagePack: an integer of four bytes, or of eight, follows."""
SEQUENCE, WATERMARK = 2**32 - 1, 2**62
"""In place of the numbers that each batch has for itself."""
AHEAD_US = 86_400 * SECOND_US
"""By which all samples are later than the watermarks, so that none is late."""
FAREWELL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Shared:
    """State that the processes share in memory, so that sharing it costs nothing.

    Parameters
    ----------
    ready
        1 when the receiver listens.
    taken
        Messages that a receiver which acknowledges nothing has received.
    stored
        Batches acknowledged to proxies.
    stop
        Set when the process must end.
    """

    ready: Synchronized[int]
    taken: Synchronized[int]
    stored: Synchronized[int]
    stop: Event


@dataclass(frozen=True, slots=True)
class Load:
    """What one process sends.

    Parameters
    ----------
    rows
        Of each batch.
    proxies
        How many send it.
    in_flight
        Batches of each proxy that are sent and not acknowledged.
    epoch
        That the proxies begin.
    prefix
        Before each topic; with one, the receiver acknowledges nothing, and counts.
    """

    rows: int
    proxies: int
    in_flight: int
    epoch: str
    prefix: str = ""

    @property
    def stream(self) -> str:
        """The name of the stream that is sent."""
        return f"rows{self.rows}"


def proxy_name(place: int) -> str:
    """Return the name of a proxy."""
    return f"p{place}"


def columns(stream: str, rows: int, seed: int) -> tuple[Column, ...]:
    """Return the columns of a batch, of a few hundred sensors."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    sensors = [dice.randrange(SENSORS) for _ in range(rows)]
    values = {
        "sensor": [f"sensor{number}" for number in sensors],
        "segment": [number % 50 for number in sensors],
        "speed": [None if dice.random() < NULL_SHARE else round(dice.uniform(0, 90), 1) for _ in sensors],
        "lane": [dice.randrange(1, 5) for _ in sensors],
    }
    starts = [BEGAN_US + AHEAD_US + seed * SECOND_US + place for place in range(rows)]
    motes = [f"m{number}" for number in sensors]
    return make_columns(StreamSchema(stream, FIELDS), starts, motes, [True] * rows, values)


def length_bytes(rest: int) -> bytes:
    """Return the length of an MQTT frame as it is written."""
    found = bytearray()
    while rest > LONGEST_ONE_BYTE_LENGTH:
        found.append(rest % 128 | 128)
        rest //= 128
    return bytes((*found, rest))


class Frames:
    """The frames of one proxy's batches, one after another in a buffer: only their numbers change.

    Parameters
    ----------
    load
        What is sent.
    proxy
        By which proxy.
    bodies
        The columns of the different batches.
    """

    def __init__(self, load: Load, proxy: str, bodies: list[tuple[Column, ...]]) -> None:
        topic = (load.prefix + topics.batches(proxy)).encode()
        head = struct.pack("!H", len(topic)) + topic
        self.slots = max(DIFFERENT_BATCHES, load.in_flight)
        """Batches in the buffer; the next one takes the place of the first."""
        frames, places = list[bytes](), list[list[int]]()
        for body in (bodies[slot % len(bodies)] for slot in range(self.slots)):
            batch = Batch(
                VERSION,
                proxy,
                load.epoch,
                load.stream,
                SEQUENCE,
                WATERMARK,
                sampling=True,
                rows=load.rows,
                columns=body,
            )
            payload = encode_batch(batch)
            numbers = SEQUENCE_WIDTH + SEQUENCE.to_bytes(4, "big") + WATERMARK_WIDTH + WATERMARK.to_bytes(8, "big")
            frame = bytes((PUBLISH,)) + length_bytes(len(head) + len(payload)) + head + payload
            sequence = frame.index(numbers) + 1
            watermark = sequence + 4 + 1
            own = [*range(sequence, sequence + 4), *range(watermark, watermark + 8)]
            places.append(own)
            frames.append(frame)
        self._buffer = bytearray(b"".join(frames))
        self._ends = np.cumsum([0, *map(len, frames)])
        self._places = np.array(places) + self._ends[:-1, None]

    def run(self, after: int, most: int) -> tuple[int, memoryview]:
        """Return how many batches follow one, and their frames.

        Parameters
        ----------
        after
            The number of the batch before them.
        most
            How many at most.
        """
        slot = after % self.slots
        count = min(most, self.slots - slot)
        sequences = np.arange(after + 1, after + 1 + count)
        watermarks = BEGAN_US + 1_000 * sequences
        octets = [
            each.astype(kind).view(np.uint8).reshape(count, -1)
            for each, kind in ((sequences, ">u4"), (watermarks, ">u8"))
        ]
        np.frombuffer(self._buffer, np.uint8)[self._places[slot : slot + count]] = np.hstack(octets)
        return count, memoryview(self._buffer)[self._ends[slot] : self._ends[slot + count]]


class Client:
    """An MQTT client that writes frames made beforehand and reads acknowledgements, without waiting for either."""

    def __init__(self, port: int, name: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rest = b"\0\4MQTT\4\2\0\0" + struct.pack("!H", len(name)) + name.encode()
        self._socket.sendall(bytes((0x10, len(rest))) + rest)
        if self._socket.recv(4) != b"\x20\x02\x00\x00":
            raise ConnectionError("the broker refuses the publisher")
        self._incomplete = b""
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self.window = InFlight()
        """Which messages the broker has acknowledged."""

    def write(self, frames: bytes | memoryview, messages: int = 0) -> None:
        """Write frames with so many messages that the broker acknowledges."""
        self.window.sent += messages
        self._socket.sendall(frames)

    def publish(self, topic: str, payload: bytes) -> None:
        """Write a retained message."""
        name = topic.encode()
        body = struct.pack("!H", len(name)) + name + number_of(self.window.sent).to_bytes(2, "big") + payload
        self.write(bytes((PUBLISH_RETAINED,)) + length_bytes(len(body)) + body, 1)

    def subscribe(self, topic: str) -> None:
        """Subscribe with a quality of service of 0: what is lost is sent again."""
        name = topic.encode()
        body = b"\0\1" + struct.pack("!H", len(name)) + name + b"\0"
        self.write(b"\x82" + length_bytes(len(body)) + body)

    def read(self, seconds: float) -> list[Message]:
        """Wait for something to arrive; return the messages in it."""
        if not self._poll.poll(seconds * 1_000):
            return []
        received = self._incomplete + self._socket.recv(262_144)
        messages: list[Message] = []
        start = 0
        while True:
            start = take_messages(received, self.window.take(received, start), messages, [])
            end = frame_end(received, start)
            if end is None:
                break
            if received[start] != PUBACK:  # those are read by the window, the next time
                start = end
        self._incomplete = received[start:]
        return messages

    def close(self) -> None:
        """Wait until the broker has everything, and disconnect."""
        deadline = time.monotonic() + FAREWELL_SECONDS
        while self.window.waiting > 0 and time.monotonic() < deadline:
            self.read(0.1)
        self._socket.sendall(b"\xe0\x00")
        self._socket.close()


def send(port: int, load: Load, shared: Shared) -> None:
    """Offer the stream and send batches until stopped; then wait until all that was sent is acknowledged."""
    client = Client(port, f"load-{load.epoch}")
    bodies = [columns(load.stream, load.rows, seed) for seed in range(DIFFERENT_BATCHES)]
    frames = [Frames(load, proxy_name(place), bodies) for place in range(load.proxies)]
    if not load.prefix:
        for place in range(load.proxies):
            proxy = proxy_name(place)
            offer = StreamOffer(VERSION, proxy, StreamSchema(load.stream, FIELDS))
            client.publish(topics.stream_offer(proxy, load.stream), encode(offer))
        client.subscribe(topics.acks("+"))
    Proxies(client, load, frames, shared).run()
    client.close()


class Proxies:
    """Proxies with endless spools, each with as many batches on their way as may be.

    Parameters
    ----------
    client
        Sends for all of them.
    load
        What they send.
    frames
        Of each proxy.
    shared
        Where the stored batches are counted, or those that a receiver has taken which acknowledges nothing.
    """

    def __init__(self, client: Client, load: Load, frames: list[Frames], shared: Shared) -> None:
        self._client = client
        self._load = load
        self._frames = frames
        self._shared = shared
        self._places = {proxy_name(place): place for place in range(len(frames))}
        self._sent = [0] * len(frames)
        self._acknowledged = [0] * len(frames)
        self._least_run = min(LEAST_RUN, max(1, load.in_flight // 2))
        self._turn = 0
        self._progress = time.monotonic()

    def run(self) -> None:
        """Send until stopped, and wait as much longer as it takes until everything is acknowledged."""
        began = self._shared.taken.value
        while not self._shared.stop.is_set():
            if self._load.prefix:
                # Each proxy's part of what was taken; a receiver takes them in about the order in which they come.
                self._acknowledged = [(self._shared.taken.value - began) // len(self._frames)] * len(self._frames)
            self._send_runs()
            self._read()
        deadline = time.monotonic() + FAREWELL_SECONDS
        while not self._load.prefix and self._acknowledged != self._sent and time.monotonic() < deadline:
            self._read()

    def _send_runs(self) -> None:
        """Let each proxy in turn send a run of batches, if it may send that many."""
        for _ in self._frames:
            place = self._turn
            room = self._load.in_flight - (self._sent[place] - self._acknowledged[place])
            self._turn = (place + 1) % len(self._frames)
            if room >= self._least_run:
                count, frames = self._frames[place].run(self._sent[place], min(room, MOST_RUN))
                self._client.write(frames)
                self._sent[place] += count

    def _read(self) -> None:
        for message in self._client.read(0.002):
            ack = decode_ack(message.payload)
            if ack.epoch == self._load.epoch:
                place = self._places[ack.proxy]
                self._shared.stored.value += max(0, ack.through - self._acknowledged[place])
                self._acknowledged[place] = max(ack.through, self._acknowledged[place])
                self._progress = time.monotonic()
        if not self._load.prefix and time.monotonic() - self._progress > RESEND_SECONDS:
            self._sent, self._progress = list(self._acknowledged), time.monotonic()
