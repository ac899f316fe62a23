"""Whether a mote's clock can be right: how far its instants may be from the proxy's time of their receipt. Pure.

A clock that is wrong by years must cost its own mote only. So its samples are rejected, and its low watermark is
ignored, until a packet shows that the clock is right again::

    time of day            ------|------------------- receipt ----|------>
                                 |<----- behind_us ----->|<------>| ahead_us
    clock, low watermark         |      within these bounds       |

The receipt at the proxy counts: a batch may wait in the spool for any time afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from protocols.wire.catalog import ClockFault
from protocols.wire.packets import Packet
from protocols.wire.programs import SamplingProgram, VehicleEvents, reports_of

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
