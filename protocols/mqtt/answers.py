"""What a broker answers, and why it refuses (section 3 of MQTT 5 and of MQTT 3.1.1). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from protocols.mqtt.frames import (
    LARGEST_LENGTH,
    NO_PROPERTIES,
    MalformedFrameError,
    Octets,
    Properties,
    Property,
    read_properties,
)
from protocols.mqtt.messages import Version

REFUSED = 0x80
"""Codes of MQTT 5, and of answers to subscriptions, are refusals from here on."""
UNACCEPTABLE_VERSION = 1
"""Of MQTT 3.1.1: an answer to a connect."""
UNSUPPORTED_VERSION = 0x84

MALFORMED_FRAME = 0x81
"""Of MQTT 5, as are the others: why a client ends a connection."""
SESSION_TAKEN_OVER = 0x8E
"""Of MQTT 5 too: a client has connected under the same name. Brokers that speak MQTT 3.1.1 end the connection only."""
RECEIVE_MAXIMUM_EXCEEDED = 0x93

_CONNECT_REFUSALS: Mapping[int, str] = MappingProxyType(
    {
        UNACCEPTABLE_VERSION: "unacceptable protocol version",
        2: "client identifier rejected",
        3: "server unavailable",
        4: "bad user name or password",
        5: "not authorised",
    }
)
_REASONS: Mapping[int, str] = MappingProxyType(
    {
        0x80: "unspecified error",
        0x81: "malformed packet",
        0x82: "protocol error",
        0x83: "implementation specific error",
        0x84: "unsupported protocol version",
        0x85: "client identifier not valid",
        0x86: "bad user name or password",
        0x87: "not authorised",
        0x88: "server unavailable",
        0x89: "server busy",
        0x8A: "banned",
        0x8B: "server shutting down",
        0x8C: "bad authentication method",
        0x8D: "keep alive timeout",
        SESSION_TAKEN_OVER: "another client has this name",
        0x8F: "topic filter invalid",
        0x90: "topic name invalid",
        0x91: "packet identifier in use",
        0x92: "packet identifier not found",
        0x93: "receive maximum exceeded",
        0x94: "topic alias invalid",
        0x95: "packet too large",
        0x96: "message rate too high",
        0x97: "quota exceeded",
        0x98: "administrative action",
        0x99: "payload format invalid",
        0x9A: "retain not supported",
        0x9B: "quality of service not supported",
        0x9C: "use another server",
        0x9D: "server moved",
        0x9E: "shared subscriptions not supported",
        0x9F: "connection rate exceeded",
        0xA0: "maximum connect time",
        0xA1: "subscription identifiers not supported",
        0xA2: "wildcard subscriptions not supported",
    }
)


def connect_refusal(version: Version, code: int) -> str:
    """Return why a broker refuses a connection."""
    return reason_text(code) if version is Version.V5 else _CONNECT_REFUSALS.get(code, f"reason {code}")


def reason_text(code: int) -> str:
    """Return a code of MQTT 5 as a text.

    Examples
    --------
    >>> reason_text(0x97)
    'quota exceeded'
    """
    return _REASONS.get(code, f"reason {code}")


_CONNACK, _PUBACK, _SUBACK, _UNSUBACK, _PINGRESP, _DISCONNECT = 0x20, 0x40, 0x90, 0xB0, 0xD0, 0xE0
_OLD_CONNACK_BYTES = 2
RECEIVE_MAXIMUM = 0xFFFF
"""Messages that either side takes before it has acknowledged the first, unless it says otherwise."""
_SESSION_PRESENT = 0x01


@dataclass(frozen=True, slots=True)
class ConnectAnswer:
    """The broker accepts a connection, or not.

    Parameters
    ----------
    code
        0, or why not.
    receive_maximum
        Messages that it takes before it has acknowledged the first of them.
    largest_frame_bytes
        What it takes in one frame.
    keep_alive_seconds
        What it asks for instead of the client's; None if that is fine.
    reason
        Its own words.
    most_qos
        The highest quality of service that it takes.
    retains
        Whether it takes messages to be retained.
    session_present
        Whether it goes on with a session from before.
    session_seconds
        How long it keeps the session without a connection; None for as long as the client asked for.
    """

    code: int
    receive_maximum: int = RECEIVE_MAXIMUM
    largest_frame_bytes: int = LARGEST_LENGTH
    keep_alive_seconds: int | None = None
    reason: str = ""
    most_qos: int = 2
    retains: bool = True
    session_present: bool = False
    session_seconds: int | None = None

    @property
    def refuses_version(self) -> bool:
        """Whether it does not speak this version of MQTT."""
        return self.code in {UNACCEPTABLE_VERSION, UNSUPPORTED_VERSION}


@dataclass(frozen=True, slots=True)
class PublishAnswer:
    """The broker acknowledges a message, or from 128 on refuses it."""

    number: int
    code: int


@dataclass(frozen=True, slots=True)
class SubscribeAnswer:
    """The quality of service granted for each filter; from 128 on a refusal."""

    number: int
    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnsubscribeAnswer:
    """The broker has ended subscriptions; with MQTT 5, a code for each filter: from 128 on a refusal."""

    number: int
    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PingAnswer:
    """The broker is there."""


@dataclass(frozen=True, slots=True)
class Farewell:
    """The broker ends the connection."""

    code: int
    reason: str = ""


Answer: TypeAlias = ConnectAnswer | PublishAnswer | SubscribeAnswer | UnsubscribeAnswer | PingAnswer | Farewell


def read_answer(version: Version, first: int, octets: Octets, *, lasting: bool = False) -> Answer:
    """Read a frame that is no message.

    Parameters
    ----------
    version
        Of MQTT.
    first
        The first byte of the frame.
    octets
        Its body.
    lasting
        Whether the client asked for a session that outlives its connections.

    Raises
    ------
    MalformedFrameError
        If it is none that a broker may send, or not complete, or there is something behind it.
    """
    if first == _CONNACK:
        answer: Answer = _connect_answer(version, octets, lasting=lasting)
    elif first == _PUBACK:
        answer = _publish_answer(version, octets)
    elif first == _SUBACK:
        answer = SubscribeAnswer(*_codes(version, octets))
    elif first == _UNSUBACK:
        answer = UnsubscribeAnswer(*_codes(version, octets))
    elif first == _PINGRESP:
        answer = PingAnswer()
    elif first == _DISCONNECT and version is Version.V5:
        answer = _farewell(octets)
    else:
        raise MalformedFrameError(f"a broker sends no frame that begins with {first:#04x}")
    if octets.left:
        raise MalformedFrameError("a frame is longer than its content")
    return answer


def _connect_answer(version: Version, octets: Octets, *, lasting: bool) -> ConnectAnswer:
    if version is Version.V5 and octets.left == _OLD_CONNACK_BYTES:
        octets.raw(octets.left)
        return ConnectAnswer(UNACCEPTABLE_VERSION)  # whatever the code: only older brokers answer so
    flags, code = octets.one(), octets.one()
    if flags & ~_SESSION_PRESENT or (flags and code == 0 and not lasting):
        # Messages of an earlier session would come with numbers that this one gives to others.
        raise MalformedFrameError("the broker continues a session, though a new one was asked for")
    properties = _read_properties(version, octets)
    receive_maximum = properties.get(Property.RECEIVE_MAXIMUM, RECEIVE_MAXIMUM)
    largest = properties.get(Property.MAXIMUM_PACKET_SIZE, LARGEST_LENGTH)
    if receive_maximum == 0 or largest == 0:
        raise MalformedFrameError("the broker takes no messages")
    return ConnectAnswer(
        code,
        receive_maximum,
        largest,
        properties.get(Property.SERVER_KEEP_ALIVE),
        properties.get(Property.REASON_STRING, ""),
        properties.get(Property.MAXIMUM_QOS, 2),
        bool(properties.get(Property.RETAIN_AVAILABLE, 1)),
        bool(flags) and code == 0,
        properties.get(Property.SESSION_EXPIRY),
    )


def _publish_answer(version: Version, octets: Octets) -> PublishAnswer:
    number, code = octets.two(), 0
    if version is Version.V5 and octets.left:
        code = octets.one()
        if octets.left:
            read_properties(octets)
    return PublishAnswer(number, code)


def _codes(version: Version, octets: Octets) -> tuple[int, tuple[int, ...]]:
    number = octets.two()
    _read_properties(version, octets)
    return number, tuple(octets.raw(octets.left))


def _farewell(octets: Octets) -> Farewell:
    code = octets.one() if octets.left else 0
    properties = read_properties(octets) if octets.left else NO_PROPERTIES
    return Farewell(code, properties.get(Property.REASON_STRING, ""))


def _read_properties(version: Version, octets: Octets) -> Properties:
    return read_properties(octets) if version is Version.V5 else NO_PROPERTIES
