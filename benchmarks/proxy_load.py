"""The packets of benchmarks/proxy.py, and the publisher that sends them as fast as they are received.

The publisher writes frames that were encoded beforehand, so that it uses as little of the machine as possible.
"""

from __future__ import annotations

import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from msgspec.structs import asdict

from protocols.mqtt.messages import Message
from protocols.sealing.keys import make_keys, read_part_keys
from protocols.sealing.seals import MoteSeals, PartSeals
from protocols.wire import topics
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Announcement, NumberedAnnouncement, Packet, Sample
from protocols.wire.programs import SECOND_US, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits

QUERIES = 300
PERIODS_US = (None, SECOND_US, 2 * SECOND_US, 5 * SECOND_US)
SAMPLES_PER_PACKET = 3
UNACKNOWLEDGED = 1_000
"""Messages the publisher has sent and the broker has not acknowledged, at most."""
AHEAD = 20_000
"""Messages sent and not yet processed by the contender, at most: far fewer than the broker keeps."""
AT_ONCE = 100
PAUSE_SECONDS = 0.002
"""Pause between reads of acknowledgements: the broker would otherwise wake the publisher for each, which costs both."""
BEGAN_US = 1_700_000_000 * SECOND_US
TRAFFIC = StreamSchema(
    "traffic",
    (Field("segment", FieldType.INTEGER, fixed=True), Field("speed", FieldType.REAL), Field("flow", FieldType.INTEGER)),
)
LARGEST_NUMBER = 60_000
KEYED = "keyed"
"""The contender with keys."""
KEYS = make_keys(bytes(32), [KEYED])
LONGEST_ONE_BYTE_LENGTH = 127


@dataclass(frozen=True, slots=True)
class Shared:
    """State that the processes of a contender share in memory, so that sharing it costs nothing.

    Parameters
    ----------
    taken
        Messages received.
    ready
        1 when it listens; a proxy adds one for each announcement received.
    rows
        Rows acknowledged to a proxy.
    stop
        Set when the process must end.
    processor_ns
        Processor time that a proxy has used, with all its threads.
    """

    taken: Synchronized[int]
    ready: Synchronized[int]
    rows: Synchronized[int]
    stop: Event
    processor_ns: Synchronized[int]


def mote_name(place: int) -> str:
    """Return the name of a mote."""
    return f"m{place}"


def announcement(place: int) -> Announcement:
    """Return a mote's announcement."""
    properties = {"segment": place % 50}
    return Announcement(VERSION, mote_name(place), 1, "loop", TRAFFIC, properties, SECOND_US, SECOND_US)


def demand() -> StreamDemand:
    """Return the demand of all queries on the stream."""
    queries = (QueryDemand(f"q{n}", ("flow", "speed"), PERIODS_US[n % len(PERIODS_US)]) for n in range(QUERIES))
    return StreamDemand(VERSION, "benchmark", TRAFFIC.name, 1, tuple(queries))


def program() -> int:
    """Return the number of the program that the demand leads to."""
    fleet = Fleet("benchmark", FleetLimits(), now_us=0)
    fleet.receive_announcement(announcement(0), radio_us=0, received_us=0)
    fleet.receive_demand(TRAFFIC.name, demand(), radio_us=0)
    return program_number(fleet.motes[mote_name(0)].desired)


def frame(topic: str, payload: bytes, number: int, *, retain: bool = False) -> bytes:
    """Return an MQTT 3.1.1 PUBLISH with a quality of service of 1."""
    name = topic.encode()
    body = struct.pack("!H", len(name)) + name + struct.pack("!H", number % LARGEST_NUMBER + 1) + payload
    length, rest = bytearray(), len(body)
    while rest > LONGEST_ONE_BYTE_LENGTH:
        length.append(rest % 128 | 128)
        rest //= 128
    length.append(rest)
    return bytes((0x33 if retain else 0x32,)) + bytes(length) + body


def packets(proxy: str, motes: int, first: int, count: int) -> list[bytes]:
    """Return the frames of packets `first` and following, the motes taking turns."""
    seal = seal_of(proxy)
    number, frames = program(), []
    for place in range(first, first + count):
        sequence, mote = divmod(place, motes)
        clock_us = BEGAN_US + (sequence + 1) * SAMPLES_PER_PACKET * SECOND_US
        samples = tuple(Sample(ago * SECOND_US, (50.5 + ago, place % 97)) for ago in range(SAMPLES_PER_PACKET, 0, -1))
        packet = Packet(VERSION, mote_name(mote), 1, sequence, clock_us, clock_us, 0, number, samples)
        topic = topics.packet(proxy, mote_name(mote))
        frames.append(frame(topic, seal(topic, encode(packet)), place))
    return frames


def announcements(proxy: str, motes: int) -> list[bytes]:
    """Return the frames of the demand and of all motes' announcements."""
    seal, announced = seal_of(proxy), []
    for place in range(motes):
        topic, found = topics.announcement(proxy, mote_name(place)), announcement(place)
        if proxy == KEYED:
            found = NumberedAnnouncement(**asdict(found), sequence=0)
        announced.append(frame(topic, seal(topic, encode(found)), place))
    demanded = Message(topics.demand(TRAFFIC.name), encode(demand()))
    if proxy == KEYED:
        with tempfile.TemporaryDirectory() as folder:
            demanded = keyed_seals("cluster.keys", Path(folder)).seal(demanded)
    return [frame(demanded.topic, demanded.payload, motes, retain=True), *announced]


def keyed_seals(file: str, folder: Path) -> PartSeals:
    """Return the seals of a part of the deployment with keys."""
    seals = PartSeals(read_part_keys(KEYS.files()[file], file), folder)
    seals.connecting()
    return seals


def seal_of(proxy: str) -> Callable[[str, bytes], bytes]:
    """Return what seals the frames of a proxy's motes, given topic and frame: nothing, but for the one with keys."""
    if proxy != KEYED:
        return lambda _, payload: payload
    seals = MoteSeals(KEYS.motes[KEYED])
    return lambda topic, payload: seals.of(topic).seal(payload)


class Publisher:
    """A client that only writes given frames, as fast as they are acknowledged and received."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rest = b"\0\4MQTT\4\2\0\0\0\7fastest"
        self._socket.sendall(bytes((0x10, len(rest))) + rest)
        if self._socket.recv(4) != b"\x20\x02\x00\x00":
            raise ConnectionError("the broker refuses the publisher")

    def publish(self, frames: Sequence[bytes], taken: Synchronized[int]) -> None:
        """Publish all and wait until the broker has them; `taken` counts all frames that ever arrived."""
        count, sent, bytes_acknowledged = len(frames), 0, 0
        before = taken.value
        while bytes_acknowledged < 4 * count:
            acknowledged = bytes_acknowledged // 4
            room = min(UNACKNOWLEDGED - (sent - acknowledged), AHEAD - (sent - (taken.value - before)), count - sent)
            if room >= min(AT_ONCE, count - sent) and room > 0:
                self._socket.sendall(b"".join(frames[sent : sent + room]))
                sent += room
            else:
                time.sleep(PAUSE_SECONDS)
                if sent > acknowledged:
                    bytes_acknowledged += len(self._socket.recv(65_536))

    def close(self) -> None:
        """Disconnect."""
        self._socket.sendall(b"\xe0\x00")
        self._socket.close()


def publish(port: int, which: tuple[str, int, int, int], began: Synchronized[float], shared: Shared) -> None:
    """Encode packets, note when the first is sent, and publish them; `which` are the parameters of :func:`packets`."""
    frames = packets(*which)
    publisher = Publisher(port)
    began.value = time.monotonic()
    publisher.publish(frames, shared.taken)
    publisher.close()
