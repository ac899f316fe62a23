"""The broker's side of MQTT: a client's frames read, the broker's written. What both sides share is the product's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from protocols.mqtt.frames import (
    FrameBuffer,
    MalformedFrameError,
    Octets,
    Property,
    frame_bounds,
    length_octets,
    read_properties,
    take_messages,
    two_octets,
    write_properties,
)
from protocols.mqtt.messages import Message, Subscription, Version

CONNECT, PUBLISH, PUBACK, SUBSCRIBE, PING, DISCONNECT = 0x10, 0x30, 0x40, 0x82, 0xC0, 0xE0
PONG = b"\xd0\x00"
_CLEAN, _WILL, _RETAIN, _PASSWORD, _USERNAME = 0x02, 0x04, 0x20, 0x40, 0x80
_TWICE = 0x08
_KIND = 0xF0


@dataclass(frozen=True, slots=True)
class Connecting:
    """A client connects."""

    version: Version
    client_id: str
    keep_alive_seconds: int
    receive_maximum: int
    will: Message | None
    begins_anew: bool = True
    """Whether a session of this client that the broker has kept is to be forgotten."""
    outlives: bool = False
    """Whether its session goes on when the connection ends."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """A client publishes; its number is 0 if it wants no acknowledgement."""

    message: Message
    number: int


@dataclass(frozen=True, slots=True)
class Acknowledging:
    """A client has a message."""

    number: int


@dataclass(frozen=True, slots=True)
class Subscribing:
    """A client subscribes."""

    number: int
    subscriptions: tuple[Subscription, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribing:
    """A client ends subscriptions."""

    number: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaving:
    """A client leaves, with its will or without."""

    with_will: bool


@dataclass(frozen=True, slots=True)
class Pinging:
    """A client asks whether the broker is there."""


Request: TypeAlias = Connecting | Publishing | Acknowledging | Subscribing | Unsubscribing | Leaving | Pinging


class RequestReader:
    """Reads one client's bytes."""

    def __init__(self) -> None:
        self.version = Version.V3_1_1
        self._buffer = FrameBuffer()

    def read(self, data: bytes) -> list[Request]:
        """Return the requests that are complete; raises MalformedFrameError."""
        received = self._buffer.joined(data)
        if received is None:
            return []
        found: list[Request] = []
        start = 0
        while True:
            messages: list[Message] = []
            numbers: list[int] = []
            start = take_messages(received, start, messages, numbers, self.version)
            found += map(Publishing, messages, numbers)
            bounds = frame_bounds(received, start)
            if bounds is None or bounds.end > len(received):
                break
            found.append(self._read(received[start], Octets(received, *bounds)))
            start = bounds.end
        self._buffer.keep(received, start)
        return found

    def _read(self, first: int, octets: Octets) -> Request:
        match first:
            case 0x10:
                return self._connecting(octets)
            case 0x40:
                return Acknowledging(octets.two())
            case 0x82:
                return self._subscribing(octets)
            case 0xA2:
                return self._unsubscribing(octets)
            case 0xC0:
                return Pinging()
            case 0xE0:
                return Leaving(with_will=octets.left > 0 and octets.one() == 4)
        raise MalformedFrameError(f"a client sends no frame that begins with {first:#04x}")

    def _connecting(self, octets: Octets) -> Connecting:
        if octets.text() != "MQTT":
            raise MalformedFrameError("not MQTT")
        self.version = version = Version(octets.one())
        flags, keep_alive = octets.one(), octets.two()
        properties = read_properties(octets) if version is Version.V5 else {}
        client_id = octets.text()
        will = None
        if flags & _WILL:
            if version is Version.V5:
                read_properties(octets)
            topic = octets.text()
            will = Message(topic, octets.binary(), flags >> 3 & 1, bool(flags & _RETAIN))
        clean = bool(flags & _CLEAN)
        outlives = properties.get(Property.SESSION_EXPIRY, 0) > 0 if version is Version.V5 else not clean
        most = properties.get(Property.RECEIVE_MAXIMUM, 0xFFFF)
        return Connecting(version, client_id, keep_alive, most, will, begins_anew=clean, outlives=outlives)

    def _subscribing(self, octets: Octets) -> Subscribing:
        number = octets.two()
        if self.version is Version.V5:
            read_properties(octets)
        subscriptions = []
        while octets.left:
            topic_filter = octets.text()
            subscriptions.append(Subscription(topic_filter, octets.one() & 1))
        return Subscribing(number, tuple(subscriptions))

    def _unsubscribing(self, octets: Octets) -> Unsubscribing:
        number = octets.two()
        if self.version is Version.V5:
            read_properties(octets)
        filters = []
        while octets.left:
            filters.append(octets.text())
        return Unsubscribing(number, tuple(filters))


def accepted(version: Version, receive_maximum: int, *, goes_on: bool = False) -> bytes:
    """Return the answer to a client that connects; `goes_on` with the session that it had before."""
    properties = write_properties({Property.RECEIVE_MAXIMUM: receive_maximum}) if version is Version.V5 else b""
    return _frame(0x20, bytes((goes_on, 0)) + properties)


def sent_again(frame: bytes) -> bytes:
    """Return the frame of a message as one that was sent before."""
    return bytes((frame[0] | _TWICE,)) + frame[1:]


def granted(version: Version, request: Subscribing) -> bytes:
    """Return the answer to a subscription."""
    none = b"\0" if version is Version.V5 else b""
    return _frame(0x90, two_octets(request.number) + none + bytes(each.qos for each in request.subscriptions))


def ended(version: Version, request: Unsubscribing) -> bytes:
    """Return the answer to a client that ended subscriptions; MQTT 3.1.1 has no codes."""
    codes = bytes(1 + len(request.filters)) if version is Version.V5 else b""
    return _frame(0xB0, two_octets(request.number) + codes)


def farewell(version: Version, reason: int) -> bytes:
    """Return the last frame to a client; brokers that speak MQTT 3.1.1 have none."""
    return _frame(DISCONNECT, bytes((reason, 0))) if version is Version.V5 else b""


def _frame(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + length_octets(len(body)) + body
