"""Reports of the demands that a proxy does not answer: on every change, and after each connect. Pure."""

from __future__ import annotations

from protocols.mqtt.messages import Message
from protocols.wire import topics
from protocols.wire.demand_reports import demand_report
from protocols.wire.demands import RefusedDemand
from protocols.wire.frames import encode
from proxy.fleet.fleet import Fleet


class DemandReporting:
    """The reports of one proxy, retained: one for each stream with rejected demands.

    Parameters
    ----------
    proxy
        Its name.
    fleet
        Has the rejected demands.
    """

    def __init__(self, proxy: str, fleet: Fleet) -> None:
        self._proxy = proxy
        self._fleet = fleet
        self._published: dict[str, tuple[int, tuple[RefusedDemand, ...]]] = {}
        self._under_way: dict[str, tuple[str, tuple[int, tuple[RefusedDemand, ...]]]] = {}

    def forget_published(self) -> None:
        """Publish all reports again: the broker may have lost them, or kept those of an earlier run of the proxy."""
        self._published.clear()

    def due(self) -> list[Message]:
        """Return the messages to publish; an empty one removes a report."""
        found: list[Message] = []
        for stream, state in self._fleet.streams.items():
            rejected = state.rejected_demands
            now = (state.demand_epoch if rejected else 0, rejected)
            if self._published.get(stream) == now:
                continue
            topic = topics.demand_report(self._proxy, stream)
            report = encode(demand_report(self._proxy, stream, *now)) if rejected else b""
            self._under_way[topic] = (stream, now)
            found.append(Message(topic, report, retain=True))
        return found

    def published(self, message: Message) -> None:
        """Note that a message has been published."""
        stream, now = self._under_way.pop(message.topic)
        self._published[stream] = now
