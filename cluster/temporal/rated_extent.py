"""A window that is allowed to keep fewer samples than it has: rows with their quality, and the accuracy of all. Pure.

Rows are only ever shortened from their ends (papers/cals.md section 2.5), so that the exact row of each is known, and
with it the share that is left: its *quality*. Accuracy (papers/cals.md section 1.5) is estimated while samples come:
rows of which nothing is left are counted by pieces of the window, and go as pieces do. It is exact until it slides.

It is one of the means against scarcity: what it would save, whose answers it would cost how much, apply, undo. Undoing
stops evicting; what was evicted stays lost, and counted.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from cluster.temporal.kept_samples import Piece, Sample
from cluster.temporal.shedding import DEFAULT, HeapShedder, Scoring
from cluster.temporal.windows import CountWindow, ExtentError, Key, Window

PIECES = 64
"""Of a window, by which its lost rows are counted, and its beginning is known."""
UNLIMITED = sys.maxsize


class RatedPiece(NamedTuple):
    """A row, and the share of its exact row that it covers."""

    piece: Piece
    quality: float


@dataclass(frozen=True)
class Offer:
    """What keeping fewer samples would mean now.

    Parameters
    ----------
    saved_samples
        How many go at once.
    accuracy
        Of the answers then, as estimated; before, see :attr:`RatedExtent.accuracy`.
    queries
        Whose answers these are.
    """

    saved_samples: int
    accuracy: float
    queries: tuple[str, ...]


@dataclass
class _Part:
    """A piece of the window: its first sample, and how many rows vanished that had their last one in it."""

    number: int
    start: int
    vanished: int = 0


class RatedExtent(HeapShedder):
    """Keeps all samples of a window until it is to keep fewer.

    Parameters
    ----------
    window
        The extent.
    queries
        Names of those that share it, all of which allow it.
    scoring
        As of :class:`HeapShedder`.
    """

    open_lasts = True
    """Whether the newest sample of a group holds until now; else only at its own instant, as far as is known."""

    def __init__(self, window: Window, queries: Iterable[str] = (), scoring: Scoring = DEFAULT) -> None:
        super().__init__(window, UNLIMITED, scoring)
        self.queries = tuple(queries)
        self._parts: deque[_Part] = deque()

    def offer(self, most: int, now_us: int) -> Offer:
        """Return what keeping at most so many would save and cost; nothing changes."""
        tried = self.restored(self.window, self.saved(), self.queries, self._scoring)
        tried.apply(most)
        return Offer(len(self.kept) - len(tried.kept), tried.accuracy(now_us), self.queries)

    def apply(self, most: int) -> int:
        """Keep at most so many from now on; return how many went at once."""
        if most < 1:
            raise ExtentError(f"room for {most} samples", hint="keep at least 1")
        self.most, before = most, self.dropped
        while len(self.kept) > most:
            self._make_room(next(reversed(self.kept.values())))
        return self.dropped - before

    def undo(self) -> None:
        """Stop evicting. What was evicted stays lost until the window has passed it."""
        self.most = UNLIMITED

    def rated(self, now_us: int) -> list[RatedPiece]:
        """Return the rows of what is kept, by start, each with its quality."""
        found: list[RatedPiece] = []
        for sample in self.kept.values():
            fragment = self._of.get(sample.number)
            if fragment is None or fragment.first is not sample:
                continue
            end = now_us if fragment.last.open and self.open_lasts else fragment.last.end
            quality = fragment.quality(end, self._begins())
            found.append(RatedPiece(Piece(sample.group, sample.values, sample.start, end), quality))
        return found

    def accuracy(self, now_us: int) -> float:
        """Return the estimated accuracy of the rows."""
        found = [each.quality for each in self.rated(now_us)]
        rows = len(found) + self.vanished
        return sum(found) / rows if rows else 1.0

    @property
    def vanished(self) -> int:
        """Of how many rows of the window nothing is left."""
        return sum(part.vanished for part in self._parts)

    def saved(self) -> dict[str, Any]:
        """Return its state as plain values."""
        return {
            "most": self.most,
            "arrived": self._arrived,
            "dropped": self.dropped,
            "samples": [
                (each.number, each.start, each.end, each.group, each.values, each.open) for each in self.kept.values()
            ],
            "last_numbers": sorted(
                ((group, number) for group, (number, _) in self._newest.items()), key=lambda each: each[1]
            ),
            "rows": [(number, each.begins, each.ends, each.origin) for number, each in sorted(self._of.items())],
            "parts": [(each.number, each.start, each.vanished) for each in self._parts],
        }

    @classmethod
    def restored(
        cls, window: Window, state: dict[str, Any], queries: Iterable[str] = (), scoring: Scoring = DEFAULT
    ) -> Self:
        """Return an extent of a state that was saved."""
        extent = cls(window, queries, scoring)
        extent._fill(state)
        return extent

    def _fill(self, state: dict[str, Any]) -> None:
        newest: dict[Key, Sample] = {}
        for number, start, end, group, values, is_open in state["samples"]:
            before = newest.get(group)
            sample = Sample(number, start, end, group, values, is_open, before=before)
            if before is not None:
                before.after = sample
            newest[group] = self.kept[number] = sample
            super()._added(sample)
            if not is_open:
                self._closed(sample)
        for number, begins, ends, origin in state["rows"]:
            fragment = self._of[number]
            fragment.begins, fragment.ends, fragment.origin = begins, ends, origin
        self._newest = {group: (number, newest[group]) for group, number in state["last_numbers"]}
        self.most, self._arrived, self.dropped = state["most"], state["arrived"], state["dropped"]
        self._parts = deque(_Part(*each) for each in state["parts"])

    def _begins(self) -> int:
        """Return when the window begins, by pieces, and by time no earlier than it reaches back."""
        newest = next(reversed(self.kept.values())).start
        first = self._parts[0].start
        return first if isinstance(self.window, CountWindow) else max(first, newest - self.window.length_us)

    def _added(self, new: Sample) -> None:
        super()._added(new)
        if isinstance(self.window, CountWindow):
            size, at, reached = self.window.samples, new.number, new.number - self.window.samples + 1
        else:
            size, at, reached = self.window.length_us, new.start, new.start - self.window.length_us
        if not self._parts or at >= self._position(self._parts[-1]) + max(1, -(-size // PIECES)):
            self._parts.append(_Part(new.number, new.start))
        while len(self._parts) > 1 and self._position(self._parts[1]) <= reached:
            self._parts.popleft()

    def _vanished(self, sample: Sample) -> None:
        if (part := self._part_of(sample.number)) is not None:
            part.vanished += 1

    def _found_again(self, number: int) -> None:
        """Note that a row goes on of which nothing was left, after its sample of a number."""
        if (part := self._part_of(number)) is not None:
            part.vanished -= 1

    def _part_of(self, number: int) -> _Part | None:
        return next((each for each in reversed(self._parts) if each.number <= number), None)

    def _position(self, part: _Part) -> int:
        return part.number if isinstance(self.window, CountWindow) else part.start
