"""Messages, subscriptions and addresses of MQTT, shared by :mod:`protocols.mqtt.link` and its client library."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

import msgspec

from protocols.errors import FjordError
from protocols.security.tls import TlsFiles

DEFAULT_PORT, DEFAULT_TLS_PORT = 1883, 8883


class Version(IntEnum):
    """Versions of MQTT, by their numbers on the wire."""

    V3_1_1 = 4
    V5 = 5

    def __str__(self) -> str:
        return "3.1.1" if self is Version.V3_1_1 else "5"


VERSIONS = (Version.V5, Version.V3_1_1)
"""The newest first."""


class LinkError(FjordError):
    """A message could not be handed to the broker."""


class VersionRefusedError(LinkError):
    """The broker does not speak a version of MQTT, or did not answer, so that it may not."""


class ClientNameSharedError(FjordError):
    """Another client keeps taking the connection over by connecting under the same name; a link ends with it.

    Parameters
    ----------
    address
        The broker.
    client_id
        The name.
    """

    def __init__(self, address: BrokerAddress, client_id: str) -> None:
        super().__init__(
            f"another client of the name {client_id!r} takes the connection to the broker at {address} again and again",
            hint="a second process of the same name runs, perhaps on a copy of this data folder: stop one of them, or "
            "give it a --name and a fresh --data of its own",
        )
        self.client_id = client_id


class BrokenOffError(LinkError):
    """The connection broke before the broker had acknowledged all of many messages.

    Parameters
    ----------
    message
        What happened.
    acknowledged
        How many, from the first on, it had acknowledged.
    """

    def __init__(self, message: str, acknowledged: int) -> None:
        super().__init__(message)
        self.acknowledged = acknowledged


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Address of the broker and credentials. The password never appears in a representation or a log.

    Parameters
    ----------
    host, port
        Where it listens.
    username, password
        Of this client; None for none.
    tls
        Files for TLS; None for a connection without.
    password_file
        From which the password was read; None if it was not.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None
    password_file: Path | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message to publish, or one that was received. One is made for each packet, so it has to be cheap.

    Parameters
    ----------
    topic, payload
        What is sent, and where.
    qos
        Quality of service: 0 or 1.
    retain
        Of a message to publish: whether the broker keeps it for later subscribers. Of one that was received: whether
        it was kept.
    expiry_seconds
        The broker discards the message if it could not be delivered for so long; None for never. Only in MQTT 5: with
        an older broker it has no effect.
    user_properties
        Names and values for the receiver's use, also in MQTT 5 only.
    refusal
        Of a message that was received: why it is refused, as its seal is not right; empty for one that is not.
    again
        Of a message that was received: whether the broker had sent it before, and got no acknowledgement (DUP).
    number
        Of a message of a session that outlives its connections: by which it is acknowledged once it is on disk. The
        lower 16 bits are the number that the broker gave it, the others say on which connection it came. Else 0.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    expiry_seconds: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    refusal: str = ""
    again: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class LastingSession:
    """A session that outlives its connections: the broker keeps messages of quality of service 1 for it meanwhile.

    Its messages are acknowledged by their receiver, with :meth:`protocols.mqtt.link.MqttLink.acknowledge`.

    Parameters
    ----------
    expiry_seconds
        How long the broker keeps it without a connection. Only in MQTT 5: an older broker decides by itself.
    in_flight
        Messages that the broker may send before the first of them is acknowledged. Likewise.
    versions
        Of MQTT in which the session is to last; in others it ends with the connection, and messages are acknowledged as
        soon as they were handled. Once a session has lasted in one of them, it does so in all.
    former
        Topic filters of subscriptions that it may have from before, and that are to end.
    """

    expiry_seconds: int
    in_flight: int = 5_000
    versions: tuple[Version, ...] = VERSIONS
    former: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic filter and its quality of service."""

    filter: str
    qos: int = 1


class Seals(Protocol):
    """What a link does to messages besides carrying them: it seals what is published, and opens what is received."""

    def connecting(self) -> None:
        """Note that a connection begins, before anything is sealed for it."""

    def seal(self, message: Message) -> Message:
        """Return a message as it is published."""
        ...

    def seal_will(self, message: Message) -> Message:
        """Return the will of a connection, which is published after everything else."""
        ...

    def open(self, message: Message) -> Message:
        """Return a message that was received, with the reason if it is refused."""
        ...
