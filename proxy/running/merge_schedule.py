"""Which demands wait for a merge, which are taken at once, and how long the pause after a merge is.

Pure. The latest demand on a stream replaces those that wait; a demand is never taken before an earlier one on its
stream, or the earlier one would be the last word::

    received   a1 a2 b1              a3              c1 (of a stream without motes)
    merge            a2 . b1 .  pause    a3 .  pause taken at once
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from protocols.mqtt.messages import Message
from protocols.wire.demands import RefusedDemand, StreamDemand

SHARE: Final = 4
"""Between two merges lies a pause so many times as long as the first took: they take a fifth of the time at most."""
SHORTEST_PAUSE_SECONDS = 0.5
"""The least pause between two merges. Motes take programs in their listen windows, seconds apart: more merges make
little earlier, and while queries are added one by one each costs as much as hundreds of packets."""
LONGEST_PAUSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ReceivedDemand:
    """The latest demand on a stream, the demands in it that could not be decoded, and the message that contained it."""

    demand: StreamDemand
    unreadable: tuple[RefusedDemand, ...]
    message: Message


@dataclass(slots=True)
class MergeSchedule:
    """The demands of one proxy that are not merged yet."""

    under_way: bool = False
    """Whether a merge is being made."""
    _waiting: dict[str, ReceivedDemand] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether no demand waits."""
        return not self._waiting

    def received(self, latest: ReceivedDemand, *, has_motes: bool) -> bool:
        """Note a demand; return whether to take it at once, else it waits.

        Parameters
        ----------
        latest
            Replaces earlier ones on its stream that wait.
        has_motes
            Whether its stream has motes; if not, there is nothing to merge.
        """
        if not self.under_way and not has_motes:
            self._waiting.pop(latest.demand.stream, None)
            return True
        self._waiting[latest.demand.stream] = latest
        return False

    def take(self) -> list[ReceivedDemand]:
        """Remove and return the demands that wait, one of each stream: to be merged now, one after the other."""
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())


def pause_seconds(took_seconds: float) -> float:
    """Return how long to pause after merges that took so long."""
    return max(SHORTEST_PAUSE_SECONDS, min(SHARE * took_seconds, LONGEST_PAUSE_SECONDS))
