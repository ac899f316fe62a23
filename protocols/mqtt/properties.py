"""Properties of MQTT 5 (its section 2.2.2): what a frame says beside its content. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, TypeAlias

from protocols.mqtt.octets import (
    MalformedFrameError,
    Octets,
    binary_octets,
    four_octets,
    length_octets,
    text_octets,
    two_octets,
)


class Property(IntEnum):
    """All properties, by their numbers on the wire."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_AVAILABLE = 0x2A


Properties: TypeAlias = Mapping[Property, Any]
"""A value each; a list of values of those that may be repeated."""

REPEATED = frozenset({Property.USER_PROPERTY, Property.SUBSCRIPTION_ID})
NO_PROPERTIES: Properties = MappingProxyType({})


def _pair_octets(pair: tuple[str, str]) -> bytes:
    return text_octets(pair[0]) + text_octets(pair[1])


def _pair(octets: Octets) -> tuple[str, str]:
    return octets.text(), octets.text()


_Kind: TypeAlias = "tuple[Callable[[Octets], Any], Callable[[Any], bytes]]"
_ONE: _Kind = (Octets.one, lambda number: bytes((number,)))
_TWO: _Kind = (Octets.two, two_octets)
_FOUR: _Kind = (Octets.four, four_octets)
_LENGTH: _Kind = (Octets.length, length_octets)
_BINARY: _Kind = (Octets.binary, binary_octets)
_TEXT: _Kind = (Octets.text, text_octets)
_KINDS: Mapping[Property, _Kind] = MappingProxyType(
    {
        **dict.fromkeys(Property, _ONE),
        **dict.fromkeys(
            (
                Property.SERVER_KEEP_ALIVE,
                Property.RECEIVE_MAXIMUM,
                Property.TOPIC_ALIAS_MAXIMUM,
                Property.TOPIC_ALIAS,
            ),
            _TWO,
        ),
        **dict.fromkeys(
            (
                Property.MESSAGE_EXPIRY,
                Property.SESSION_EXPIRY,
                Property.WILL_DELAY,
                Property.MAXIMUM_PACKET_SIZE,
            ),
            _FOUR,
        ),
        Property.SUBSCRIPTION_ID: _LENGTH,
        **dict.fromkeys((Property.CORRELATION_DATA, Property.AUTHENTICATION_DATA), _BINARY),
        **dict.fromkeys(
            (
                Property.CONTENT_TYPE,
                Property.RESPONSE_TOPIC,
                Property.ASSIGNED_CLIENT_ID,
                Property.AUTHENTICATION_METHOD,
                Property.RESPONSE_INFORMATION,
                Property.SERVER_REFERENCE,
                Property.REASON_STRING,
            ),
            _TEXT,
        ),
        Property.USER_PROPERTY: (_pair, _pair_octets),
    }
)


def write_properties(properties: Properties) -> bytes:
    """Return properties as they are written, with their length before them.

    Raises
    ------
    UnsendableError
        If a text is too long.

    Examples
    --------
    >>> write_properties({Property.MESSAGE_EXPIRY: 60}).hex()
    '05020000003c'
    """
    found = bytearray()
    for name, value in properties.items():
        write = _KINDS[name][1]
        for each in value if name in REPEATED else (value,):
            found.append(name)
            found += write(each)
    return length_octets(len(found)) + bytes(found)


def read_properties(octets: Octets) -> Properties:
    """Read properties, with their length before them.

    Raises
    ------
    MalformedFrameError
        If there is one that MQTT does not know, one is repeated that must not be, or is not complete.
    """
    length = octets.length()
    if length == 0:
        return NO_PROPERTIES
    if length > octets.left:
        raise MalformedFrameError("a frame is shorter than its properties")
    end = octets.place + length
    found: dict[Property, Any] = {}
    while octets.place < end:
        number = octets.one()
        try:
            name = Property(number)
        except ValueError as error:
            raise MalformedFrameError(f"MQTT has no property {number}") from error
        value = _KINDS[name][0](octets)
        if name in REPEATED:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise MalformedFrameError(f"a property is repeated: {name.name.lower()}")
        else:
            found[name] = value
    if octets.place > end:
        raise MalformedFrameError("a property is longer than all properties")
    return found
