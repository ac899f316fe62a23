"""An extent of samples as they came, coalesced when it is read (papers/coalescing.md sections 2.2 and 2.7). Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, TypeAlias

from cluster.temporal.windows import Key, Link, Position, rank
from tests.cluster.temporal.runs import Coalesced, coalesced

Row: TypeAlias = tuple[Any, ...]
"""Values of all attributes of a stream, in the order of its schema."""


class LazyExtent:
    """Whole samples in the order of their stamps, shared by all queries that read them lazily.

    A sample in order is appended; a late one moves those after it, and a position is found by halving.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[Position, Row]] = []

    def __len__(self) -> int:
        """Return how many samples it holds."""
        return len(self._rows)

    def insert(self, stamp: int, key: Key, row: Row) -> None:
        """Add a sample that has been accepted."""
        position = (stamp, rank(key))
        if not self._rows or self._rows[-1][0] < position:
            self._rows.append((position, row))
        else:
            insort(self._rows, (position, row), key=lambda entry: entry[0])

    def expire(self, oldest: Position | None) -> None:
        """Drop what is before the oldest live position, all if there is none."""
        if oldest is None:
            self._rows.clear()
        elif self._rows and self._rows[0][0] < oldest:
            del self._rows[: bisect_left(self._rows, oldest, key=lambda entry: entry[0])]

    def scan(self, groups: tuple[int, ...], attributes: tuple[int, ...], link: Link) -> list[Coalesced]:
        """Coalesce: one pass, one call of `link` for each sample. Places are those of the schema."""
        return coalesced(
            (
                (position[0], tuple(row[each] for each in groups), tuple(row[each] for each in attributes))
                for position, row in self._rows
            ),
            link,
        )

    def rows(self) -> list[tuple[int, Row]]:
        """Return all samples, in order."""
        return [(position[0], row) for position, row in self._rows]

    def bytes(self, row_bytes: int) -> int:
        """Return what it takes to store, if each sample takes `row_bytes`."""
        return len(self._rows) * row_bytes
