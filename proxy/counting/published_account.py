"""The tuples that a driven device was due to publish for one demand: in how many periods, and in which there is none.

Pure. A device does not publish at whole multiples of a period, so nothing shows that a message was lost. But where it
is known how often it publishes, one tuple at least is expected in each period, and one without any is missing::

    tuples       *    *  *            *   *                    of its own rules, or as its driver configured it
    periods    |------|------|------|------|------|            a period is counted in the pane in which it ends, as it
                             missing                           is known by then what it holds
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from protocols.acquisition.needs import Need
from protocols.wire.programs import SamplingProgram
from proxy.counting.sample_account import Coverage, PaneCount, ReceivedPacket, Span, coverage_of, united, within
from proxy.records.waiting_tuples import LOWEST_US

_FEW = 32
"""So many periods wait before those that are over are united."""


class PublishedTuples(NamedTuple):
    """What is known of the tuples of a driven device.

    Parameters
    ----------
    freely
        Whether it publishes by its own rules, whatever its program.
    expected_every_us
        Then: it publishes at least once in each period of this length; None if that is not known.
    stored_us
        The latest stamps of its tuples in batches, ascending: all from some instant on, and the last one before, or the
        lowest instant if there is none.
    """

    freely: bool
    expected_every_us: int | None = None
    stored_us: tuple[int, ...] = ()


@dataclass(slots=True)
class _Grid:
    """The periods from an instant on, by number, and those of which there is a tuple."""

    since_us: int
    period_us: int
    seen: list[Span] = field(default_factory=list)
    """Of periods that are over: their numbers, as ascending spans."""
    waiting: dict[int, int] = field(default_factory=dict)
    """Of the others: how many tuples there are. They may yet be dropped for lack of room."""

    @property
    def first(self) -> int:
        """The number of the first period that is due."""
        return -(-self.since_us // self.period_us)

    def settle(self, until_us: int) -> None:
        """Note that all tuples stamped before an instant are in batches."""
        over = sorted(each for each in self.waiting if (each + 1) * self.period_us <= until_us)
        for each in over:
            del self.waiting[each]
            if not self.seen or self.seen[-1][1] < each:
                self.seen.append((each, each + 1))
            elif self.seen[-1][1] == each:
                self.seen[-1] = (self.seen[-1][0], each + 1)
            else:  # a restart, from before which later ones are known
                self.seen = united([*self.seen, (each, each + 1)])

    def last_missing(self, end: int) -> int | None:
        """Return the number of the last due period before `end` that has no tuple; None if all have."""
        while end - 1 in self.waiting:
            end -= 1
        for begin, past in reversed(self.seen):
            if past < end:
                break
            end = min(end, begin)
        return end - 1 if end > self.first else None


class PublishedAccount:
    """The account of one driven device and one demand; it answers as :mod:`proxy.counting.sample_account` does.

    Parameters
    ----------
    need
        What the demand needs of the device.
    fingerprint
        Push-down fingerprint of the aggregates or events that are reported for the demand; empty for samples.
    pane_us
        Width of the panes in which periods are counted.
    demanded_us
        Nothing was demanded before this instant.
    every_us
        The periods of a device that publishes by its own rules; None if they are those of its program.
    """

    aggregated = False

    def __init__(
        self, need: Need, fingerprint: str, pane_us: int, demanded_us: int = LOWEST_US, *, every_us: int | None = None
    ) -> None:
        self.need = need
        self.fingerprint = fingerprint
        self.pane_us = pane_us
        self.demanded_us = demanded_us
        self.began_us: int | None = None
        """From when on the device is due to publish; None before it has begun."""
        self._every_us = every_us
        self._grids: list[_Grid] = []
        self._counts = every_us is not None
        """Whether tuples count: not those of a program that does not cover the need."""
        self._known_us = LOWEST_US
        """No tuple can still come that is stamped before this."""
        self._reported_us = LOWEST_US
        self._lost_until_us = LOWEST_US

    def covered_by(self, program: SamplingProgram) -> Coverage | None:
        """Return how a program covers the need; None if it does not."""
        return coverage_of(program, self.need) if self._every_us is None else Coverage(0, self._every_us)

    @property
    def lost_until_us(self) -> int:
        """No period that begins from this instant on is missing so far; a restart of the proxy forgets which are."""
        for grid in reversed(self._grids):
            missing = grid.last_missing(self._known_us // grid.period_us)
            if missing is not None:
                return max(self._lost_until_us, (missing + 1) * grid.period_us)
        return self._lost_until_us

    def begin(self, since_us: int, grid_us: int) -> None:
        """Expect a tuple in each period of `grid_us` that begins from an instant on."""
        self.began_us = self._reported_us = self._lost_until_us = since_us
        self._known_us = max(self._known_us, since_us)
        self._grids = [_Grid(since_us, grid_us)]

    def begin_covered(self, coverage: Coverage, low_watermark_us: int) -> None:
        """Begin with a device that already runs a program that covers the need."""
        self.begin(low_watermark_us, coverage.grid_us)
        self._counts = True

    def resume(self, watermark_us: int, lost_until_us: int, grid_us: int, stored_us: tuple[int, ...]) -> None:
        """Go on after a restart of the proxy.

        Parameters
        ----------
        watermark_us
            Of the stream: panes that ended before it have been counted.
        lost_until_us
            Periods before this instant were missing then; the lowest instant if none was counted.
        grid_us
            Length of a period.
        stored_us
            As in :class:`PublishedTuples`.
        """
        if lost_until_us == LOWEST_US:
            self.begin(watermark_us, grid_us)
            return
        counted_us = watermark_us // self.pane_us * self.pane_us
        self.begin(counted_us // grid_us * grid_us, grid_us)
        self._reported_us, self._known_us = counted_us, watermark_us
        self._lost_until_us = max(self._lost_until_us, min(lost_until_us, watermark_us))
        if not stored_us:
            return
        (grid,) = self._grids
        numbers = [each // grid_us for each in stored_us]
        # What came before the earliest stamp that is known was stored, but for what was lost.
        known = max(grid.first, -(-lost_until_us // grid_us)), numbers[0] + 1
        grid.seen = united([known, *((each, each + 1) for each in numbers)])

    def packet_received(self, received: ReceivedPacket, coverage: Coverage | None) -> None:
        """Note a packet; `coverage` is that of the program it names."""
        watermark_us = LOWEST_US if received.watermark_us is None else received.watermark_us
        self._known_us = max(self._known_us, received.low_watermark_us, watermark_us)
        self._counts = coverage is not None
        if coverage is None:
            return
        if self.began_us is None:
            self.begin(received.low_watermark_us, coverage.grid_us)
        elif coverage.grid_us != self._grids[-1].period_us:
            since_us = received.low_watermark_us if received.before_us is None else received.before_us
            self._grids.append(_Grid(max(since_us, self._grids[-1].since_us), coverage.grid_us))

    def accepted(self, stamps_us: Iterable[int], watermark_us: int | None) -> None:
        """Note tuples that wait for their batch; `watermark_us` is that of the stream, None before the first."""
        if self.began_us is None or not self._counts:
            return
        for stamp_us in stamps_us:
            grid = self._grid_of(stamp_us)
            number = stamp_us // grid.period_us
            grid.waiting[number] = grid.waiting.get(number, 0) + 1
            if len(grid.waiting) > _FEW and watermark_us is not None:
                grid.settle(watermark_us)

    def unaffected(self, _clock_us: int, _low_watermark_us: int, _watermark_us: int | None) -> bool:
        """Return False: each tuple counts."""
        return False

    def stop(self, _low_watermark_us: int | None) -> None:
        """Note that the device was started again: what it does not publish is missing all the same."""

    def lose(self, begin_us: int, end_us: int) -> None:
        """Note a tuple, or the span of an event, that was dropped after it had been accepted."""
        for grid in self._grids:
            first, last = begin_us // grid.period_us, (end_us - 1) // grid.period_us
            for number in [each for each in grid.waiting if first <= each <= last]:
                grid.waiting[number] -= 1 if end_us - begin_us == 1 else grid.waiting[number]
                if not grid.waiting[number]:
                    del grid.waiting[number]

    def counts_until(
        self, until_us: int, _low_watermark_us: int | None, _clock_us: int, most: int
    ) -> Iterator[PaneCount]:
        """Yield the counts of the panes that end up to an instant and were not yielded before.

        Parameters
        ----------
        until_us
            The new watermark of the stream: tuples before it that have not arrived are missing.
        most
            Panes to yield; later ones that end by `until_us` are not counted at all.
        """
        if self.began_us is None:
            return
        self._known_us = max(self._known_us, until_us)
        for grid in self._grids:
            grid.settle(until_us)
        begin_us = self._reported_us
        last_us = until_us // self.pane_us * self.pane_us
        while begin_us < last_us and most > 0:
            end_us = (begin_us // self.pane_us + 1) * self.pane_us
            count = self._count(begin_us, end_us)
            if count.expected:
                yield count
            begin_us = end_us
            most -= 1
        self._lost_until_us = self.lost_until_us
        self._reported_us = max(self._reported_us, last_us)
        self._forget()

    def _grid_of(self, stamp_us: int) -> _Grid:
        return next((each for each in reversed(self._grids) if each.since_us <= stamp_us), self._grids[0])

    def _count(self, begin_us: int, end_us: int) -> PaneCount:
        """Return the counts of the periods that end in a pane."""
        expected = found = 0
        ends_us = [*(each.since_us for each in self._grids[1:]), end_us]
        for grid, until_us in zip(self._grids, ends_us, strict=True):
            first = max(grid.first, begin_us // grid.period_us)
            end = min(end_us, until_us) // grid.period_us
            if first < end:
                expected += end - first
                found += sum(b - a for a, b in within(grid.seen, (first, end)))
        return PaneCount(end_us, expected, expected - found)

    def _forget(self) -> None:
        """Forget the periods of panes that have been reported."""
        while len(self._grids) > 1 and self._grids[1].since_us <= self._reported_us:
            self._grids.pop(0)
        for grid in self._grids:
            first = self._reported_us // grid.period_us
            grid.since_us = max(grid.since_us, first * grid.period_us)
            grid.seen = [(max(a, first), b) for a, b in grid.seen if b > first]
