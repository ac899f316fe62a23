"""Which broker to start, and whether that is safe: decisions as functions of data."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from proxy.broker.errors import EngineLimitError, EngineMissingError, UnsafeListenerError

if TYPE_CHECKING:
    from pathlib import Path
from enum import StrEnum

from protocols.mqtt.link import BrokerAddress

WantedEngine: TypeAlias = Literal["auto", "mosquitto", "amqtt"]
"""Engines that a user can request; "auto" prefers Mosquitto."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What the broker should be.

    Parameters
    ----------
    host
        Address to listen on.
    port
        TCP port; 0 for a free one.
    password_file
        Users and passwords as written by ``mosquitto_passwd``; None lets every client in.
    persist
        Folder that keeps sessions and retained messages over a restart; None keeps them in memory.
    """

    host: str = "127.0.0.1"
    port: int = 0
    password_file: Path | None = None
    persist: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An engine, why it was chosen, and the program to run (None: it runs inside this process)."""

    engine: Engine
    reason: str
    program: Path | None = None


def choose_engine(wanted: WantedEngine, settings: BrokerSettings, program: Path | None) -> Choice:
    """Decide on an engine.

    Parameters
    ----------
    wanted
        The user's request.
    settings
        What the broker should be.
    program
        The Mosquitto program of this machine, None where there is none.

    Raises
    ------
    UnsafeListenerError
        Other machines could reach it without a password.
    EngineMissingError
        The request needs Mosquitto and there is none.
    EngineLimitError
        amqtt cannot fulfil the request.
    """
    if settings.password_file is None and not is_loopback(settings.host):
        raise UnsafeListenerError(settings.host)
    options = [
        name
        for name, value in (("--password-file", settings.password_file), ("--persist", settings.persist))
        if value is not None
    ]
    if wanted == "amqtt":
        if options:
            raise EngineLimitError(options[0])
        return Choice(engine=Engine.AMQTT, reason="requested")
    if program is not None:
        reason = "requested" if wanted == "mosquitto" else f"installed as {program}"
        return Choice(engine=Engine.MOSQUITTO, reason=reason, program=program)
    if wanted == "mosquitto":
        raise EngineMissingError("--engine mosquitto")
    if options:
        raise EngineMissingError(options[0])
    return Choice(engine=Engine.AMQTT, reason="Mosquitto is not installed")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Engine(StrEnum):
    """A program that can be Fjord's broker."""

    MOSQUITTO = "mosquitto"
    AMQTT = "amqtt"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBroker(BrokerAddress):
    """The address of a broker that runs on this machine and accepts connections.

    Parameters
    ----------
    engine
        The program that runs; amqtt supports MQTT 3.1.1 only.
    reason
        Why this engine was chosen, in a few words for the user.
    """

    engine: Engine
    reason: str
