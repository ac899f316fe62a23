"""How far behind a deployment may be while nothing goes wrong: the more, the more seldom its cluster stores batches.

That a bound holds is what is tested, not how small it is: a schedule whose cluster commits twice as often takes half as
long again to run, and finds nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.fault_kinds import LOSING

if TYPE_CHECKING:
    from tests.simulation.schedules import Schedule

CAPACITY = 3.0
"""A proxy may send this many times what its motes give: so what waited while something was wrong is soon delivered."""
OFTEN_SECONDS = 6.0
"""A cluster that commits at least so often keeps within the bounds that stand below."""


class Bounds(NamedTuple):
    """What is allowed.

    Parameters
    ----------
    settled_seconds
        So long after the last fault everything works again: a hung connection is given up after 15 s, a broker that was
        away is tried again within 15 s, and answers within 10.
    unacknowledged_seconds
        Then a spooled batch is stored within this time.
    lag_us
        And so far are watermarks and the newest samples behind, at most: three samples of 4 s may fill a packet.
    """

    settled_seconds: float = 40.0
    unacknowledged_seconds: float = 30.0
    lag_us: int = 45_000_000


def bounds_of(schedule: Schedule) -> Bounds:
    """Return the bounds of a schedule: a batch that was sent in vain may miss a commit, and wait for the next one.

    After losses a proxy lets a quarter of its batches be on their way, and needs two commits more until it lets all.
    """
    commits = 4 if any(each.kind == LOSING for each in schedule.faults) else 2
    later_seconds = commits * max(0.0, commit_seconds(schedule) - OFTEN_SECONDS)
    often = Bounds()
    return Bounds(
        often.settled_seconds + later_seconds,
        often.unacknowledged_seconds + later_seconds,
        often.lag_us + round(later_seconds * 1e6),
    )


def commit_seconds(schedule: Schedule) -> float:
    """Return how often batches are stored: as seldom as was drawn, if that leaves the slowest proxy some capacity."""
    longest = schedule.commit_seconds
    for number, proxy in enumerate(schedule.proxies):
        motes = sum(mote.proxy == number for mote in schedule.motes)
        # Motes' clocks differ: samples of one period may come between different flushes.
        flushes = min(motes, schedule.period_us // proxy.settings["flush_interval"])
        batches = max(1, flushes, -(-motes // proxy.settings["batch_rows"]))
        seconds = proxy.settings["in_flight"] * schedule.period_us / 1e6
        longest = min(longest, seconds / (CAPACITY * batches))
    return round(longest, 1)
