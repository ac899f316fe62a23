"""The batches of benchmarks/ingest.py, and the process that sends them as proxies do.

A batch is encoded once, up to its number, and the proxies' delivery windows are those of real proxies, so that sending
uses as little of the machine as possible.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from protocols.mqtt.frames import frame_end, take_messages
from protocols.mqtt.messages import Message
from protocols.wire import topics
from protocols.wire.batches import Batch, Column, decode_ack, encode_batch, make_columns
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import VERSION, encode
from protocols.wire.programs import SECOND_US
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.running.delivery_window import AckReceived, BatchSpooled, Connected, DeliveryWindow, Send, TimePassed

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
AT_ONCE = 256
"""Batches that are written to the socket together."""
PUBLISH = 0x32
"""With a quality of service of 1."""
NUMBERS = struct.Struct("!cIcQ")
LARGEST_NUMBER = 60_000
LONGEST_ONE_BYTE_LENGTH = 127
UNACKNOWLEDGED = 2_000
"""Messages the publisher has sent and the broker has not acknowledged, at most."""
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
    """The frames of one proxy's batches: encoded once, except for their numbers.

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
        self._pieces = []
        for body in bodies:
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
            before, after = payload.split(numbers, 1)
            head = struct.pack("!H", len(topic)) + topic
            length = length_bytes(len(head) + 2 + len(payload))
            self._pieces.append((bytes((PUBLISH,)) + length + head, before, after))

    def frame(self, sequence: int, number: int) -> bytes:
        """Return the frame of a batch, with the number that the broker acknowledges it by."""
        head, before, after = self._pieces[sequence % len(self._pieces)]
        own = NUMBERS.pack(SEQUENCE_WIDTH, sequence, WATERMARK_WIDTH, BEGAN_US + 1_000 * sequence)
        return b"".join((head, number.to_bytes(2, "big"), before, own, after))


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
        self._number = 0
        self.unacknowledged = 0

    def number(self) -> int:
        """Return the number of the next message."""
        self._number = self._number % LARGEST_NUMBER + 1
        self.unacknowledged += 1
        return self._number

    def write(self, frames: list[bytes]) -> None:
        """Write frames."""
        self._socket.sendall(b"".join(frames))

    def publish(self, topic: str, payload: bytes) -> None:
        """Write a retained message."""
        name = topic.encode()
        body = struct.pack("!H", len(name)) + name + self.number().to_bytes(2, "big") + payload
        self.write([bytes((PUBLISH | 1,)) + length_bytes(len(body)) + body])

    def subscribe(self, topic: str) -> None:
        """Subscribe with a quality of service of 0: what is lost is sent again."""
        name = topic.encode()
        body = b"\0\1" + struct.pack("!H", len(name)) + name + b"\0"
        self.write([b"\x82" + length_bytes(len(body)) + body])

    def read(self, seconds: float) -> list[Message]:
        """Wait for something to arrive; return the messages in it."""
        self._socket.settimeout(seconds)
        try:
            received = self._incomplete + self._socket.recv(262_144)
        except TimeoutError:
            return []
        finally:
            self._socket.settimeout(None)
        messages: list[Message] = []
        start = take_messages(received, 0, messages, [])
        while (end := frame_end(received, start)) is not None:
            self.unacknowledged -= received[start] == 0x40  # noqa: PLR2004 - PUBACK
            start = take_messages(received, end, messages, [])
        self._incomplete = received[start:]
        return messages

    def close(self) -> None:
        """Wait until the broker has everything, and disconnect."""
        deadline = time.monotonic() + FAREWELL_SECONDS
        while self.unacknowledged > 0 and time.monotonic() < deadline:
            self.read(0.1)
        self._socket.sendall(b"\xe0\x00")
        self._socket.close()


def send(port: int, load: Load, shared: Shared) -> None:
    """Offer the stream and send batches until stopped; then wait until all that was sent is acknowledged."""
    client = Client(port, f"load-{load.epoch}")
    bodies = [columns(load.stream, load.rows, seed) for seed in range(DIFFERENT_BATCHES)]
    frames = [Frames(load, proxy_name(place), bodies) for place in range(load.proxies)]
    if load.prefix:
        send_uncontrolled(client, load, frames, shared)
    else:
        for place in range(load.proxies):
            proxy = proxy_name(place)
            offer = StreamOffer(VERSION, proxy, StreamSchema(load.stream, FIELDS))
            client.publish(topics.stream_offer(proxy, load.stream), encode(offer))
        client.subscribe(topics.acks("+"))
        Proxies(client, load, frames, shared).run()
    client.close()


def send_uncontrolled(client: Client, load: Load, frames: list[Frames], shared: Shared) -> None:
    """Send to a receiver that only counts: as many batches are on their way as proxies would have in flight."""
    sent, began = 0, shared.taken.value
    while not shared.stop.is_set():
        room = min(
            load.in_flight * load.proxies - (sent - (shared.taken.value - began)),
            UNACKNOWLEDGED - client.unacknowledged,
            AT_ONCE,
        )
        if room >= min(AT_ONCE, load.proxies) // 4:
            numbers = range(sent, sent + room)
            client.write([frames[n % load.proxies].frame(n // load.proxies + 1, client.number()) for n in numbers])
            sent += room
        else:
            client.read(0.001)


class Proxies:
    """Proxies with endless spools.

    Parameters
    ----------
    client
        Sends for all of them.
    load
        What they send.
    frames
        Of each proxy.
    shared
        Where the stored batches are counted.
    """

    def __init__(self, client: Client, load: Load, frames: list[Frames], shared: Shared) -> None:
        self._client = client
        self._load = load
        self._frames = frames
        self._shared = shared
        self._windows = [DeliveryWindow(in_flight=load.in_flight) for _ in frames]
        self._places = {proxy_name(place): place for place in range(len(frames))}
        self._due: deque[tuple[int, int]] = deque()
        self.resends = 0

    def run(self) -> None:
        """Send until stopped, and as much longer as it takes until everything is acknowledged."""
        for place, window in enumerate(self._windows):
            window.handle(Connected(), now_us())
            self._spool(place)
        deadline, looked = float("inf"), time.monotonic()
        while time.monotonic() < deadline and any(window.waiting for window in self._windows):
            if deadline == float("inf") and self._shared.stop.is_set():
                deadline = time.monotonic() + FAREWELL_SECONDS
            self._send_due()
            for message in self._client.read(0.002):
                self._acknowledged(message)
            if time.monotonic() - looked > 0.5:  # noqa: PLR2004 - twice a second
                looked = time.monotonic()
                for place, window in enumerate(self._windows):
                    self._carry_out(place, window.handle(TimePassed(), now_us()))

    def _spool(self, place: int) -> None:
        """Let a proxy have as many batches as may be in flight."""
        window = self._windows[place]
        if self._shared.stop.is_set():
            return
        for sequence in range(window.spooled + 1, window.acknowledged + self._load.in_flight + 1):
            self._carry_out(place, window.handle(BatchSpooled(sequence), now_us()))

    def _acknowledged(self, message: Message) -> None:
        ack = decode_ack(message.payload)
        if ack.epoch != self._load.epoch:
            return
        place = self._places[ack.proxy]
        window = self._windows[place]
        before = window.acknowledged
        self._carry_out(place, window.handle(AckReceived(ack.through), now_us()))
        self._shared.stored.value += window.acknowledged - before
        self._spool(place)

    def _carry_out(self, place: int, instructions: list[object]) -> None:
        self._due.extend((place, each.sequence) for each in instructions if isinstance(each, Send))

    def _send_due(self) -> None:
        room = min(len(self._due), UNACKNOWLEDGED - self._client.unacknowledged, AT_ONCE)
        while room > 0:
            due = [self._due.popleft() for _ in range(room)]
            self._client.write([self._frames[place].frame(number, self._client.number()) for place, number in due])
            room = min(len(self._due), UNACKNOWLEDGED - self._client.unacknowledged, AT_ONCE)


def now_us() -> int:
    """Return the time of a clock that never goes back."""
    return time.monotonic_ns() // 1000
