"""The samples that a mote was due to take for one demand: which report covers them, how many are missing. Pure.

**Spans of time, and how many samples of a period fall into them.**

A span is half open: from its first instant up to, not including, its second.

It relies on the low watermark of the mote: with each packet in sequence, all samples up to that watermark have
been reported, or were filtered out by the mote. So a packet in sequence changes nothing, and only gaps are noted::

    packets         1      2      (3 lost)   4           (silence)                  the stream's watermark moves on
    low watermark   ----->------>            ---------->
    samples         . . . . . . . x x x . .  . . . . . . x x x x x x x x x x x x
                                  missing                missing
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from protocols.acquisition.needs import Need, answers
from protocols.wire.packets import Packet, Partial, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import Panes, SamplingProgram, SendOnChange, VehicleCount, reports_of
from proxy.records.waiting_tuples import LOWEST_US

Span = tuple[int, int]


def united(spans: Iterable[Span]) -> list[Span]:
    """Return disjoint spans, ascending, that hold the same instants.

    Examples
    --------
    >>> united([(5, 9), (0, 2), (2, 3), (4, 4), (6, 7)])
    [(0, 3), (5, 9)]
    """
    found: list[Span] = []
    for begin, end in sorted(spans):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def within(spans: Iterable[Span], bounds: Span) -> list[Span]:
    """Return the part of spans that lies within another.

    Examples
    --------
    >>> within([(0, 3), (5, 9)], (2, 6))
    [(2, 3), (5, 6)]
    """
    low, high = bounds
    return [(max(begin, low), min(end, high)) for begin, end in spans if max(begin, low) < min(end, high)]


def without(spans: Iterable[Span], removed: Iterable[Span]) -> list[Span]:
    """Return the part of disjoint spans that is in none of `removed`.

    Examples
    --------
    >>> without([(0, 3), (5, 9)], [(2, 6), (8, 9)])
    [(0, 2), (6, 8)]
    """
    left = list(spans)
    for low, high in removed:
        left = [
            piece
            for begin, end in left
            for piece in ((begin, min(end, low)), (max(begin, high), end))
            if piece[0] < piece[1]
        ]
    return left


def multiples_in(spans: Iterable[Span], period_us: int) -> int:
    """Return how many whole multiples of a period lie in disjoint spans: at these instants samples are taken.

    Examples
    --------
    >>> multiples_in([(0, 10), (11, 21)], 10)
    2
    """
    return sum(-(-end // period_us) - -(-begin // period_us) for begin, end in spans)


class Coverage(NamedTuple):
    """How a program covers a need.

    Parameters
    ----------
    report
        Number of the report that does.
    grid_us
        Samples are taken at whole multiples of this. More than the period of the need where the mote is too slow for
        that, or has to save its battery.
    pane_us
        Width of the panes that the mote aggregates: a pane is lost with its record. 0 if it does not aggregate.
    fills
        True if only changes are sent: after a loss, no value is known until the next change.
    """

    report: int
    grid_us: int
    pane_us: int = 0
    fills: bool = False

    def pane_of(self, instant_us: int) -> int:
        """Return the beginning of the pane of an instant: the pane's samples are received, or lost, together."""
        return instant_us // self.pane_us * self.pane_us if self.pane_us else instant_us

    def first_reported_us(self, packet: Packet) -> int | None:
        """Return the first instant that the report's records in a packet cover; None if there are none."""
        found = None
        for record in packet.records:
            match record:
                case Sample() if record.reports >> self.report & 1:
                    instant_us = packet.clock_us - record.age_us
                case Partial() if record.report == self.report:
                    instant_us = packet.clock_us - record.age_us - record.pane_us + 1
                case VehicleTally() if record.report == self.report:
                    instant_us = packet.clock_us - record.age_us - record.every_us + 1
                case VehicleEvent() if record.report == self.report:
                    instant_us = packet.clock_us - record.age_us
                case _:
                    continue
            found = instant_us if found is None else min(found, instant_us)
        return found


@lru_cache(maxsize=65_536)
def coverage_of(program: SamplingProgram, need: Need) -> Coverage | None:
    """Return how a program covers a need; None if it does not.

    Of several reports that do, it is the one whose records answer the need, as in
    :func:`proxy.records.program_routes.routes_of`.
    """
    if program.sleeping:
        return None
    found: list[tuple[int, bool, Coverage]] = []
    for number, alone in enumerate(reports_of(program)):
        grid_us = math.lcm(alone.period_us, need.period_us)
        if not answers(alone, replace(need, period_us=grid_us)):
            continue
        report = alone.report
        if isinstance(report, Panes | VehicleCount):
            width_us = report.pane_us if isinstance(report, Panes) else report.every_us
            found.append((grid_us, False, Coverage(number, grid_us, width_us)))
        else:
            sends_samples = report is None or isinstance(report, SendOnChange)
            found.append((grid_us, sends_samples, Coverage(number, grid_us, 0, isinstance(report, SendOnChange))))
    return min(found)[2] if found else None


NEVER_US = 2**62


class PaneCount(NamedTuple):
    """The samples that a mote was due to take in a pane that ends at `end_us`, and how many of them are missing."""

    end_us: int
    expected: int
    missing: int


@dataclass(frozen=True, slots=True)
class ReceivedPacket:
    """A packet that was accepted in sequence, and its circumstances.

    Parameters
    ----------
    packet
        The packet.
    before_us, prior_clock_us
        Low watermark and clock of the mote as of the packet before; None if they are not known.
    changed
        Whether the mote runs another program than with the packet before.
    gap
        Whether packets before it are missing.
    read
        False if its records could not be read.
    resumed
        Whether it is the first since the proxy's restart, of a mote known from before the restart.
    not_before_us
        The mote was sent this bound: no sample of a new program is stamped before it.
    watermark_us
        Of the stream: samples stamped before it are late.
    lost_until_us
        Before the proxy's restart, samples stamped before this instant were missing and perhaps not counted.
    """

    packet: Packet
    before_us: int | None
    prior_clock_us: int
    changed: bool = False
    gap: bool = False
    read: bool = True
    resumed: bool = False
    not_before_us: int | None = None
    watermark_us: int | None = None
    lost_until_us: int = LOWEST_US

    @property
    def low_watermark_us(self) -> int:
        """The mote's low watermark as of this packet."""
        return self.packet.promise_us if self.before_us is None else max(self.packet.promise_us, self.before_us)


class SampleAccount:
    """The account of one mote and one demand.

    Parameters
    ----------
    need
        What the demand needs of the mote.
    fingerprint
        Push-down fingerprint of the aggregates or events that the mote reports for the demand; empty for samples.
    pane_us
        Width of the panes in which samples are counted.
    demanded_us
        No sample was demanded before this instant.
    """

    def __init__(self, need: Need, fingerprint: str, pane_us: int, demanded_us: int = LOWEST_US) -> None:
        self.need = need
        self.fingerprint = fingerprint
        self.pane_us = pane_us
        self.demanded_us = demanded_us
        self.began_us: int | None = None
        """From when on the mote is due to take samples; None before it has begun."""
        self._coverage: Coverage | None = None
        self._grids: list[tuple[int, int]] = []
        self._known_us = LOWEST_US
        """While the mote runs no program that covers the need: the fate of all samples before this is known."""
        self._missing: list[Span] = []
        self._doubtful: list[Span] = []
        """Missing, unless records of later packets cover them."""
        self._absent: list[Span] = []
        """Spans in which no sample is due, as the mote announced that it takes none."""
        self._reported_us = LOWEST_US
        self._lost_until_us = LOWEST_US
        self._uncovered = False
        """Whether samples are due and the mote takes none: it runs no program that covers the need."""

    def covered_by(self, program: SamplingProgram) -> Coverage | None:
        """Return how a program covers the need; None if it does not."""
        return coverage_of(program, self.need)

    @property
    def lost_until_us(self) -> int:
        """No sample stamped from this instant on is missing so far; a restart of the proxy forgets which are."""
        return NEVER_US if self._uncovered else self._lost_until_us

    @property
    def aggregated(self) -> bool:
        """Whether the mote reports aggregates of the samples, not the samples."""
        return self._coverage is not None and self._coverage.pane_us > 0

    def begin(self, since_us: int, grid_us: int) -> None:
        """Expect samples from an instant on, at whole multiples of `grid_us`, though none has been reported yet."""
        self.began_us = self._reported_us = self._known_us = since_us
        self._grids = [(since_us, grid_us)]
        # What the mote took before is not known: were the proxy to restart now, it would count as missing.
        self._lost_until_us = max(self._lost_until_us, since_us)
        self._uncovered = True

    def resume(self, watermark_us: int, lost_until_us: int, grid_us: int) -> None:
        """Go on after a restart of the proxy, with a mote from which nothing has been received since.

        Parameters
        ----------
        watermark_us
            Of the stream: panes that ended before it have been counted.
        lost_until_us
            Samples stamped before this instant were missing then; the lowest instant if none was counted.
        grid_us
            Samples are due at whole multiples of it.
        """
        pane_us = watermark_us if lost_until_us == LOWEST_US else watermark_us // self.pane_us * self.pane_us
        self.begin(pane_us, grid_us)
        self._known_us = watermark_us
        self._missing += within([(pane_us, watermark_us)], (LOWEST_US, lost_until_us))
        self._lost_until_us = max(self._lost_until_us, min(lost_until_us, watermark_us))
        self._uncovered = False  # for all that is known

    def begin_covered(self, coverage: Coverage, low_watermark_us: int) -> None:
        """Begin with a mote that already runs a program that covers the need."""
        self.begin(low_watermark_us, coverage.grid_us)
        self._coverage, self._uncovered = coverage, False
        if coverage.fills:
            # A change may have been lost, and then the values since it are not known.
            self._doubtful.append((low_watermark_us, NEVER_US))

    def packet_received(self, received: ReceivedPacket, coverage: Coverage | None) -> None:
        """Note a packet; `coverage` is that of the program it names."""
        first_us = coverage.first_reported_us(received.packet) if coverage is not None and received.read else None
        before = self._coverage
        if before is not None and received.before_us is not None:
            self._note_absence(before, received.prior_clock_us, received.before_us)
        if before is not None and coverage is not None and not received.changed and received.before_us is not None:
            self._continue(before, received, received.before_us, first_us)
            return
        if before is not None:
            self._end(before, received)
        if coverage is not None:
            self._start(coverage, received, first_us)
        else:
            self._uncovered |= self.began_us is not None

    def unaffected(self, clock_us: int, low_watermark_us: int, watermark_us: int | None) -> bool:
        """Return whether :meth:`packet_received` would change nothing for a packet with samples in sequence.

        Parameters
        ----------
        clock_us, low_watermark_us
            Of the mote, as of the packet before.
        watermark_us
            Of the stream; None before the first.
        """
        coverage = self._coverage
        return (
            coverage is not None
            and not self._doubtful
            and (watermark_us is None or watermark_us <= low_watermark_us)
            and multiples_in([(clock_us + 1, low_watermark_us)], coverage.grid_us) <= 0
        )

    def stop(self, low_watermark_us: int | None) -> None:
        """Note that the mote rebooted: the samples that it had not sent are lost."""
        coverage, self._coverage = self._coverage, None
        self._uncovered |= self.began_us is not None
        if coverage is not None and low_watermark_us is not None:
            self._known_us = max(coverage.pane_of(low_watermark_us), self._reported_us)
        self._missing += within(self._doubtful, (LOWEST_US, self._known_us))
        self._doubtful.clear()

    def lose(self, begin_us: int, end_us: int) -> None:
        """Note samples that were dropped after they had been accepted."""
        self._miss(begin_us, end_us)

    def counts_until(
        self, until_us: int, low_watermark_us: int | None, clock_us: int, most: int
    ) -> Iterator[PaneCount]:
        """Yield the counts of the panes that end up to an instant and were not yielded before.

        Parameters
        ----------
        until_us
            The new watermark of the stream: samples before it that have not arrived are missing.
        low_watermark_us, clock_us
            Of the mote, as of its last packet.
        most
            Panes to yield; later ones that end by `until_us` are not counted at all.
        """
        if self.began_us is None:
            return
        coverage = self._coverage
        known_us = self._known_us
        if coverage is not None and low_watermark_us is not None:
            self._note_absence(coverage, clock_us, low_watermark_us)
            known_us = coverage.pane_of(low_watermark_us)
        missing = united([*self._missing, *self._doubtful, (known_us, NEVER_US)])
        begin_us = self._reported_us
        last_us = until_us // self.pane_us * self.pane_us
        while begin_us < last_us and most > 0:
            end_us = (begin_us // self.pane_us + 1) * self.pane_us
            count = self._count((begin_us, end_us), missing)
            if count.expected:
                yield count
            begin_us = end_us
            most -= 1
        self._reported_us = max(self._reported_us, last_us)
        self._forget()

    def _count(self, pane: Span, missing: list[Span]) -> PaneCount:
        expected = found = 0
        ends = [*(begin_us for begin_us, _ in self._grids[1:]), NEVER_US]
        for (begin_us, grid_us), end_us in zip(self._grids, ends, strict=True):
            due = without(within([pane], (begin_us, end_us)), self._absent)
            expected += multiples_in(due, grid_us)
            found += sum(multiples_in(within(missing, each), grid_us) for each in due)
        return PaneCount(pane[1], expected, found)

    def _continue(self, coverage: Coverage, received: ReceivedPacket, before_us: int, first_us: int | None) -> None:
        """Continue under the same program."""
        low_watermark_us = received.low_watermark_us
        if received.gap or not received.read:
            # A lost packet reported only panes that had ended when it was sent, which was before this one.
            until_us = coverage.pane_of(received.packet.clock_us) if coverage.pane_us else low_watermark_us
            self._doubtful.append((coverage.pane_of(before_us), NEVER_US if coverage.fills else until_us))
            self._lost_until_us = max(self._lost_until_us, until_us)
        if first_us is not None or not (coverage.pane_us or coverage.fills):
            self._settle(low_watermark_us if first_us is None else first_us)
        if received.watermark_us is not None and received.watermark_us > before_us:
            late_us = min(coverage.pane_of(received.watermark_us), low_watermark_us)
            self._miss(coverage.pane_of(before_us), late_us)

    def _miss(self, begin_us: int, end_us: int) -> None:
        self._missing.append((begin_us, end_us))
        self._lost_until_us = max(self._lost_until_us, end_us)

    def _settle(self, known_from_us: int) -> None:
        """Count doubtful samples before an instant as missing, and those after it as reported."""
        self._missing += within(self._doubtful, (LOWEST_US, known_from_us))
        self._doubtful.clear()

    def _end(self, coverage: Coverage, received: ReceivedPacket) -> None:
        """End a program: the mote runs another one."""
        before_us = self._known_us if received.before_us is None else received.before_us
        self._known_us = coverage.pane_of(before_us) if received.gap or not received.read else received.low_watermark_us
        if coverage.fills:
            # Unchanged samples at the end of a program were not sent, and are not filled in.
            self._known_us = before_us
        self._settle(self._known_us)
        self._coverage = None

    def _start(self, coverage: Coverage, received: ReceivedPacket, first_us: int | None) -> None:
        """Begin with a program that covers the need."""
        self._coverage = coverage
        from_us = received.low_watermark_us if first_us is None else first_us
        if self.began_us is None:
            since_us = from_us
            if received.gap:
                since_us = max((LOWEST_US, *(x for x in (received.not_before_us, received.before_us) if x is not None)))
            self.begin(from_us if since_us == LOWEST_US else min(since_us, from_us), coverage.grid_us)
        elif received.resumed and not received.gap and not coverage.fills:
            # What was missing before the restart is not known any more: all before its end counts as missing.
            if self._known_us < (lost_until_us := min(received.lost_until_us, from_us)):
                self._miss(self._known_us, lost_until_us)
            self._known_us = max(self._known_us, from_us)
        self._uncovered = False
        if coverage.grid_us != self._grids[-1][1]:
            began_us = (
                self._known_us if received.gap else max(self._known_us, min(received.packet.clock_us + 1, from_us))
            )
            self._grids.append((began_us, coverage.grid_us))
        if self._known_us < from_us:
            self._miss(self._known_us, from_us)
        if received.watermark_us is not None:
            late_us = min(coverage.pane_of(received.watermark_us), received.low_watermark_us)
            if late_us > from_us:
                self._miss(from_us, late_us)
        if coverage.fills and first_us is None and received.gap:
            self._doubtful.append((from_us, NEVER_US))

    def _note_absence(self, coverage: Coverage, clock_us: int, low_watermark_us: int) -> None:
        """Note that no sample is due where the low watermark of a mote is beyond its next sample: it takes none."""
        if multiples_in([(clock_us + 1, low_watermark_us)], coverage.grid_us) > 0:
            self._absent.append((clock_us + 1, low_watermark_us))

    def _forget(self) -> None:
        """Forget spans of panes that have been reported."""
        rest = (self._reported_us, NEVER_US)
        self._missing, self._absent = within(united(self._missing), rest), within(united(self._absent), rest)
        while len(self._grids) > 1 and self._grids[1][0] <= self._reported_us:
            self._grids.pop(0)
