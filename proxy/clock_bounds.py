"""Whether a mote's clock can be right: how far what a packet says may be from the proxy's time of its receipt. Pure.

A clock that is wrong by years must cost its mote only. So what it stamps is not taken, and its promise counts for
nothing, until a packet shows that it is right again::

    time of day   ------|---------------------- heard ----|------>
                        |<------ behind_us ------>|<----->| ahead_us
    clock, promise      |   of a mote taken for right     |

It is the receipt at the proxy that counts: a batch may then wait in the spool for as long as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from protocols.wire.catalog import ClockFault
from protocols.wire.packets import Packet
from protocols.wire.programs import SamplingProgram, VehicleEvents, parts_of

_NO_BOUND_US = 2**63
"""Further apart than any two instants on the wire."""


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """How far a mote's clock may be from the time of day.

    Parameters
    ----------
    ahead_us, behind_us
        In either direction, in microseconds; None does not look.
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
"""For clocks that are no time of day, as in a replay, and for stamps that something else has checked."""


@dataclass(frozen=True, slots=True)
class Slack:
    """By how much mote_watermarks and samples may honestly be away from the clock that made them.

    Parameters
    ----------
    promise_us
        A promise may be ahead of the clock by the longest period the mote still follows.
    age_us
        The oldest sample a packet may carry is so old, and a promise as far behind; None for as old as can be.
    """

    promise_us: int = 0
    age_us: int | None = 0


@dataclass(frozen=True, slots=True)
class WrongClock:
    """A clock that cannot be right: in which direction, and by how much at least."""

    fault: ClockFault
    by_us: int


def wrong_clock(bounds: ClockBounds, packet: Packet, received_us: int, slack: Slack) -> WrongClock | None:
    """Return what is wrong with the clock of the mote that sent a packet; None if it may be right.

    Parameters
    ----------
    bounds
        How wrong it may be.
    packet
        What it said.
    received_us
        The proxy's time of day when it was received.
    slack
        What the mote's programs explain.
    """
    ahead_us = max(packet.clock_us, packet.promise_us - slack.promise_us) - received_us
    if ahead_us > bounds.latest_us:
        return WrongClock(ClockFault.AHEAD, ahead_us)
    behind_us = received_us - packet.clock_us
    if slack.age_us is not None:
        behind_us = max(behind_us, received_us - packet.promise_us - slack.age_us)
    if behind_us > bounds.earliest_us:
        return WrongClock(ClockFault.BEHIND, behind_us)
    return None


def oldest_stamp_us(bounds: ClockBounds, received_us: int, slack: Slack) -> int | None:
    """Return the instant before which no sample of a right clock is stamped in a packet; None if there is none."""
    if bounds.behind_us is None or slack.age_us is None:
        return None
    return received_us - bounds.behind_us - slack.age_us


def slack_of(programs: tuple[SamplingProgram | None, ...]) -> Slack:
    """Return what the programs that a mote may follow explain; None is one that the proxy does not know."""
    periods = [each.period_us for each in programs if each is not None]
    ages = [None if each is None else longest_age_us(each) for each in programs]
    known = [each for each in ages if each is not None]
    return Slack(max(periods, default=0), max(known, default=0) if len(known) == len(ages) else None)


@lru_cache(maxsize=4_096)
def longest_age_us(program: SamplingProgram) -> int | None:
    """Return how old a record is at most when it is sent; None where nobody can tell, as an event may last.

    Examples
    --------
    >>> longest_age_us(SamplingProgram(("speed",), 1_000_000, samples_per_packet=9)) // 1_000_000
    12
    """
    intervals = []
    for part in parts_of(program):
        if isinstance(part.report, VehicleEvents):
            return None
        intervals.append(max(part.period_us, part.interval_us or 0))
    # A packet leaves when it is full, when its records have no patience left, or when the mote listens.
    return (program.samples_per_packet + 1) * max(intervals) + program.patience_us + program.listen.every_us
