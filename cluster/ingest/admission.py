"""Which batches are accepted, and how far a stream has come.

Pure. One :class:`StreamAdmission` per stream. Sequence numbers make delivery exactly once: a batch is accepted only if
it is the next of its proxy and epoch. Where two processes run on copies of one data folder, numbers alone are
ambiguous; so a batch names the process that wrote it and the one that wrote the batch before it, and the latter must be
the writer of what is stored (docs/decisions/0085-a-data-folder-has-one-home.md).

How far the stream has come follows from the watermarks of its proxies; the first line that applies to any of them
decides (docs/decisions/0084-what-a-stream-waits-for.md)::

    its motes sample; or they were silent when it went away      the lowest of these, so that no spooled row is late
    its motes are silent, and it goes on in their place          the lowest of these, so that motes may come back
    its motes sleep, and it promises nothing                     the highest of these: no row follows

A proxy that is gone for as long as its stream allows, by default for ever, is left out until it comes back. So is one
whose batches do not fit the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heapreplace

import msgspec

from cluster.storage.stream_tables import LastBatch, ProxyPosition, StreamPosition

HELD_SECONDS = 30.0
"""A proxy whose batches do not fit the stream is waited for this long: what is wrong is known, and may never end."""
ANSWERS = 2
"""To batches of a lane that are not the next, in an interval. A proxy goes back when it has read one twice."""


class Verdict(Enum):
    """What to do with a batch."""

    ACCEPT = "accept"
    REPEATED = "repeated"
    """Stored already: acknowledge it again."""
    GAP = "gap"
    """Something before it is missing: acknowledge what is stored, so that the proxy sends again from there."""
    CONTESTED = "contested"
    """Written on another copy of the proxy's data folder: the ack names the writer of what is stored, so it stops."""
    HOLD = "hold"
    """It does not fit the stream, or comes after one that does not: without an answer, the proxy keeps it."""


@dataclass(slots=True)
class _Lane:
    """One proxy and epoch: the highest sequence number stored, and the highest accepted, stored or not.

    `stored_writer` and `writer` are those of these batches, empty for unknown; all from `since` on are of the latter.
    `answers` counts those to batches that were not the next, since `answered_seconds`.
    """

    stored: int
    accepted: int
    stored_writer: bytes = b""
    writer: bytes = b""
    since: int = 0
    answers: int = 0
    answered_seconds: float = 0.0

    def accept(self, sequence: int, writer: bytes) -> None:
        """Note that a batch is accepted."""
        if writer != self.writer:
            self.since = sequence
        self.accepted, self.writer = sequence, writer


@dataclass(slots=True)
class _Proxy:
    position: ProxyPosition
    active_seconds: float
    """When it was last connected or sent something that fits."""
    moved_seconds: float
    """When its watermark last moved."""
    away_seconds: float = 0.0
    """How long it has been away, as far as that is certain."""
    away: bool = False
    included: bool = True

    @property
    def holds(self) -> bool:
        """Whether the stream comes no further than this proxy."""
        return self.position.sampling or (self.position.promises and self.away)

    @property
    def stored(self) -> ProxyPosition:
        """Its position, as it is stored."""
        is_right = self.position.gone is not self.included
        return self.position if is_right else msgspec.structs.replace(self.position, gone=not self.included)


@dataclass(frozen=True, slots=True)
class WaitedFor:
    """The proxy that a stream waits for.

    Parameters
    ----------
    proxy
        Its name.
    away
        Whether it is not connected.
    waits_seconds
        Since when it has come no further.
    """

    proxy: str
    away: bool
    waits_seconds: float


@dataclass(slots=True)
class AdmissionCounters:
    """Counts of batches and rows since the ingest began."""

    accepted: int = 0
    repeated: int = 0
    gaps: int = 0
    held: int = 0
    contested: int = 0
    """Of another process than the one whose batches are stored: it runs on a copy of the proxy's data folder."""
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
    gone_after
        Returns after how many seconds away a proxy is left out of the watermark until it comes back; None for never.
    """

    position: StreamPosition
    gone_after: Callable[[], float | None] = lambda: None
    counters: AdmissionCounters = field(default_factory=AdmissionCounters)
    late_of: dict[str, int] = field(default_factory=dict)
    """By proxy: rows that came too late."""
    contested_of: dict[str, int] = field(default_factory=dict)
    """By proxy: batches of a second process that runs as it."""
    _lanes: dict[tuple[str, str], _Lane] = field(default_factory=dict)
    _held: set[tuple[str, str]] = field(default_factory=set)
    _proxies: dict[str, _Proxy] = field(default_factory=dict)
    _watermark_us: int | None = None
    _latest_us: int | None = None
    _by_watermark: list[tuple[int, str]] = field(default_factory=list)
    """A heap of the proxies that are waited for, each with a watermark that it has or had; empty if unknown.

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

    def note_late(self, proxy: str, rows: int) -> None:
        """Count rows of a proxy that came too late."""
        self.counters.late_rows += rows
        self.late_of[proxy] = self.late_of.get(proxy, 0) + rows

    def _note_contested(self, proxy: str) -> None:
        self.counters.contested += 1
        self.contested_of[proxy] = self.contested_of.get(proxy, 0) + 1

    def expect_known_proxies(self, now_seconds: float) -> None:
        """Begin to wait for the proxies whose positions the table has."""
        self._by_watermark.clear()
        for name, position in self.position.proxies.items():
            self._proxies[name] = _Proxy(position, now_seconds, now_seconds, included=not position.gone)

    def has_lane(self, proxy: str, epoch: str) -> bool:
        """Return whether :meth:`open_lane` was called for a proxy and epoch."""
        return (proxy, epoch) in self._lanes

    def open_lane(self, proxy: str, epoch: str, stored: int) -> None:
        """Set the highest sequence number stored of a proxy and epoch."""
        writer = _writer_of(self.position, proxy, epoch, stored)
        self._lanes[proxy, epoch] = _Lane(stored, stored, writer, writer, since=stored)

    def decide(
        self, proxy: str, epoch: str, sequence: int, *, fits: bool = True, writer: bytes = b"", follows: bytes = b""
    ) -> Verdict:
        """Decide what to do with a batch of a known lane.

        Parameters
        ----------
        proxy, epoch
            The lane.
        sequence
            Of the batch.
        fits
            False if its samples cannot be stored while the stream is declared as now, but perhaps later.
        writer, follows
            The writers of the batch and of the one before; empty for unknown.
        """
        lane = self._lanes[proxy, epoch]
        is_next = sequence == lane.accepted + 1
        if is_next and lane.writer and follows != lane.writer:
            if writer:
                self._note_contested(proxy)
                return Verdict.CONTESTED
            self.counters.gaps += 1  # the proxy does not know yet that writers are read here: the ack tells it
            return Verdict.GAP
        if is_next and fits and not self._held:
            lane.accept(sequence, writer)
            self.counters.accepted += 1
            return Verdict.ACCEPT
        if sequence <= lane.accepted:
            if sequence >= lane.since and writer and lane.writer and writer != lane.writer:
                self._note_contested(proxy)
                return Verdict.CONTESTED
            self.counters.repeated += 1
            return Verdict.REPEATED
        if (is_next and not fits) or (not is_next and (proxy, epoch) in self._held):
            self._held.add((proxy, epoch))
            self.counters.held += 1
            return Verdict.HOLD
        if not is_next:
            self.counters.gaps += 1
            return Verdict.GAP
        self._held.discard((proxy, epoch))
        lane.accept(sequence, writer)
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
        lane.accepted, lane.writer, lane.since = first - 1, b"", first - 1
        self._held.discard((proxy, epoch))
        return lost

    def holds(self, proxy: str) -> bool:
        """Return whether batches of a proxy wait in its spool until they fit the stream."""
        return bool(self._held) and any(held == proxy for held, _ in self._held)

    def stored(self, proxy: str, epoch: str) -> int:
        """Return the highest sequence number of the lane that is stored for good."""
        return self._lanes[proxy, epoch].stored

    def writer(self, proxy: str, epoch: str) -> bytes:
        """Return the writer of the batch of that number; empty for unknown."""
        return self._lanes[proxy, epoch].stored_writer

    def note_last(self, proxy: str, last: LastBatch | None) -> None:
        """Note the last batch of a proxy, if that is known, when none of its rows is stored."""
        known = self._proxies.get(proxy)
        if known is not None:
            known.position = msgspec.structs.replace(known.position, last=last)

    def advance(
        self, proxy: str, watermark_us: int, *, sampling: bool, now_seconds: float, last: LastBatch | None = None
    ) -> int | None:
        """Note how far a proxy has come with an accepted batch; return the stream's new low watermark."""
        known = self._proxies.get(proxy)
        if known is None:
            position = ProxyPosition(watermark_us, sampling, last=last)
            self._proxies[proxy] = _Proxy(position, now_seconds, now_seconds)
            return self._recompute()
        before, held = known.position, known.included and known.holds
        moves = watermark_us > before.watermark_us
        # A proxy whose motes have been put to sleep moves its watermark no more. One that goes on is to be waited for.
        promises = not sampling and (before.promises or moves)
        known.position = ProxyPosition(max(watermark_us, before.watermark_us), sampling, promises, last=last)
        known.active_seconds, known.included = now_seconds, True
        known.away, known.away_seconds = False, 0.0
        if moves:
            known.moved_seconds = now_seconds
        return self._raise(self._lowest()) if held and sampling and self._by_watermark else self._recompute()

    def proxy_active(self, proxy: str, now_seconds: float) -> None:
        """Note that a proxy is alive, though it may have sent nothing new.

        One whose batches are held counts as silent: the watermark does not wait for it for long.
        """
        known = self._proxies.get(proxy)
        if known is not None:
            known.away, known.away_seconds = False, 0.0
            if not self.holds(proxy):
                known.active_seconds = now_seconds

    def time_passed(
        self, online: Collection[str], now_seconds: float, *, counted_seconds: float, anew: bool = False
    ) -> bool:
        """Leave out proxies that are gone, and wait again for those that are back; return whether the watermark moved.

        Parameters
        ----------
        online
            The proxies that are connected.
        now_seconds
            The present.
        counted_seconds
            For how much of the time since the last call it is certain that no message of a proxy was on its way here.
        anew
            Whether it is not known which proxies were away before: all have their time again.
        """
        before, limit = self._watermark_us, self.gone_after()
        for name, known in self._proxies.items():
            if anew:
                known.away_seconds = 0.0
            if name in online:
                self.proxy_active(name, now_seconds)
                known.included |= not self.holds(name)
            else:
                known.away = True
                known.away_seconds += counted_seconds
            gone = limit is not None and known.away_seconds >= limit
            mismatch = self.holds(name) and now_seconds - known.active_seconds > HELD_SECONDS
            if known.included and (gone or mismatch):
                known.included = False
                self.counters.silent_proxies += 1
        if any(known.included for known in self._proxies.values()):
            self._recompute()
        return self._watermark_us != before

    def waited_for(self, now_seconds: float) -> WaitedFor | None:
        """Return the proxy that the stream waits for; None if its proxies promise nothing, or there is none."""
        included = [(name, each) for name, each in self._proxies.items() if each.included]
        found = [each for each in included if each[1].holds] or [each for each in included if each[1].position.promises]
        if not found:
            return None
        name, known = min(found, key=lambda each: (each[1].position.watermark_us, each[0]))
        return WaitedFor(name, known.away, max(0.0, now_seconds - known.moved_seconds))

    def gone(self) -> list[str]:
        """Return the proxies without which the stream goes on, as they have been away for too long."""
        return sorted(name for name, each in self._proxies.items() if not each.included and not self.holds(name))

    def committed(self, sequences: Mapping[tuple[str, str], int], position: StreamPosition) -> None:
        """Note that everything up to these sequence numbers, and this position, is stored for good."""
        for lane, sequence in sequences.items():
            found = self._lanes[lane]
            found.stored, found.stored_writer = sequence, _writer_of(position, *lane, sequence)
        self.position = position

    def roll_back(self) -> None:
        """Return to the last commit after a failed one: what is not stored counts as never accepted.

        The watermark goes back too, or the same rows would count as late when they are sent again.
        """
        self._held.clear()
        self._by_watermark.clear()
        for lane in self._lanes.values():
            lane.accepted, lane.writer = lane.stored, lane.stored_writer
            lane.since = min(lane.since, lane.stored)
        self._watermark_us = self.position.watermark_us
        for name in list(self._proxies):
            if name in self.position.proxies:
                self._proxies[name].position = self.position.proxies[name]
            else:
                del self._proxies[name]

    def current_position(self) -> StreamPosition:
        """Return the position to store with the next commit."""
        return StreamPosition(self._watermark_us, {name: known.stored for name, known in self._proxies.items()})

    def _recompute(self) -> int | None:
        waited_for = {name: known for name, known in self._proxies.items() if known.included}
        self._by_watermark = [(each.position.watermark_us, name) for name, each in waited_for.items() if each.holds]
        heapify(self._by_watermark)
        if self._by_watermark:
            return self._raise(self._lowest())
        promised = [each.position.watermark_us for each in waited_for.values() if each.position.promises]
        if promised:
            return self._raise(min(promised))
        # All motes sleep: the highest watermark that proxies sent when they stopped holds for all.
        return self._raise(max((each.position.watermark_us for each in waited_for.values()), default=None))

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


def _writer_of(position: StreamPosition, proxy: str, epoch: str, sequence: int) -> bytes:
    """Return the writer of a batch; empty if it is not the last one of its proxy, or names none."""
    known = position.proxies.get(proxy)
    last = None if known is None else known.last
    found = last is not None and (last.epoch, last.sequence) == (epoch, sequence)
    return bytes.fromhex(last.writer) if last is not None and found else b""
