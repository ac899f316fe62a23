"""The rows of a window that keeps at most so many samples, from when until when each is shown. Pure.

Samples come in their final order, with their places in runs. What is kept of a run is one row, since only ends of rows
are ever dropped (cluster/temporal/shedding.py). A window by time without a slide, or by count, changes where
samples come, go and expire, and only rows that change are shown anew; one that slides is shown whole at each border:

    slide 5     |---------)---------)      border 9 shows samples up to stamp 9, and those that are still in the window

How much of its exact row a row covers is known (cluster/temporal/rated_extent.py): what was dropped at its beginning
counts from where the window begins, which is known to a 64th of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from cluster.temporal.kept_samples import Sample
from cluster.temporal.rated_extent import PIECES, Offer, RatedExtent
from cluster.temporal.shedding import DEFAULT, Fragment, Scoring
from cluster.temporal.windows import CountWindow, Key, TimeWindow, Window

FOR_EVER = 2**62
"""The watermark of a stream that has ended, and the end of what is shown for ever."""


FEWEST_LOST = 64
"""So many rows of which nothing is left are noted before those are forgotten that the window has passed."""


class Numbered(NamedTuple):
    """A sample, with its place in a run."""

    stamp: int
    group: Key
    run: int
    """Neighbours of a group with the same number are linked."""
    values: tuple[Any, ...]
    """What a row shows that begins with it."""


class Content(NamedTuple):
    """A coalesced row: its values, its interval, and the share of its exact row that it covers."""

    values: tuple[Any, ...]
    begin: int
    end: int
    quality: float


class Lost(NamedTuple):
    """A row of which nothing is left: its run, where it began, and the sample that was dropped last."""

    run: int
    begins: int
    number: int
    start: int


class Shown(NamedTuple):
    """A row, and from when until just before when it is shown."""

    since: int
    until: int
    content: Content


class _Tracked(RatedExtent):
    """Notes which fragments have changed. Those that are gone are None."""

    tied = True
    open_lasts = False

    def __init__(self, window: Window, queries: Iterable[str] = (), scoring: Scoring = DEFAULT) -> None:
        super().__init__(window, queries, scoring)
        self.values: dict[int, tuple[Any, ...]] = {}
        self.changed: dict[int, Fragment | None] = {}
        self.live: dict[int, Fragment] = {}
        self.lost: dict[Key, Lost] = {}
        """By group: the last row of which nothing was left, as its run may go on."""
        self._most_lost = FEWEST_LOST

    def expire(self, stamp: int) -> None:
        """Remove what is not in a window by time any more at an instant."""
        self._expire(0, stamp)

    @property
    def first_stamp(self) -> int:
        """Where a window by count begins, to a 64th of it."""
        return self._parts[0].start

    @property
    def arrived(self) -> int:
        """How many samples have come."""
        return self._arrived

    def _added(self, new: Sample) -> None:
        super()._added(new)
        fragment = self._of[new.number]
        self.live[fragment.origin] = self.changed[fragment.origin] = fragment
        if fragment.first is not new:
            return
        lost = self.lost.pop(new.group, None)
        if lost is not None and (lost.run,) == new.values and self._lives(lost, new):
            fragment.begins = lost.begins  # the row goes on, and is not another one
            self._found_again(lost.number)

    def _lives(self, lost: Lost, newest: Sample) -> bool:
        """Return whether the window still has the sample that was dropped last."""
        if isinstance(self.window, CountWindow):
            return lost.number > newest.number - self.window.samples
        return lost.start >= newest.start - self.window.length_us

    def _note(self, sample: Sample, fragment: Fragment) -> None:
        self.lost[sample.group] = Lost(sample.values[0], fragment.begins, sample.number, sample.start)
        if len(self.lost) > self._most_lost:
            newest = next(reversed(self.kept.values()))
            self.lost = {group: each for group, each in self.lost.items() if self._lives(each, newest)}
            self._most_lost = max(FEWEST_LOST, 2 * len(self.lost))

    def _closed(self, sample: Sample) -> None:
        super()._closed(sample)
        fragment = self._of[sample.number]
        self.changed[fragment.origin] = fragment

    def _removed(self, sample: Sample, *, expired: bool) -> None:
        fragment = self._of.get(sample.number)
        super()._removed(sample, expired=expired)
        self.values.pop(sample.number, None)
        if fragment is not None:
            gone = fragment.offer < 0
            self.changed[fragment.origin] = None if gone else fragment
            if gone:
                del self.live[fragment.origin]
            if gone and not expired:
                self._note(sample, fragment)

    def saved(self) -> dict[str, Any]:
        """Return its state as plain values."""
        return {**super().saved(), "lost": [(group, *each) for group, each in self.lost.items()]}

    def _fill(self, state: dict[str, Any]) -> None:
        super()._fill(state)
        self.live = {each.origin: each for each in self._of.values()}
        self.changed = {}
        self.lost = {group: Lost(*each) for group, *each in state["lost"]}


class KeptRows:
    """Rows of what is kept of a window.

    Parameters
    ----------
    window
        The window. One by time has a length one less than its size: the instants at which a sample counts.
    most
        How many samples are kept; at least 1.
    slide
        After how many microseconds, or samples, the window moves.
    """

    def __init__(self, window: Window, most: int, slide: int = 1) -> None:
        self.extent = _Tracked(window)
        self.extent.most = most
        self._slide = slide
        self._shown: dict[int, tuple[int, Content]] = {}
        self._lossy: set[int] = set()
        """Origins of rows that have lost a part of their beginning that is still in the window."""
        self._begins: int | None = None
        """Where the window began when rows were last settled."""
        self._now: int | None = None
        """The last stamp, while what it changed is not settled."""
        self._rows: tuple[float, int] | None = None
        """Sum of the qualities of the rows that were shown last, and how many they were."""
        self._border: int | None = None
        """The next border of a window that slides by time, while it keeps something."""

    @property
    def dropped(self) -> int:
        """How many samples have gone for lack of room."""
        return self.extent.dropped

    @property
    def earliest(self) -> int | None:
        """Since when the row is shown that has been shown longest."""
        return min((since for since, _ in self._shown.values()), default=None)

    @property
    def accuracy(self) -> float | None:
        """The accuracy of the rows that were shown last, as estimated; 1 if nothing was lost, None before any were."""
        if self._rows is None:
            return None
        total, rows = self._rows
        rows += self.extent.vanished
        return total / rows if rows else 1.0

    def offer(self, most: int) -> Offer:
        """Return what keeping at most so many would save and cost now; nothing changes."""
        newest = next((each.start for each in reversed(self.extent.kept.values())), 0)
        return self.extent.offer(most, newest)

    def apply(self, most: int) -> int:
        """Keep at most so many from now on; return how many go at once. Rows change with the next sample or event."""
        return self.extent.apply(most)

    def undo(self) -> None:
        """Stop dropping. What was dropped stays lost until the window has passed it."""
        self.extent.undo()

    def take(self, samples: Iterable[Numbered], watermark: int) -> list[Shown]:
        """Take samples, which come in order, and return the rows that have ended before a watermark.

        No sample will come before the watermark any more.
        """
        found: list[Shown] = []
        for stamp, group, run, values in samples:
            self._pass(stamp, found)
            number = self.extent.arrived
            self.extent.values[number] = values
            self.extent.arrive(stamp, (run,), group)
            self._now = stamp
            if isinstance(self.extent.window, CountWindow):
                if self.extent.arrived % self._slide == 0:
                    self._settle(stamp, found)
            elif self._slide > 1 and self._border is None:
                self._border = stamp // self._slide * self._slide + self._slide - 1
        self._pass(watermark, found)
        if watermark >= FOR_EVER:
            found.extend(Shown(since, FOR_EVER, each) for since, each in self._shown.values())
            self._shown.clear()
        return found

    def cut(self, watermark: int) -> list[Shown]:
        """Return all rows up to the watermark; they are shown anew from there on."""
        found = [Shown(since, watermark, each) for since, each in self._shown.values() if since < watermark]
        self._shown = {origin: (max(since, watermark), each) for origin, (since, each) in self._shown.items()}
        return found

    def _pass(self, limit: int, found: list[Shown]) -> None:
        """Show what changes before an instant."""
        window = self.extent.window
        if isinstance(window, CountWindow):
            return
        if self._slide > 1:
            self._show_borders(limit, found)
            return
        if self._now is not None and self._now < limit:
            self._settle(self._now, found)
        while self.extent.kept and self._now is None:
            oldest = next(iter(self.extent.kept.values()))
            following = oldest.start + window.length_us + 1
            if self._lossy and self._begins is not None:
                following = min(following, self._begins + _piece(window) + window.length_us)
            if following >= limit:
                return
            self.extent.expire(following)
            self._settle(following, found)

    def _show_borders(self, limit: int, found: list[Shown]) -> None:
        while self._border is not None and self._border < limit:
            border = self._border
            self.extent.expire(border)
            begins = self._window_begins(border)
            until = border + self._slide
            rows = [Shown(border, until, self._content(each, begins)) for each in self.extent.live.values()]
            self._rows = sum(each.content.quality for each in rows), len(rows)
            found.extend(rows)
            self.extent.changed.clear()
            self._border = until if self.extent.kept else None

    def _settle(self, instant: int, found: list[Shown]) -> None:
        """Show the rows that have changed, and from now on, in place of those before."""
        self._now = None
        begins, changed = self._window_begins(instant), self.extent.changed
        if begins != self._begins:
            self._begins = begins
            for origin in self._lossy:
                changed.setdefault(origin, self.extent.live.get(origin))
        total = self._rows[0] if self._rows else sum(each.quality for _, each in self._shown.values())
        for origin, fragment in changed.items():
            content = None if fragment is None else self._content(fragment, begins)
            if fragment is not None and fragment.begins < fragment.first.start and begins < fragment.first.start:
                self._lossy.add(origin)
            else:
                self._lossy.discard(origin)
            since, before = self._shown.get(origin, (instant, None))
            if content == before:
                continue
            total += (content.quality if content else 0.0) - (before.quality if before else 0.0)
            if before is not None and since < instant:
                found.append(Shown(since, instant, before))
            if content is None:
                del self._shown[origin]
            else:
                self._shown[origin] = (instant, content)
        changed.clear()
        self._rows = total, len(self._shown)

    def _window_begins(self, instant: int) -> int:
        """Return where the window of an instant begins: the multiple of a 64th of it, or the sample, before."""
        window = self.extent.window
        if isinstance(window, CountWindow):
            return self.extent.first_stamp
        piece = _piece(window)
        return (instant - window.length_us) // piece * piece

    def _content(self, fragment: Fragment, begins: int) -> Content:
        begin, end = fragment.first.start, fragment.last.end
        return Content(self.extent.values[fragment.first.number], begin, end, fragment.quality(end, begins))

    def saved(self) -> dict[str, Any]:
        """Return its state as plain values."""
        return {
            "extent": self.extent.saved(),
            "values": self.extent.values,
            "changed": [*self.extent.changed],
            "shown": [(origin, since, *content) for origin, (since, content) in self._shown.items()],
            "lossy": sorted(self._lossy),
            "begins": self._begins,
            "border": self._border,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state that was saved."""
        self.extent = _Tracked.restored(self.extent.window, state["extent"])
        self.extent.values = dict(state["values"])
        self.extent.changed = {origin: self.extent.live.get(origin) for origin in state["changed"]}
        self._shown = {
            origin: (since, Content(values, begin, end, quality))
            for origin, since, values, begin, end, quality in state["shown"]
        }
        self._lossy, self._rows = set(state["lossy"]), None
        self._begins, self._border = state["begins"], state["border"]


def _piece(window: TimeWindow) -> int:
    return -(-(window.length_us + 1) // PIECES)
