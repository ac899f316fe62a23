"""Which sealed frames were seen before, and how those that are sent are counted.

Pure. A counter is the number of a connection, and below it that of a frame::

    connection 1764057600    1  2  3  4 ...... 4294967295      the last number is that of the will
    connection 1764057723    1  2 ...

Connections are numbered by the time of day in seconds, and by one more than the last where that is not later: a clock
that is set back does no harm, nor does a data folder that is restored from a copy; only both together do. A receiver
accepts of each topic what has a higher counter than all before. The broker sends what it retains again: the same frame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from protocols.errors import FrameError

_NUMBER_BITS: Final = 32
WILL: Final = 2**_NUMBER_BITS - 1
"""The number of the will: it is sealed first, and published last."""


class SentCounter:
    """Counts the frames that a part sends.

    Parameters
    ----------
    connection
        The number of the last connection.
    """

    def __init__(self, connection: int = 0) -> None:
        self.connection = connection
        self._number = 0

    def connect(self, now_seconds: int) -> None:
        """Begin a connection."""
        self.connection = max(self.connection + 1, now_seconds)
        self._number = 0

    def next(self) -> int:
        """Return the counter of the next frame; raises OverflowError after so many that none is left."""
        self._number += 1
        if self._number >= WILL:
            raise OverflowError("a connection has at most 2^32 - 2 frames")
        return self.connection << _NUMBER_BITS | self._number

    def of_will(self) -> int:
        """Return the counter of the will of this connection."""
        return self.connection << _NUMBER_BITS | WILL


class SeenCounters:
    """The highest counter of each topic, of a bounded number of topics.

    Parameters
    ----------
    seen
        From before a restart.
    bound_of
        With which others a topic is counted, and how many there may be of these. None: as many as there are.
    """

    def __init__(
        self, seen: Mapping[str, int] | None = None, *, bound_of: Callable[[str], tuple[str, int]] | None = None
    ) -> None:
        self.seen: dict[str, int] = dict(seen or {})
        self._bound_of = bound_of
        self._topics: Counter[str] = Counter(bound_of(each)[0] for each in self.seen) if bound_of else Counter()

    def accept(self, topic: str, counter: int, *, retained: bool) -> None:
        """Accept a frame whose seal is right.

        Raises
        ------
        FrameError
            With reason ``replayed`` if it, or a later one, was accepted before; ``too_many_topics`` if it is the first
            on its topic, and there are as many as there may be.
        """
        last = self.seen.get(topic)
        if last is None:
            self._add(topic)
        elif counter < last or (counter == last and not retained):
            raise FrameError("replayed", f"frame {counter} came after frame {last}")
        self.seen[topic] = counter

    def _add(self, topic: str) -> None:
        if self._bound_of is None:
            return
        counted, most = self._bound_of(topic)
        if self._topics[counted] >= most:
            raise FrameError("too_many_topics", f"there are {most} topics of this kind already")
        self._topics[counted] += 1
