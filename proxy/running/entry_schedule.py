"""When the catalog entry of a mote is published: soon after a change, seldom for counters, never too often.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class EntrySchedule:
    """The schedule of all entries of a proxy.

    Parameters
    ----------
    changed_interval_us
        At least this long between two entries of a mote.
    counters_interval_us
        The same if only counters have changed.
    """

    changed_interval_us: int
    counters_interval_us: int
    _published_us: dict[str, int] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _counted: set[str] = field(default_factory=set)

    def note(self, mote: str, *, changed: bool) -> None:
        """Note that an entry is new; `changed` if more than its counters has changed."""
        (self._changed if changed else self._counted).add(mote)

    def counted(self, motes: Iterable[str]) -> None:
        """Note that counters of motes have changed."""
        self._counted.update(motes)

    def forget_published(self) -> None:
        """Schedule all entries again: the broker may have lost them."""
        self._changed.update(self._published_us)

    def due(self, now_us: int) -> list[str]:
        """Return the motes whose entries are due, in order of their names, and mark them as published."""
        found = [mote for mote in self._changed if self._ready(mote, now_us, self.changed_interval_us)]
        found += [
            mote
            for mote in self._counted - self._changed
            if self._ready(mote, now_us, max(self.changed_interval_us, self.counters_interval_us))
        ]
        for mote in found:
            self._published_us[mote] = now_us
            self._changed.discard(mote)
            self._counted.discard(mote)
        found.sort()  # a set has another order in each process: a replay would publish otherwise
        return found

    def _ready(self, mote: str, now_us: int, interval_us: int) -> bool:
        published_us = self._published_us.get(mote)
        return published_us is None or now_us - published_us >= interval_us
