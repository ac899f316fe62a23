"""Parallel track, the older way to change running plans: a baseline (papers/pipes_migration.md section 2).

Tuples are fed one by one, in start order. Each is *new* if it came after the start of the migration, and what is made
of tuples is new if all of them are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Element:
    """A tuple with its validity, and whether it is new.

    What joins make of tuples is kept as long as the latest of these: in this strategy a tuple has the stamps of all
    that it is made of, and leaves a window by the greatest.
    """

    start: int
    end: int
    values: tuple[int | str, ...]
    new: bool = False
    kept_until: int | None = None

    @property
    def until(self) -> int:
        """When it is forgotten."""
        return self.end if self.kept_until is None else self.kept_until


class Box(Protocol):
    """A plan, or a part of one, whose operators keep what they need."""

    def feed(self, stream: str, element: Element) -> list[Element]:
        """Take a tuple of a stream; return what is made of it."""

    def kept(self) -> Iterator[Element]:
        """Yield what operators keep; tuples of streams come once for each operator that keeps them."""

    def purge(self, now: int) -> None:
        """Forget what has ended."""


@dataclass
class Input:
    """A stream."""

    name: str

    def feed(self, stream: str, element: Element) -> list[Element]:
        """Return the tuple if it is of this stream."""
        return [element] if stream == self.name else []

    def kept(self) -> Iterator[Element]:
        """Yield nothing."""
        return iter(())

    def purge(self, now: int) -> None:
        """Do nothing."""


@dataclass
class HashJoin:
    """A symmetric join of a value of each side."""

    left: Box
    right: Box
    left_place: int
    right_place: int
    sides: tuple[dict[int | str, list[Element]], dict[int | str, list[Element]]] = field(
        default_factory=lambda: ({}, {})
    )

    def feed(self, stream: str, element: Element) -> list[Element]:
        """Join what the inputs make of a tuple with what the other side has kept."""
        found = []
        for side, box in enumerate((self.left, self.right)):
            for each in box.feed(stream, element):
                key = each.values[(self.left_place, self.right_place)[side]]
                for other in self.sides[1 - side].get(key, []):
                    if other.end > each.start:
                        one, two = (each, other) if side == 0 else (other, each)
                        found.append(
                            Element(
                                max(one.start, two.start),
                                min(one.end, two.end),
                                one.values + two.values,
                                one.new and two.new,
                                max(one.until, two.until),
                            )
                        )
                self.sides[side].setdefault(key, []).append(each)
        return [each for each in found if each.start < each.end]

    def kept(self) -> Iterator[Element]:
        """Yield both sides."""
        for side in self.sides:
            for elements in side.values():
                yield from elements
        yield from self.left.kept()
        yield from self.right.kept()

    def purge(self, now: int) -> None:
        """Forget what has ended."""
        for side in self.sides:
            for key, elements in list(side.items()):
                left = [each for each in elements if each.until > now]
                if left:
                    side[key] = left
                else:
                    del side[key]
        self.left.purge(now)
        self.right.purge(now)


@dataclass
class Duplicates:
    """DISTINCT: the parts of each tuple that no earlier equal one covers."""

    below: Box
    covered: dict[tuple[int | str, ...], list[Element]] = field(default_factory=dict)

    def feed(self, stream: str, element: Element) -> list[Element]:
        """Return what is not covered yet; tuples come in start order, so that it is a tail."""
        found = []
        for each in self.below.feed(stream, element):
            known = self.covered.setdefault(each.values, [])
            start = max([each.start, *(other.end for other in known)])
            if start < each.end:
                part = Element(start, each.end, each.values, each.new)
                known.append(part)
                found.append(part)
        return found

    def kept(self) -> Iterator[Element]:
        """Yield what is covered."""
        for elements in self.covered.values():
            yield from elements
        yield from self.below.kept()

    def purge(self, now: int) -> None:
        """Forget what has ended."""
        self.covered = {
            values: left
            for values, elements in self.covered.items()
            if (left := [each for each in elements if each.end > now])
        }
        self.below.purge(now)


@dataclass
class FirstColumn:
    """Each tuple's first value only."""

    below: Box

    def feed(self, stream: str, element: Element) -> list[Element]:
        """Return what is made of a tuple, with the first value."""
        return [Element(each.start, each.end, each.values[:1], each.new) for each in self.below.feed(stream, element)]

    def kept(self) -> Iterator[Element]:
        """Yield what is kept below."""
        return self.below.kept()

    def purge(self, now: int) -> None:
        """Forget what has ended."""
        self.below.purge(now)


class ParallelTrack:
    """Both plans beside each other, until the old one holds no old tuple.

    Parameters
    ----------
    old, new
        The plans.
    """

    def __init__(self, old: Box, new: Box) -> None:
        self._old: Box | None = old
        self._new = new
        self._began = False
        self._buffer: list[Element] = []
        self.ended_at: int | None = None

    def begin(self) -> None:
        """Begin the migration."""
        self._began = True

    def feed(self, stream: str, element: Element) -> list[Element]:
        """Take a tuple, in start order; return what is published."""
        now = element.start
        element = Element(element.start, element.end, element.values, self._began)
        if self._old is None:
            self._new.purge(now)
            return self._new.feed(stream, element)
        self._old.purge(now)
        found = [each for each in self._old.feed(stream, element) if not each.new]
        if not self._began:
            return found
        self._new.purge(now)
        self._buffer += self._new.feed(stream, element)
        if all(each.new for each in self._old.kept()):
            self._old, self.ended_at = None, now
            found += self._buffer
            self._buffer = []
        return found

    def kept(self) -> int:
        """Return how many tuples are kept: by each operator of both plans, and in the buffer."""
        boxes = [box for box in (self._old, self._new if self._began else None) if box is not None]
        return sum(1 for box in boxes for _ in box.kept()) + len(self._buffer)


def run(migration: ParallelTrack, arrivals: Iterable[tuple[str, Element]], begin: int) -> list[Element]:
    """Feed tuples, and begin the migration before the first that starts at an instant or later."""
    found: list[Element] = []
    began = False
    for stream, element in arrivals:
        if not began and element.start >= begin:
            migration.begin()
            began = True
        found += migration.feed(stream, element)
    return found


def multiplicities(elements: Iterable[Element], instants: Iterable[int]) -> Mapping[int, int]:
    """Return how many tuples are valid at each instant."""
    listed = list(elements)
    return {at: sum(each.start <= at < each.end for each in listed) for at in instants}
