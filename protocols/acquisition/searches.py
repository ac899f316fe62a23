"""The searches for programs of a stream's sensors, kept from one change of demand to the next.

A search remembers what it has found and priced, so that one more demand costs what is new about it. What it remembers
holds for the values observed when it began.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from protocols.acquisition.effort import Effort
from protocols.acquisition.observed import Observed
from protocols.acquisition.pricing import Sensor
from protocols.acquisition.program_reports import Abilities, ProgramStyle
from protocols.acquisition.search import Search
from protocols.wire.streams import FieldName

MOST_SEARCHES = 64
"""Kinds of sensors whose searches are kept, the latest."""
MOST_REMEMBERED = 50_000
"""The most that all searches together remember; with more, they begin anew. Each takes about a kibibyte."""
TIMES_AS_MANY = 4
"""When so many times as many values were observed, programs are chosen by them."""


class Searches:
    """Searches for all kinds of sensors of one stream.

    Parameters
    ----------
    style
        The deployer's choices.
    observed
        Statistics of the stream's values; those of now are taken.
    """

    def __init__(self, style: ProgramStyle, observed: Observed) -> None:
        self.observed = observed.copy()
        self._style = style
        self._kept: OrderedDict[tuple[tuple[FieldName, ...], int, int, Abilities], Search] = OrderedDict()
        self._used = Lock()

    def outdated(self, observed: Observed) -> bool:
        """Return whether much more has been observed since."""
        return observed.seen > 0 and observed.seen >= TIMES_AS_MANY * self.observed.seen

    @contextmanager
    def lend(self, sensor: Sensor, effort: Effort) -> Iterator[Search]:
        """Lend the search for one kind of sensor.

        One thread at a time has the searches that are kept. Another gets a new one, as it must not wait.

        Parameters
        ----------
        sensor
            Which.
        effort
            The steps that the search may take.
        """
        if not self._used.acquire(blocking=False):
            yield Search(sensor, self._style, self.observed, effort)
            return
        try:
            # Kept searches keep their profiles, so that no other has the identity of one.
            key = (sensor.order, sensor.minimum_period_us, id(sensor.profile), sensor.abilities)
            search = self._kept.pop(key, None) or Search(sensor, self._style, self.observed, effort)
            search.resume(effort)
            yield search
            self._kept[key] = search  # unless it failed
            self._forget_some()
        finally:
            self._used.release()

    def _forget_some(self) -> None:
        if len(self._kept) > MOST_SEARCHES:
            self._kept.popitem(last=False)
        if sum(each.remembered for each in self._kept.values()) > MOST_REMEMBERED:
            self._kept.clear()
