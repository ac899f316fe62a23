"""Which batches are accepted, and how far a stream has come.

Pure. One :class:`StreamAdmission` per stream. Sequence numbers make delivery exactly once: a batch is accepted only if
it is the next of its proxy and epoch. The stream's low watermark is the minimum over the proxies that still send. A
proxy that has been silent for long is excluded, so that it does not stall the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heapreplace

from cluster.storage.stream_tables import ProxyPosition, StreamPosition

ANSWERS = 2
"""To batches of a lane that are not the next, in an interval. A proxy goes back when it has read one twice."""


class Verdict(Enum):
    """What to do with a batch."""

    ACCEPT = "accept"
    REPEATED = "repeated"
    """Stored already: acknowledge it again."""
    GAP = "gap"
    """Something before it is missing: acknowledge what is stored, so that the proxy sends again from there."""
    HOLD = "hold"
    """It does not fit the stream, or comes after one that does not: without an answer, the proxy keeps it."""


@dataclass(slots=True)
class _Lane:
    """One proxy and epoch: the highest sequence number stored, and the highest accepted, stored or not.

    `answers` counts those to batches that were not the next, since `answered_seconds`.
    """

    stored: int
    accepted: int
    answers: int = 0
    answered_seconds: float = 0.0


@dataclass(slots=True)
class _Proxy:
    position: ProxyPosition
    active_seconds: float
    """When it was last connected or sent something."""
    included: bool = True


@dataclass(slots=True)
class AdmissionCounters:
    """Counts of batches and rows since the ingest began."""

    accepted: int = 0
    repeated: int = 0
    gaps: int = 0
    held: int = 0
    deferred: int = 0
    """Left to their proxies because too much waited for a commit."""
    rejected: int = 0
    rejected_rows: int = 0
    rows: int = 0
    late_rows: int = 0
    silent_proxies: int = 0
    lost_batches: int = 0
    """Lost: neither their proxies have them (acknowledged, or damaged in a spool) nor the table."""
    lost_versions: int = 0
    """Versions of the table that a plan or an offset names and that are gone."""


@dataclass(slots=True)
class StreamAdmission:
    """The admission of one stream.

    Parameters
    ----------
    position
        The stream's stored position, from its table.
    silence_seconds
        A proxy that has been silent for this long is excluded from the watermark until it is active again.
    """

    position: StreamPosition
    silence_seconds: float = 30.0
    counters: AdmissionCounters = field(default_factory=AdmissionCounters)
    _lanes: dict[tuple[str, str], _Lane] = field(default_factory=dict)
    _held: set[tuple[str, str]] = field(default_factory=set)
    _proxies: dict[str, _Proxy] = field(default_factory=dict)
    _watermark_us: int | None = None
    _latest_us: int | None = None
    _by_watermark: list[tuple[int, str]] = field(default_factory=list)
    """A heap of the sampling proxies that are waited for, each with a watermark that it has or had; empty if unknown.

    So a batch costs hardly more if there are many proxies.
    """

    def __post_init__(self) -> None:
        self._watermark_us = self.position.watermark_us

    @property
    def watermark_us(self) -> int | None:
        """The stream's low watermark with everything accepted so far; None before the first."""
        return self._watermark_us

    @property
    def next_us(self) -> int | None:
        """An instant after the stamps of everything accepted, stored or not; None before the first."""
        after = None if self._latest_us is None else self._latest_us + 1
        return max((mark for mark in (after, self._watermark_us) if mark is not None), default=None)

    def note_stamp(self, latest_us: int | None) -> None:
        """Note the latest stamp of rows that were accepted, or found in the table."""
        if latest_us is not None and (self._latest_us is None or latest_us > self._latest_us):
            self._latest_us = latest_us

    def expect_known_proxies(self, now_seconds: float) -> None:
        """Begin to wait for the proxies whose positions the table has."""
        self._by_watermark.clear()
        for name, position in self.position.proxies.items():
            self._proxies[name] = _Proxy(position, now_seconds)

    def has_lane(self, proxy: str, epoch: str) -> bool:
        """Return whether :meth:`open_lane` was called for a proxy and epoch."""
        return (proxy, epoch) in self._lanes

    def open_lane(self, proxy: str, epoch: str, stored: int) -> None:
        """Set the highest sequence number stored of a proxy and epoch."""
        self._lanes[proxy, epoch] = _Lane(stored, stored)

    def decide(self, proxy: str, epoch: str, sequence: int, *, fits: bool = True) -> Verdict:
        """Decide what to do with a batch of a known lane.

        Parameters
        ----------
        proxy, epoch
            The lane.
        sequence
            Of the batch.
        fits
            False if its samples cannot be stored while the stream is declared as now, but perhaps later.
        """
        lane = self._lanes[proxy, epoch]
        follows = sequence == lane.accepted + 1
        if follows and fits and not self._held:
            lane.accepted = sequence
            self.counters.accepted += 1
            return Verdict.ACCEPT
        if sequence <= lane.accepted:
            self.counters.repeated += 1
            return Verdict.REPEATED
        if (follows and not fits) or (not follows and (proxy, epoch) in self._held):
            self._held.add((proxy, epoch))
            self.counters.held += 1
            return Verdict.HOLD
        if not follows:
            self.counters.gaps += 1
            return Verdict.GAP
        self._held.discard((proxy, epoch))
        lane.accepted = sequence
        self.counters.accepted += 1
        return Verdict.ACCEPT

    def answers(self, proxy: str, epoch: str, now_seconds: float, interval_seconds: float) -> bool:
        """Return whether to answer a batch of a known lane that is not the next: not every one of many."""
        lane = self._lanes[proxy, epoch]
        if now_seconds - lane.answered_seconds >= interval_seconds:
            lane.answers, lane.answered_seconds = 0, now_seconds
        lane.answers += 1
        return lane.answers <= ANSWERS

    def resume(self, proxy: str, epoch: str, first: int) -> int:
        """Continue with a batch of a known lane, as earlier ones will never arrive; return how many are lost."""
        lane = self._lanes[proxy, epoch]
        lost = first - 1 - lane.accepted
        if lost <= 0:
            return 0
        lane.accepted = first - 1
        self._held.discard((proxy, epoch))
        return lost

    def holds(self, proxy: str) -> bool:
        """Return whether batches of a proxy wait in its spool until they fit the stream."""
        return bool(self._held) and any(held == proxy for held, _ in self._held)

    def stored(self, proxy: str, epoch: str) -> int:
        """Return the highest sequence number of the lane that is stored for good."""
        return self._lanes[proxy, epoch].stored

    def advance(self, proxy: str, watermark_us: int, *, sampling: bool, now_seconds: float) -> int | None:
        """Note how far a proxy has come with an accepted batch; return the stream's new low watermark."""
        known = self._proxies.get(proxy)
        if known is None:
            self._proxies[proxy] = _Proxy(ProxyPosition(watermark_us, sampling), now_seconds)
            return self._recompute()
        waited_for = known.included and known.position.sampling
        known.active_seconds, known.included = now_seconds, True
        known.position = ProxyPosition(max(watermark_us, known.position.watermark_us), sampling)
        return self._raise(self._lowest()) if waited_for and sampling and self._by_watermark else self._recompute()

    def proxy_active(self, proxy: str, now_seconds: float) -> None:
        """Note that a proxy is alive, though it may have sent nothing new.

        A proxy whose batches are held counts as silent: the watermark does not wait for it.
        """
        known = self._proxies.get(proxy)
        if known is not None and not self.holds(proxy):
            known.active_seconds = now_seconds

    def exclude_silent_proxies(self, now_seconds: float) -> bool:
        """Exclude proxies that have been silent for too long; return whether the watermark moved."""
        before = self._watermark_us
        for known in self._proxies.values():
            if known.included and now_seconds - known.active_seconds > self.silence_seconds:
                known.included = False
                self.counters.silent_proxies += 1
        if any(known.included for known in self._proxies.values()):
            self._recompute()
        return self._watermark_us != before

    def committed(self, sequences: Mapping[tuple[str, str], int], position: StreamPosition) -> None:
        """Note that everything up to these sequence numbers, and this position, is stored for good."""
        for lane, sequence in sequences.items():
            self._lanes[lane].stored = sequence
        self.position = position

    def roll_back(self) -> None:
        """Return to the last commit after a failed one: what is not stored counts as never accepted.

        The watermark goes back too, or the same rows would count as late when they are sent again.
        """
        self._held.clear()
        self._by_watermark.clear()
        for lane in self._lanes.values():
            lane.accepted = lane.stored
        self._watermark_us = self.position.watermark_us
        for name in list(self._proxies):
            if name in self.position.proxies:
                self._proxies[name].position = self.position.proxies[name]
            else:
                del self._proxies[name]

    def current_position(self) -> StreamPosition:
        """Return the position to store with the next commit."""
        return StreamPosition(self._watermark_us, {name: known.position for name, known in self._proxies.items()})

    def _recompute(self) -> int | None:
        waited_for = {name: known.position for name, known in self._proxies.items() if known.included}
        self._by_watermark = [(each.watermark_us, name) for name, each in waited_for.items() if each.sampling]
        heapify(self._by_watermark)
        if self._by_watermark:
            return self._raise(self._lowest())
        # No proxy samples: the highest watermark that they sent when they stopped holds for all.
        return self._raise(max((each.watermark_us for each in waited_for.values()), default=None))

    def _lowest(self) -> int:
        """Return the lowest watermark of the proxies in the heap: a watermark that is outdated is never too high."""
        while True:
            noted_us, name = self._by_watermark[0]
            watermark_us = self._proxies[name].position.watermark_us
            if watermark_us == noted_us:
                return watermark_us
            heapreplace(self._by_watermark, (watermark_us, name))

    def _raise(self, watermark_us: int | None) -> int | None:
        if watermark_us is not None and (self._watermark_us is None or watermark_us > self._watermark_us):
            self._watermark_us = watermark_us
        return self._watermark_us
