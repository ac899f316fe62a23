"""What devices published, what the broker accepted of it, and what it handed over to a proxy: no product's code.

    device --sent--> broker --accepted--> session of a proxy --handed over--> process of a proxy

A message whose last byte the network gave to a process was received by it, whatever the process made of it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from protocols.sealing.seals import COUNTER_BYTES, MARK, SIGNATURE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocols.mqtt.messages import Message
    from tests.simulation.hosts import Incarnation
    from tests.simulation.virtual_loop import VirtualLoop

_STREAM, _DEMANDS = 2, 4
"""Places in the frame of a demand."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as its device meant it.

    Parameters
    ----------
    stream, mote, number
        What its tuple is known by.
    values
        That the tuple should have, by field.
    rejected
        Why there should be no tuple; empty if there should be one.
    at_us
        The device's own time; None where a tuple is stamped on arrival.
    configured
        Whether the proxy configures the device's reporting: then its reports count once that is confirmed.
    certain
        Whether it is certain how the proxy reads it: a bridge that was just updated may not have announced it yet.
    """

    stream: str
    mote: str
    number: int
    values: Mapping[str, Any]
    rejected: str = ""
    at_us: int | None = None
    configured: bool = False
    certain: bool = True


@dataclass(eq=False, slots=True)
class Delivery:
    """A message on its way from the broker to a proxy.

    Parameters
    ----------
    published
        What it is about.
    process
        Of the proxy, to which it was sent.
    again
        Whether it is marked as sent before.
    retained
        Whether it is a copy that the broker kept.
    handed_ns, wall_us, place
        True time and the proxy's wall clock when the process had it, None for never; and as which one of all.
    """

    published: Published
    process: Incarnation
    again: bool
    retained: bool
    handed_ns: int | None = None
    wall_us: int | None = None
    place: int = 0


@dataclass(eq=False, slots=True)
class Published:
    """A message that the broker accepted.

    Parameters
    ----------
    sent
        What it is.
    proxy
        Whose devices it belongs to.
    at_ns
        True time.
    qos
        As it was published.
    kept
        Whether a session was there for it that outlives its connections.
    """

    sent: Sent
    proxy: str
    at_ns: int
    qos: int
    kept: bool = False
    deliveries: list[Delivery] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Demanded:
    """A demand that a process of a proxy was handed: whether any query reads the stream."""

    at_ns: int
    process: int
    any: bool


class DeviceLog:
    """All messages of devices.

    Parameters
    ----------
    loop
        Whose time it is.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.published: list[Published] = []
        self.demands: dict[tuple[str, str], list[Demanded]] = defaultdict(list)
        """By proxy and stream."""
        self._loop = loop
        self._handed = 0
        self._sent: dict[tuple[str, bytes], tuple[str, Sent]] = {}
        self._latest: dict[tuple[str, bytes], Published] = {}

    def send(self, proxy: str, topic: str, payload: bytes, sent: Sent) -> None:
        """Note what a device is about to publish."""
        self._sent[topic, payload] = proxy, sent

    def accepted(self, message: Message) -> None:
        """Note a message that the broker accepted."""
        found = self._sent.get((message.topic, message.payload))
        if found is not None:
            published = Published(found[1], found[0], self._loop.world.now_ns, message.qos)
            self.published.append(published)
            self._latest[message.topic, message.payload] = published

    def kept(self, message: Message) -> None:
        """Note that a session which outlives its connections has taken up the message accepted last."""
        found = self._latest.get((message.topic, message.payload))
        if found is not None:
            found.kept = True

    def forgotten(self, message: Message) -> None:
        """Note that the broker has lost what it kept for such a session."""
        found = self._latest.get((message.topic, message.payload))
        if found is not None:
            found.kept = False

    def delivering(self, message: Message, process: Incarnation, *, again: bool) -> Delivery | None:
        """Note that a message is sent to a process; None if it is of no device."""
        found = self._latest.get((message.topic, message.payload))
        if found is None or found.proxy != process.host.name:
            return None
        delivery = Delivery(found, process, again, message.retain)
        found.deliveries.append(delivery)
        return delivery

    def handed(self, delivery: Delivery) -> None:
        """Note that a process has a message."""
        self._handed += 1
        delivery.handed_ns, delivery.place = self._loop.world.now_ns, self._handed
        delivery.wall_us = delivery.process.host.clock.wall_ns() // 1_000

    def demand_handed(self, message: Message, process: Incarnation) -> None:
        """Note a demand that a process of a proxy has been handed, in as many pieces as it may have."""
        frame = msgspec.msgpack.decode(_unsealed(message.payload))
        known = Demanded(self._loop.world.now_ns, process.number, any=bool(frame[_DEMANDS]))
        self.demands[process.host.name, frame[_STREAM]].append(known)


def _unsealed(payload: bytes) -> bytes:
    """Return what is sealed in a payload, or the payload if nothing is."""
    sealed = payload[:1] == bytes([MARK])
    return payload[1 + COUNTER_BYTES : -SIGNATURE_BYTES] if sealed else payload
