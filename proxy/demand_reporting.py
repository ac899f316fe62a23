"""When a proxy says which demands it leaves out: whenever that changes, and after each connect."""

from __future__ import annotations

from protocols import topics
from protocols.demand_reports import demand_report
from protocols.demands import RefusedDemand
from protocols.frames import encode
from protocols.mqtt import Message
from proxy.fleet import Fleet


class DemandReporting:
    """The reports of one proxy, retained: one for each stream of which demands are left out.

    Parameters
    ----------
    proxy
        Its name.
    fleet
        Knows what is left out.
    """

    def __init__(self, proxy: str, fleet: Fleet) -> None:
        self._proxy = proxy
        self._fleet = fleet
        self._published: dict[str, tuple[int, tuple[RefusedDemand, ...]]] = {}
        self._under_way: dict[str, tuple[str, tuple[int, tuple[RefusedDemand, ...]]]] = {}

    def forget_published(self) -> None:
        """Say everything again: the broker may have forgotten, or kept what an earlier life of the proxy said."""
        self._published.clear()

    def due(self) -> list[Message]:
        """Return what is to be published; an empty message takes a report back."""
        found: list[Message] = []
        for stream, state in self._fleet.streams.items():
            refused = state.refused
            now = (state.demand_epoch if refused else 0, refused)
            if self._published.get(stream) == now:
                continue
            topic = topics.demand_report(self._proxy, stream)
            report = encode(demand_report(self._proxy, stream, *now)) if refused else b""
            self._under_way[topic] = (stream, now)
            found.append(Message(topic, report, retain=True))
        return found

    def published(self, message: Message) -> None:
        """Take note that a message has been published."""
        stream, now = self._under_way.pop(message.topic)
        self._published[stream] = now
