"""Where a broker of this machine listens and what it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from protocols.mqtt import BrokerAddress


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
        What the broker is; amqtt speaks MQTT 3.1.1 only.
    reason
        Why this engine was taken, in a few words for people.
    """

    engine: Engine
    reason: str
