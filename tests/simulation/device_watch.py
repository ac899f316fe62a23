"""Sees which messages of devices, and which demands, a broker sends to proxies, and when they have them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from protocols.wire import topics
from tests.simulation.network import Wire

if TYPE_CHECKING:
    from protocols.mqtt.messages import Message
    from tests.simulation.broker import Session
    from tests.simulation.device_log import DeviceLog

_DEMANDS = topics.demand("x").rpartition("/")[0] + "/"


class DeviceWatch:
    """Watches a broker.

    Parameters
    ----------
    log
        Where all is noted.
    """

    def __init__(self, log: DeviceLog) -> None:
        self._log = log

    def sent(self, session: Session, message: Message, *, again: bool) -> None:
        """Note a message to a proxy, and when its process has it."""
        wire = session.transport
        if not isinstance(wire, Wire):
            return
        process = wire.other.owner
        if message.topic.startswith(_DEMANDS) and "/" not in message.topic[len(_DEMANDS) :]:
            if process.host.name.startswith("p"):
                wire.when_handed(partial(self._log.demand_handed, message, process))
            return
        delivery = self._log.delivering(message, process, again=again)
        if delivery is not None:
            wire.when_handed(partial(self._log.handed, delivery))

    def waits(self, message: Message) -> None:
        """Note a message that a session which outlives its connections has taken up; a retained one is old."""
        if not message.retain:
            self._log.kept(message)

    def forgotten(self, message: Message) -> None:
        """Note a message that such a session has lost."""
        self._log.forgotten(message)
