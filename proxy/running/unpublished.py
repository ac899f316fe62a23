"""What the broker lacks of a proxy's catalog, reports and state, when it is due, and in which order it is published.

The broker retains an offer for each stream, an entry for each mote, and a report for each stream with demands
that are rejected; the proxy's clock, the report of its spool and requests for pieces of demands are not retained::

    round     offers | clock, waits, spool | reports | requests | removed entries | entries
              one message at a time, made when its turn comes; the next one when it has been published

A lost connection ends a round: what it has not published is due in the next. After a new connection everything is due
again, as the broker may have lost it, or fallen back to an older state: entries are removed again, too. A proxy that
starts again begins with all motes that it ever had, and gives up those of other proxies once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from protocols.mqtt.messages import Message
from protocols.wire import topics
from protocols.wire.catalog import ProxyClock, ProxySpool, ProxyWaits, StreamOffer
from protocols.wire.demands import RefusedDemand, demand_report
from protocols.wire.frames import VERSION, encode
from protocols.wire.streams import StreamSchema
from proxy.fleet.demand_assembly import DemandAssemblies
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


@dataclass(slots=True)
class EntrySchedule:
    """The schedule of all entries of a proxy.

    Parameters
    ----------
    changed_interval_us
        At least this long between two entries of a mote.
    counters_interval_us
        The same if only counters have changed.
    """

    changed_interval_us: int
    counters_interval_us: int
    _published_us: dict[str, int] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _counted: set[str] = field(default_factory=set)

    def note(self, mote: str, *, changed: bool) -> None:
        """Note that an entry is new; `changed` if more than its counters has changed."""
        (self._changed if changed else self._counted).add(mote)

    def counted(self, motes: Iterable[str]) -> None:
        """Note that counters of motes have changed."""
        self._counted.update(motes)

    def forget_published(self) -> None:
        """Schedule all entries again: the broker may have lost them."""
        self._changed.update(self._published_us)

    def due(self, now_us: int) -> list[str]:
        """Return the motes whose entries are due, in order of their names, and mark them as published."""
        found = [mote for mote in self._changed if self._ready(mote, now_us, self.changed_interval_us)]
        found += [
            mote
            for mote in self._counted - self._changed
            if self._ready(mote, now_us, max(self.changed_interval_us, self.counters_interval_us))
        ]
        for mote in found:
            self._published_us[mote] = now_us
            self._changed.discard(mote)
            self._counted.discard(mote)
        found.sort()  # a set has another order in each process: a replay would publish otherwise
        return found

    def _ready(self, mote: str, now_us: int, interval_us: int) -> bool:
        published_us = self._published_us.get(mote)
        return published_us is None or now_us - published_us >= interval_us


CLOCK_EVERY_US: Final = 10_000_000
"""How often the proxy publishes its clock, what its streams wait for, and how much waits in its spool."""

MOST_FORMER: Final = 10_000
"""Motes that were given up, latest first, whose entries are removed again after a new connection."""


class Kind(Enum):
    """What is published."""

    OFFER = "offer"
    CLOCK = "clock"
    WAITS = "waits"
    REPORT = "report"
    REQUEST = "request"
    REMOVAL = "removal"
    ENTRY = "entry"


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish a message.

    Parameters
    ----------
    kind, name
        What it is about: a stream, or a mote.
    message
        The message.
    connection
        The number of the connection for which it was made.
    schema
        Of an offer.
    """

    kind: Kind
    name: str
    message: Message
    connection: int
    schema: StreamSchema | None = None


@dataclass(frozen=True, slots=True)
class PublishSpoolReport:
    """Publish a report of how much waits in the spool, which the disk knows."""


Publication = Publish | PublishSpoolReport
_Stage = Callable[[int, int], list[Publication]]


class Unpublished:
    """What the broker lacks of one proxy.

    Parameters
    ----------
    proxy
        Its name.
    fleet
        Its motes and streams.
    demands
        Which pieces of demands are missing.
    entries
        When entries of motes are due.
    now_us
        Radio clock now.
    """

    def __init__(
        self, proxy: str, fleet: Fleet, demands: DemandAssemblies, entries: EntrySchedule, *, now_us: int
    ) -> None:
        self.entries = entries
        self._proxy = proxy
        self._fleet = fleet
        self._demands = demands
        self._reports = DemandReporting(proxy, fleet)
        self._offers: dict[str, StreamSchema] = {}
        self._unoffered: set[str] = set()
        self._removed: set[str] = set()
        self._former: dict[str, None] = {}
        """Motes that were given up, the latest one last."""
        self._clock_us = now_us - CLOCK_EVERY_US
        self._spool_due = False
        self._connection = 0
        self._due: list[str] = []
        """Motes whose entries are published in this round, the last one first."""
        self._next: deque[Publication] = deque()
        self._stages: deque[_Stage] = deque()

    def connected(self) -> None:
        """Note a new connection: the broker may have lost everything, or kept what an earlier run published."""
        self._connection += 1
        self.entries.forget_published()
        self._reports.forget_published()
        self._unoffered.update(self._offers)
        self._removed.update(self._former)

    def offered(self, schema: StreamSchema) -> None:
        """Note that a stream is offered, with this schema from now on."""
        self._offers[schema.name] = schema
        self._unoffered.add(schema.name)

    def removed(self, mote: str) -> None:
        """Note that another proxy has a mote, so that its entry is to be removed."""
        self._removed.add(mote)
        self._former.pop(mote, None)
        self._former[mote] = None
        if len(self._former) > MOST_FORMER:
            del self._former[next(iter(self._former))]

    def offer(self) -> Publish | None:
        """Return the next offer; None if the broker has all of them."""
        if not self._unoffered:
            return None
        name = min(self._unoffered)
        schema = self._offers[name]
        payload = encode(StreamOffer(VERSION, self._proxy, schema))
        message = Message(topics.stream_offer(self._proxy, name), payload, retain=True)
        return Publish(Kind.OFFER, name, message, self._connection, schema)

    def begin_round(self, radio_us: int) -> None:
        """Begin a round, after the end of the one before."""
        self._due = self.entries.due(radio_us)
        self._spool_due = False
        self._next.clear()
        self._stages = deque(
            (self._of_offers, self._of_state, self._of_reports, self._of_requests, self._of_removals, self._of_entries)
        )

    def next(self, radio_us: int, real_us: int) -> Publication | None:
        """Return what to publish next in this round; None at its end. Times are those of the two clocks."""
        while self._stages and not self._next:
            self._next.extend(self._stages[0](radio_us, real_us))
            if not self._next:
                self._stages.popleft()
        return self._next.popleft() if self._next else None

    def published(self, publication: Publication) -> None:
        """Note that the broker has acknowledged a publication."""
        if isinstance(publication, PublishSpoolReport):
            return
        current = publication.connection == self._connection  # else the broker may have lost it already
        match publication.kind:
            case Kind.OFFER:
                # Otherwise another schema has been announced meanwhile.
                if current and self._offers[publication.name] == publication.schema:
                    self._unoffered.discard(publication.name)
            case Kind.REPORT:
                if current:
                    self._reports.published(publication.message)
            case Kind.REMOVAL:
                if current:
                    self._removed.discard(publication.name)
            case Kind.ENTRY:
                self._due.pop()
            case _:
                pass

    def failed(self) -> None:
        """Note that the connection was lost before a publication was acknowledged: the round has ended."""
        for mote in self._due:
            self.entries.note(mote, changed=True)
        self._due = []
        self._next.clear()
        self._stages.clear()

    def _publish(self, kind: Kind, name: str, message: Message) -> Publish:
        return Publish(kind, name, message, self._connection)

    def _of_offers(self, _: int, __: int) -> list[Publication]:
        offer = self.offer()
        return [] if offer is None else [offer]

    def _of_state(self, radio_us: int, real_us: int) -> list[Publication]:
        if self._spool_due:
            self._spool_due = False
            return [PublishSpoolReport()]
        if radio_us - self._clock_us < CLOCK_EVERY_US:
            return []
        self._clock_us, self._spool_due = radio_us, True
        # Quality of service 0: a late message is useless.
        clock = encode(ProxyClock(VERSION, self._proxy, real_us))
        waits = encode(ProxyWaits(VERSION, self._proxy, self._fleet.stream_waits(radio_us)))
        return [
            self._publish(Kind.CLOCK, "", Message(topics.proxy_clock(self._proxy), clock, qos=0)),
            self._publish(Kind.WAITS, "", Message(topics.proxy_waits(self._proxy), waits, qos=0)),
        ]

    def _of_reports(self, _: int, __: int) -> list[Publication]:
        return [self._publish(Kind.REPORT, each.topic, each) for each in self._reports.due()]

    def _of_requests(self, radio_us: int, _: int) -> list[Publication]:
        found: list[Publication] = []
        for each in self._demands.requests(radio_us):
            # Quality of service 0: it is repeated for as long as pieces are missing.
            message = Message(topics.demand_request(each.proxy, each.stream), encode(each), qos=0)
            found.append(self._publish(Kind.REQUEST, each.stream, message))
        return found

    def _of_removals(self, _: int, __: int) -> list[Publication]:
        while self._removed:
            mote = min(self._removed)
            if not self._fleet.has(mote):
                message = Message(topics.mote_entry(self._proxy, mote), b"", retain=True)
                return [self._publish(Kind.REMOVAL, mote, message)]
            self._removed.discard(mote)
            self._former.pop(mote, None)
        return []

    def _of_entries(self, _: int, __: int) -> list[Publication]:
        while self._due:
            mote = self._due[-1]
            entry = self._fleet.entry(mote)
            if entry is not None:
                message = Message(topics.mote_entry(self._proxy, mote), encode(entry), retain=True)
                return [self._publish(Kind.ENTRY, mote, message)]
            self._due.pop()
        return []


def spool_report(
    proxy: str, *, batches: int, size_bytes: int, file_bytes: int | None = None, since_us: int | None, now_us: int
) -> Message:
    """Return the report of how much waits in the spool.

    Parameters
    ----------
    proxy
        Its proxy.
    batches, size_bytes
        How much waits.
    file_bytes
        Size of the files that hold it.
    since_us, now_us
        Since when, None if that is unknown or nothing waits; and the present, both in real time.
    """
    waits_us = None if since_us is None else max(0, now_us - since_us)
    report = ProxySpool(VERSION, proxy, batches, size_bytes, waits_us, file_bytes)
    return Message(topics.proxy_spool(proxy), encode(report), qos=0)  # quality of service 0: the next one replaces it
