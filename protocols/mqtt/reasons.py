"""Why a broker refuses: the codes of MQTT 3.1.1 (section 3.2.2.3) and MQTT 5 (section 2.4), as texts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
