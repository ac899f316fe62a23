"""Demands are published: the pieces that changed, then the head; what proxies lack of them, and what they reject.

**Proxies' requests for pieces of demands that they still lack: of which streams, and which ones.**

A core without I/O: messages in, state out. The same piece is published once, however many proxies ask for it.

**Proxies' reports of the demands that they do not send to sensors: for which queries, and why.**

A core without I/O: messages in, state out.

**Demands on streams are published: the pieces that have changed, then the head that names them.**

What is published next is decided apart (:mod:`cluster.service.publishing.published_demands`). What cannot be
published now is on the next connection: demands are state, not events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cluster.service.publishing.published_demands import UnpublishedDemands
from protocols.errors import FrameError
from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message, Subscription
from protocols.wire import topics
from protocols.wire.demands import DemandReport, decode_demand_report, decode_demand_request

if TYPE_CHECKING:
    from cluster.service.publishing.published_demands import PublishedDemands
    from protocols.wire.demands import StreamDemand

log = get_logger(__name__)

MOST_STREAMS = 1_000
"""Streams of which pieces may be outstanding; further requests are rejected until some are answered."""


class DemandRequests:
    """The requests that have not been answered."""

    subscriptions = (Subscription(topics.demand_request("+", "+")),)

    def __init__(self) -> None:
        self._outstanding: dict[str, set[int]] = {}
        self.rejected: dict[str, int] = {}
        """Messages that were rejected, by reason."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._outstanding)

    def handle(self, message: Message, topic: topics.ParsedTopic) -> None:
        """Handle a message on one of :attr:`subscriptions`; bad ones are rejected and counted, others ignored."""
        if topic.kind != "demand_request":
            return
        try:
            self._note(topic.names, message.payload)
        except FrameError as error:
            self.rejected[error.reason] = self.rejected.get(error.reason, 0) + 1
            log.warning("request rejected", topic=message.topic, reason=error.reason, error=str(error))

    def take(self) -> Mapping[str, frozenset[int]]:
        """Remove and return the pieces that are outstanding, by stream."""
        found = {stream: frozenset(pieces) for stream, pieces in self._outstanding.items()}
        self._outstanding.clear()
        return found

    def _note(self, names: tuple[str, ...], payload: bytes) -> None:
        request = decode_demand_request(payload)
        if (request.proxy, request.stream) != names:
            raise FrameError("identity", f"request of {request.proxy}/{request.stream} came for {'/'.join(names)}")
        if request.stream not in self._outstanding and len(self._outstanding) >= MOST_STREAMS:
            raise FrameError("full", f"there are requests about {MOST_STREAMS:,} streams already")
        self._outstanding.setdefault(request.stream, set()).update(request.pieces)


MOST_REPORTS = 10_000
MOST_NAMED = 8
"""Queries in the text about one stream of a proxy."""
EVERY_QUERY = "*"


class DemandReports:
    """The newest report of every proxy and stream.

    Parameters
    ----------
    most
        Further ones are rejected and counted.
    """

    subscriptions = (Subscription(topics.demand_report("+", "+")),)

    def __init__(self, most: int = MOST_REPORTS) -> None:
        self._most = most
        self._reports: dict[tuple[str, str], DemandReport] = {}
        self.rejected: dict[str, int] = {}
        """Messages that were rejected, by reason."""

    def connected(self) -> None:
        """Forget all reports: the broker is about to send the retained ones."""
        self._reports.clear()

    def handle(self, message: Message, topic: topics.ParsedTopic) -> None:
        """Handle a message on one of :attr:`subscriptions`; bad ones are rejected and counted, others ignored."""
        if topic.kind != "demand_report":
            return
        proxy, stream = topic.names
        try:
            self._store((proxy, stream), message.payload)
        except FrameError as error:
            self.rejected[error.reason] = self.rejected.get(error.reason, 0) + 1
            log.warning("report rejected", topic=message.topic, reason=error.reason, error=str(error))

    def of_query(self, query: str, streams: Collection[str]) -> list[dict[str, Any]]:
        """Return, by proxy, why a query's demands on these streams are not sent to its sensors."""
        return [
            {"stream": stream, "proxy": proxy, "reason": refusal.reason}
            for (proxy, stream), report in sorted(self._reports.items())
            if stream in streams
            for refusal in report.refused
            if refusal.query in (query, EVERY_QUERY)
        ]

    def texts(self) -> Mapping[tuple[str, str], str]:
        """Return, by proxy and stream, the queries whose demands are not sent to its sensors, and why."""
        return {key: _text_of(report) for key, report in list(self._reports.items())}

    def _store(self, key: tuple[str, str], payload: bytes) -> None:
        if not payload:
            self._reports.pop(key, None)
            return
        report = decode_demand_report(payload)
        if (report.proxy, report.stream) != key:
            raise FrameError("identity", f"report of {report.proxy}/{report.stream} came for {'/'.join(key)}")
        if key not in self._reports and len(self._reports) >= self._most:
            raise FrameError("full", f"there are {self._most:,} reports already")
        self._reports[key] = report


def _text_of(report: DemandReport) -> str:
    shown = [
        refusal.reason if refusal.query == EVERY_QUERY else f"{refusal.query}: {refusal.reason}"
        for refusal in report.refused[:MOST_NAMED]
    ]
    more = len(report.refused) - len(shown) + report.more
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])


ANSWER_SECONDS = 1.0
"""Requests are answered this far apart, however many there are."""


class Publishes(Protocol):
    """A link to a broker."""

    async def publish(self, message: Message) -> None:
        """As that of :class:`protocols.mqtt.link.MqttLink`."""


class DemandPublication:
    """Publishes the demands on all streams.

    Parameters
    ----------
    demands
        What is demanded.
    link
        Where it is published.
    requests
        Pieces that proxies lack.
    empty
        Returns the demand on a stream without those of queries.
    """

    def __init__(
        self,
        demands: PublishedDemands,
        link: Publishes,
        requests: DemandRequests,
        empty: Callable[[str], StreamDemand],
    ) -> None:
        self._unpublished = UnpublishedDemands(demands, empty)
        self._link = link
        self._requests = requests
        # So that no head is published after a newer one.
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Answer requests, until cancelled."""
        while True:
            await asyncio.sleep(ANSWER_SECONDS)
            await self.answer()

    async def answer(self) -> None:
        """Publish the pieces that proxies lack once more."""
        await self.publish(self._unpublished.requested(self._requests.take()))

    async def publish(self, streams: Collection[str]) -> None:
        """Publish what has changed in the demands on some streams."""
        async with self._turn:
            self._unpublished.begin(streams)
            while (each := self._unpublished.next()) is not None:
                try:
                    await self._link.publish(each.message)
                except LinkError as error:
                    log.warning("demand waits for the broker", stream=each.stream, error=str(error))
                    self._unpublished.failed(each)
                else:
                    self._unpublished.published(each)

    async def publish_again(self, streams: Collection[str]) -> None:
        """Publish the demands on some streams whole: the broker may have lost them."""
        self._unpublished.connected(streams)
        await self.publish(streams)
