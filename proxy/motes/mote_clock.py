"""The clock of one mote as its packets show it: whether it can be right, and by how much it is off. Pure.

**Whether a mote's clock can be right: how far its instants may be from the proxy's time of their receipt.**

A clock that is wrong by years must cost its own mote only. So its samples are rejected, and its low watermark is
ignored, until a packet shows that the clock is right again::

    time of day            ------|------------------- receipt ----|------>
                                 |<----- behind_us ----->|<------>| ahead_us
    clock, low watermark         |      within these bounds       |

The receipt at the proxy counts: a batch may wait in the spool for any time afterwards.

**By how much a mote's sample clock is behind real time, estimated from its packets.**

A packet carries the mote's clock as of its sending. When it is received, real time is ahead of that by the
clock's offset and by the packet's delay. Delays only add, so the least difference in a while is nearest to the offset::

    receipt - clock   |    x        x
                      |  x    x  x     x   x      delays above the line
                      |__x_______x_____x____x__   the offset, which drifts
                                              time

The shortest delay of all packets cannot be separated from the offset, and is part of the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from statistics import median

from protocols.wire.catalog import ClockFault
from protocols.wire.packets import Packet
from protocols.wire.programs import SamplingProgram, VehicleEvents, reports_of
from proxy.records.waiting_tuples import LOWEST_US

_NO_BOUND_US = 2**63
"""More than the distance of any two instants on the wire."""


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """How far a mote's clock may be from the time of day.

    Parameters
    ----------
    ahead_us, behind_us
        In either direction, in microseconds; None sets no bound.
    """

    ahead_us: int | None = None
    behind_us: int | None = None

    @property
    def latest_us(self) -> int:
        """How far an instant may lie after the receipt."""
        return _NO_BOUND_US if self.ahead_us is None else self.ahead_us

    @property
    def earliest_us(self) -> int:
        """How far an instant may lie before the receipt."""
        return _NO_BOUND_US if self.behind_us is None else self.behind_us


UNBOUNDED = ClockBounds()
"""For clocks that do not show the time of day, as in a replay, and for stamps that are checked elsewhere."""


@dataclass(frozen=True, slots=True)
class Slack:
    """By how much low watermarks and samples may differ from a right clock.

    Parameters
    ----------
    watermark_us
        A low watermark may be ahead of the clock by the longest period that the mote still follows.
    age_us
        Greatest age of a sample in a packet, by which a low watermark may be behind, too; None for no limit.
    """

    watermark_us: int = 0
    age_us: int | None = 0


@dataclass(frozen=True, slots=True)
class WrongClock:
    """A clock that cannot be right: the direction, and the least error."""

    fault: ClockFault
    by_us: int


def wrong_clock(bounds: ClockBounds, packet: Packet, received_us: int, slack: Slack) -> WrongClock | None:
    """Return what is wrong with the clock of the mote that sent a packet; None if it may be right.

    Parameters
    ----------
    bounds
        How far the clock may be off.
    packet
        Of the mote.
    received_us
        The proxy's time of day when it was received.
    slack
        Of the mote's programs.
    """
    ahead_us = max(packet.clock_us, packet.promise_us - slack.watermark_us) - received_us
    if ahead_us > bounds.latest_us:
        return WrongClock(ClockFault.AHEAD, ahead_us)
    behind_us = received_us - packet.clock_us
    if slack.age_us is not None:
        behind_us = max(behind_us, received_us - packet.promise_us - slack.age_us)
    if behind_us > bounds.earliest_us:
        return WrongClock(ClockFault.BEHIND, behind_us)
    return None


def oldest_stamp_us(bounds: ClockBounds, received_us: int, slack: Slack) -> int | None:
    """Return the instant before which a right clock stamps no sample of a packet; None if there is none."""
    if bounds.behind_us is None or slack.age_us is None:
        return None
    return received_us - bounds.behind_us - slack.age_us


def slack_of(programs: tuple[SamplingProgram | None, ...]) -> Slack:
    """Return the slack of the programs that a mote may follow; None stands for one that the proxy does not know."""
    periods = [each.period_us for each in programs if each is not None]
    ages = [None if each is None else longest_age_us(each) for each in programs]
    known = [each for each in ages if each is not None]
    return Slack(max(periods, default=0), max(known, default=0) if len(known) == len(ages) else None)


@lru_cache(maxsize=4_096)
def longest_age_us(program: SamplingProgram) -> int | None:
    """Return the greatest age of a record when it is sent; None for no limit, as an event may last.

    Examples
    --------
    >>> longest_age_us(SamplingProgram(("speed",), 1_000_000, samples_per_packet=9)) // 1_000_000
    12
    """
    intervals = []
    for alone in reports_of(program):
        if isinstance(alone.report, VehicleEvents):
            return None
        intervals.append(max(alone.period_us, alone.interval_us or 0))
    # A packet leaves when it is full, when its records have no patience left, or when the mote listens.
    return (program.samples_per_packet + 1) * max(intervals) + program.patience_us + program.listen.every_us


BUCKET_US = 20_000_000
"""Of all packets within this time the one with the least difference is kept."""
MOST_BUCKETS = 12
MOST_AGE_US = 3_600_000_000
FASTEST_DRIFT = 200e-6
"""No clock drifts faster; crystals are within a quarter of it."""
JUMP_US = 50_000
"""If the difference changes by more than this, beyond drift, the clock was set."""
_FEWEST_PACKETS = 3
_FEWEST_CLOSED = 3
"""Buckets that an estimate of the drift, and a correction, need."""


@dataclass(frozen=True, slots=True)
class OffsetEstimate:
    """An estimate of a clock.

    Parameters
    ----------
    offset_us
        By how much it is behind real time.
    error_us
        By how much that may be wrong, as long as the least delays of a few minutes differ no more than those observed.
    drift_ppm
        By how much it is too slow, in parts per million; None if the mote was observed for too short a time.
    """

    offset_us: int
    error_us: int
    drift_ppm: float | None = None


class ClockOffset:
    """The clock of one mote; bounded."""

    __slots__ = ("_began_us", "_boot", "_buckets", "_drift", "_least_us", "_lowest_us", "_packets", "_received_us")

    def __init__(self) -> None:
        self._boot: int | None = None
        self._buckets: list[tuple[int, int, int]] = []
        self._drift: float | None = None
        self._received_us = 0
        self._least_us = 0
        self._packets = 0
        self._began_us = self._lowest_us = 0

    @property
    def kept(self) -> tuple[tuple[int, int], ...]:
        """The packets that are kept: when they were received, and by how much their clock was behind real time."""
        return tuple((received_us, behind_us) for _, received_us, behind_us in self._buckets)

    def restart(self) -> None:
        """Forget everything: the clock was set, or is about to be."""
        self._buckets.clear()
        self._boot = self._drift = None
        self._packets = 0

    def observe(self, received_us: int, clock_us: int, boot: int = 0) -> None:
        """Observe a packet received at real time `received_us`, sent in a boot when the clock showed `clock_us`."""
        behind_us = received_us - clock_us
        if (
            behind_us >= self._lowest_us
            and self._began_us <= received_us < self._began_us + BUCKET_US
            and boot == self._boot
        ):
            # As most packets, it does not have the least delay of its bucket.
            self._received_us = received_us
            self._packets += 1
            return
        number = received_us // BUCKET_US
        buckets = self._buckets
        if boot != self._boot or (buckets and (number < buckets[-1][0] or self._set_forward(received_us, behind_us))):
            self.restart()
            self._boot = boot
        self._received_us = received_us
        self._packets += 1
        if not buckets or number > buckets[-1][0]:
            self._close(received_us)
            buckets.append((number, received_us, behind_us))
            self._least_us = min(each[2] for each in buckets)
        elif behind_us < buckets[-1][2]:
            buckets[-1] = (number, received_us, behind_us)
            self._least_us = min(self._least_us, behind_us)
        self._began_us, self._lowest_us = number * BUCKET_US, buckets[-1][2]

    def delay_us(self, received_us: int, clock_us: int) -> int:
        """Return how much longer than the fastest ones a packet took, at least; 0 if that is not known.

        Where a clock runs as fast as real time, a packet that seems older than others was delayed on its way.
        """
        if self._drift is None or abs(self._drift) > FASTEST_DRIFT or not self._buckets:
            return 0
        drifted_us = FASTEST_DRIFT * max(0, received_us - self._buckets[0][1])
        return max(0, round(received_us - clock_us - self._least_us - drifted_us))

    def estimate(self) -> OffsetEstimate | None:
        """Return the offset as of the last packet; None before a few packets."""
        if self._packets < _FEWEST_PACKETS:
            return None
        at_us, drift = self._received_us, self._drift or 0.0
        level = [behind_us - drift * (received_us - at_us) for _, received_us, behind_us in self._buckets]
        lowest = min(level)
        first_us, last_us = self._buckets[0][1], self._buckets[-1][1]
        error = FASTEST_DRIFT * (at_us - first_us)
        if self._drift is not None:
            seen = 2 * (max(level) - lowest) * (at_us - first_us) / (last_us - first_us)
            error = min(2 * error, seen)
        ppm = None if self._drift is None else drift * 1e6
        return OffsetEstimate(round(lowest), round(error) + 1, ppm)

    def correction_us(self, tolerance_us: int | None) -> int | None:
        """Return by how much to move a clock that may be off by more than the tolerance; None to leave it alone."""
        if tolerance_us is None or self._drift is None:
            return None
        found = self.estimate()
        if found is None or abs(found.offset_us) <= found.error_us:
            return None  # a correction might make it worse
        return found.offset_us if abs(found.offset_us) + found.error_us > tolerance_us else None

    def _set_forward(self, received_us: int, behind_us: int) -> bool:
        """Whether the difference is smaller than drift explains: a delay cannot make it smaller."""
        if behind_us >= self._least_us - JUMP_US:
            return False
        least = min(each_us - FASTEST_DRIFT * (received_us - when_us) for _, when_us, each_us in self._buckets)
        return behind_us < least - JUMP_US

    def _close(self, received_us: int) -> None:
        """Close the last bucket, and forget those that are too old, or from before the clock was set back."""
        buckets = self._buckets
        while buckets and (len(buckets) >= MOST_BUCKETS or received_us - buckets[0][1] > MOST_AGE_US):
            del buckets[0]
        new, old = buckets[-2:], buckets[:-2]
        if old:
            # One bucket of late packets may be a busy network; two are not.
            most = max(behind_us + FASTEST_DRIFT * (received_us - when_us) for _, when_us, behind_us in old)
            if min(behind_us for _, _, behind_us in new) > most + JUMP_US:
                del buckets[:-2]
        self._drift = None
        if len(buckets) >= _FEWEST_CLOSED:
            pairs = combinations(buckets, 2)
            slopes = [(later[2] - sooner[2]) / (later[1] - sooner[1]) for sooner, later in pairs]
            self._drift = min(FASTEST_DRIFT, max(-FASTEST_DRIFT, median(slopes)))


MEASURE_EVERY_US = 500_000
"""The offset of a mote's clock is measured no more often than this."""


class MoteClock:
    """The clock of one mote.

    Parameters
    ----------
    bounds
        How far it may be from the time of day.
    tolerance_us
        A clock that may be off by more is corrected; None never corrects it.
    """

    __slots__ = ("_configured", "_measured_us", "_offset", "_tolerance_us", "bounds", "fault")  # one for each mote

    def __init__(self, bounds: ClockBounds, tolerance_us: int | None) -> None:
        self.bounds = bounds
        self.fault: ClockFault | None = None
        """How the clock is wrong. Until a packet shows that it is right again, the mote does not hold the watermark."""
        self._configured = bounds
        self._tolerance_us = tolerance_us
        self._offset = ClockOffset()
        self._measured_us = LOWEST_US

    def set_bounded(self, *, bounded: bool) -> None:
        """Hold the clock to its bounds, or lift them: a replay does not run on the time of day."""
        self.bounds = self._configured if bounded else UNBOUNDED

    def measure(self, packet: Packet, received_us: int) -> None:
        """Measure the offset by a packet, unless that was done a moment ago."""
        if 0 <= received_us - self._measured_us < MEASURE_EVERY_US:
            return
        self._measured_us = received_us
        self._offset.observe(received_us, packet.clock_us, packet.boot)

    @property
    def offset_us(self) -> int | None:
        """By how much the clock is behind real time; None before a few packets."""
        found = self._offset.estimate()
        return None if found is None else found.offset_us

    def wrong(self, packet: Packet, received_us: int, slack: Slack) -> WrongClock | None:
        """Return what is wrong with the clock by a packet of the mote; None if it may be right."""
        return wrong_clock(self.bounds, packet, received_us, slack)

    def mark_wrong(self, wrong: WrongClock) -> bool:
        """Note that the clock is wrong; return whether that is new."""
        changed = self.fault is not wrong.fault
        self.fault = wrong.fault
        return changed

    def mark_right(self) -> bool:
        """Note that the clock is right; return whether that is new."""
        changed = self.fault is not None
        self.fault = None
        return changed

    def oldest_stamp_us(self, received_us: int, slack: Slack) -> int | None:
        """Return the instant before which a right clock stamps no sample of a packet; None if there is none."""
        return oldest_stamp_us(self.bounds, received_us, slack)

    def listens(self, packet: Packet, received_us: int) -> bool:
        """Return whether the listen window of a packet is open: the packet was not held back until it had closed."""
        return self._offset.delay_us(received_us, packet.clock_us) < packet.listen_us

    def take_correction_us(self) -> int | None:
        """Return by how much the mote has to move its clock, and start a new estimate; None to leave it alone."""
        by_us = self._offset.correction_us(self._tolerance_us)
        if by_us is not None:
            self._offset.restart()  # later packets show whether the mote received the correction
        return by_us
