"""Proxies' reports of the demands that they do not send to sensors: for which queries, and why.

A core without I/O: messages in, state out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from protocols.errors import FrameError
from protocols.event_log import get_logger
from protocols.mqtt.link import Message, Subscription
from protocols.wire import topics
from protocols.wire.demand_reports import DemandReport, decode_demand_report

log = get_logger(__name__)

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
