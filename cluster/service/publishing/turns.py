"""Turns between queries: one with very many rows in a commit falls behind alone, all others go on. Pure.

**How far publication is, in front or of a query that is behind: what is on its way, and what the broker has.**

    sent           [  a  ][  b  ][  c  ]     chunks in flight: few at a time, each begins where the one before ends
    acknowledged       ^                     moves with the oldest of them only

    commits    [ 1 ][ 2                                ][ 3 ][ 4 ][ 5 ]
    a, b, c    =======...............................====================     in front
    q          ========|                                               ===    in front, but for its rows from | up to |
    q                  |===============================================|      behind, from its own position

A query's rows are published behind only once all rows before them are acknowledged, and in front again only from a
commit on of which the front has read nothing when all those behind are acknowledged. So they never overtake each other,
whichever chunks are on their way, and the front waits for none of them. Queries that are behind take turns.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cluster.service.publishing.published import ALL_SHARDS, Position, shard_of
from cluster.service.publishing.result_chunks import Chunk

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

CHUNKS_IN_FLIGHT = 3


class LostCommits(NamedTuple):
    """Commits that are gone before they were published.

    Parameters
    ----------
    through
        The last of them: publication goes on after it.
    commits, rows
        How many, and how many rows of them had not been published; rows as far as is known.
    """

    through: int
    commits: int
    rows: int


class PublishingPosition:
    """How far one publisher is.

    Parameters
    ----------
    position
        What has been published, as it was noted.
    """

    def __init__(self, position: Position) -> None:
        self.acknowledged = position
        """Up to here the broker has everything; what is noted on disk may be behind it."""
        self.rows = 0
        """How many rows it has acknowledged since the publisher began."""
        self._in_flight: deque[Chunk] = deque()

    @property
    def full(self) -> bool:
        """Whether an acknowledgement has to come before another chunk is sent."""
        return len(self._in_flight) >= CHUNKS_IN_FLIGHT

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._in_flight

    def sent(self, chunk: Chunk) -> None:
        """Note that a chunk is on its way; raises ValueError unless it begins where the one before ends."""
        last = self._in_flight[-1] if self._in_flight else None
        end = self.acknowledged if last is None else last.after(len(last.frames))
        if chunk.begins != end:
            raise ValueError(f"a chunk begins at {chunk.begins}, and the one before ends at {end}")
        self._in_flight.append(chunk)

    def received(self, rows: int | None = None) -> None:
        """Note that the broker has so many rows of the oldest chunk, None for all, and acknowledges no more of it."""
        chunk = self._in_flight.popleft()
        count = len(chunk.frames) if rows is None else rows
        self.acknowledged = chunk.after(count)
        self.rows += count

    def broken_off(self) -> None:
        """Note that nothing is on its way any more: what was not acknowledged is sent again."""
        self._in_flight.clear()

    def gone(self, version: int, next_version: int, rows: int | None) -> LostCommits:
        """Return what is lost; publication goes on with :meth:`go_on_after`, once that has been noted.

        Parameters
        ----------
        version, next_version
            The first commit that is gone, and the first after it that is not.
        rows
            How many rows the missing ones had; None if that is unknown.
        """
        return LostCommits(next_version - 1, next_version - version, max(0, (rows or 0) - self.acknowledged.row))

    def go_on_after(self, lost: LostCommits) -> None:
        """Go on with the first commit that is left; nothing that was on its way counts any more."""
        self.broken_off()
        self.acknowledged = Position(lost.through)


class GoneCommits:
    """Which commits have been found gone, so that none counts twice: the front finds them, and queries behind it do."""

    def __init__(self) -> None:
        self._found: list[range] = []

    def new(self, version: int, next_version: int) -> int:
        """Return how many of some commits have not been found gone before.

        Examples
        --------
        >>> gone = GoneCommits()
        >>> gone.note(7, 10)
        >>> gone.new(5, 9), gone.new(7, 8), gone.new(9, 12)
        (2, 0, 2)
        """
        found = range(version, next_version)
        return sum(not any(each in earlier for earlier in self._found) for each in found)

    def note(self, version: int, next_version: int) -> None:
        """Note that some commits have been found gone, and are counted."""
        self._found.append(range(version, next_version))

    def forget(self, version: int) -> None:
        """Forget those up to a version, as everything that is published comes after it."""
        self._found = [each for each in self._found if each.stop - 1 > version]


TURN_ROWS = 65_536
"""So many rows of a query in one commit are published in front, and so many in each of its turns behind: they take half
a second."""
TURNS_ALONE = 16
"""So many turns together are those of a query while no other one waits: each begins with reading up to its position."""
MOST_BEHIND = 1_024
"""So many queries may be behind; further ones stay in front."""
LEAST_SHARE = 128
"""Of rows that lie together, those of a query are counted if they are at least this part: of fewer there is no need."""


@dataclass(slots=True, eq=False)
class Behind:
    """A query that is behind.

    Parameters
    ----------
    query
        Its name.
    since
        Its rows from here on are left out in front.
    progress
        How far it is.
    until
        The commit up to which they are left out; None while it is behind.
    """

    query: str
    since: Position
    progress: PublishingPosition
    until: int | None = None


class Turns:
    """Which queries of a publisher are behind. The thread that reads for the front calls some of its methods."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._begun = 0
        self._behind: dict[str, Behind] = {}
        """The one that has waited longest for its turn first."""
        self.falls = 0
        """How often one fell behind."""

    def begin(self, version: int) -> dict[str, int]:
        """Note that the front begins to read a commit; return the queries that it leaves out, and from which row on."""
        with self._lock:
            self._begun = version
            return {
                name: each.since.row if each.since.version == version - 1 else 0
                for name, each in self._behind.items()
                if each.since.version < version and (each.until is None or version <= each.until)
            }

    def fall_behind(self, query: str, since: Position) -> bool:
        """Let a query fall behind from a position on, which the front has read up to; return False if it cannot."""
        with self._lock:
            if query in self._behind or len(self._behind) >= MOST_BEHIND:
                return False
            self._behind[query] = Behind(query, since, PublishingPosition(since))
            self.falls += 1
            return True

    def next_turn(self, front: Position) -> Behind | None:
        """Return the query whose turn it is, None if none is behind.

        Parameters
        ----------
        front
            Up to here the broker has all rows that are published in front.
        """
        with self._lock:
            for each in self._behind.values():
                if each.until is None and each.since <= front:
                    self._behind[each.query] = self._behind.pop(each.query)
                    return each
            return None

    def rows_of_turn(self, each: Behind, front: Position) -> int:
        """Return after how many rows a query's turn ends, as things are now."""
        with self._lock:
            others = any(
                other is not each and other.until is None and other.since <= front for other in self._behind.values()
            )
        return TURN_ROWS if others else TURN_ROWS * TURNS_ALONE

    def is_level(self, position: Position) -> bool:
        """Return whether all rows of a query up to a position are enough for it to go on in front."""
        with self._lock:
            return position.row == 0 and position.version >= self._begun

    def rejoin(self, each: Behind) -> bool:
        """Let a query go on in front if the broker has enough of it; return whether it does."""
        at = each.progress.acknowledged
        with self._lock:
            if each.progress.idle and at.row == 0 and at.version >= self._begun:
                each.until = at.version
        return each.until is not None

    def settle(self, front: Position) -> None:
        """Forget queries that have rejoined the others, once the front is past all that is left out of them."""
        with self._lock:
            for each in list(self._behind.values()):
                if each.until is not None and front >= Position(each.until):
                    del self._behind[each.query]

    def behind(self) -> dict[str, Position]:
        """Return the queries that are behind, and up to where the broker has their rows."""
        with self._lock:
            return {name: each.progress.acknowledged for name, each in self._behind.items() if each.until is None}


def by_shard(behind: dict[str, Position]) -> dict[int, Position]:
    """Return the least position of each shard.

    Examples
    --------
    >>> {shard: tuple(least) for shard, least in by_shard({"slow": Position(4, 7), "fast": Position(5)}).items()}
    {5: (4, 7), 14: (5, 0)}
    """
    least: dict[int, Position] = {}
    for query, position in behind.items():
        shard = shard_of(query)
        least[shard] = min(position, least.get(shard, position))
    return least


class InFront:
    """The rows that are published in front.

    Parameters
    ----------
    turns
        Which queries are behind; those with too many rows fall behind.
    unpublished
        Returns the shards of which a version is to be published.
    fallen
        Called with the name of a query that falls behind.
    """

    def __init__(
        self, turns: Turns, unpublished: Callable[[int], frozenset[int]], fallen: Callable[[str], None] = lambda _: None
    ) -> None:
        self._turns = turns
        self._unpublished = unpublished
        self._fallen = fallen
        self._version = 0
        self._shards: frozenset[int] = ALL_SHARDS
        self._left_out: dict[str, int] = {}
        self._rows = Counter[str]()

    def begin(self, version: int) -> None:
        """Begin with a commit."""
        self._version, self._shards = version, self._unpublished(version)
        self._left_out = self._turns.begin(version)
        self._rows.clear()

    def chosen(self, queries: pa.StringArray, first: int) -> NDArray[np.bool_] | None:
        """Return which rows are published, None for all."""
        if not self._shards:
            return np.zeros(len(queries), np.bool_)
        encoded = queries.dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), np.asarray(encoded.indices)
        chosen = None
        if self._left_out or self._shards != ALL_SHARDS:
            begins = np.array([self._left_out_from(name) for name in names], np.int64)
            chosen = np.arange(first, first + len(codes)) < begins[codes]
        self._count(names, codes if chosen is None else np.where(chosen, codes, len(names)), first)
        return chosen

    def passes_over(self, first: int, names: Callable[[], Collection[str]]) -> bool:
        """Return whether none of some rows is published."""
        if not self._left_out and self._shards == ALL_SHARDS:
            return False
        return not self._shards or all(self._left_out_from(name) <= first for name in names())

    def _left_out_from(self, query: str) -> int:
        """Return from which row of the commit on a query is left out."""
        return self._left_out.get(query, np.iinfo(np.int64).max) if shard_of(query) in self._shards else 0

    def _count(self, names: list[str], codes: NDArray[np.int32], first: int) -> None:
        """Count the rows of queries; those with too many fall behind, each from the row after its last one here."""
        counts = np.bincount(codes, minlength=len(names))[: len(names)]
        for code in np.flatnonzero(counts * LEAST_SHARE >= max(1, len(codes))):
            name = names[code]
            self._rows[name] += int(counts[code])
            if self._rows[name] < TURN_ROWS or name in self._left_out:
                continue
            after = first + int(np.flatnonzero(codes == code)[-1]) + 1
            if self._turns.fall_behind(name, Position(self._version - 1, after)):
                self._left_out[name] = after
                self._fallen(name)


class OfQuery:
    """The rows of one query.

    Parameters
    ----------
    query
        Its name.
    """

    def __init__(self, query: str) -> None:
        self._query = query

    def begin(self, version: int) -> None:
        """Begin with a commit."""

    def chosen(self, queries: pa.StringArray, first: int) -> NDArray[np.bool_]:  # noqa: ARG002 - as others have it
        """Return which rows are the query's."""
        encoded = queries.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        code = names.index(self._query) if self._query in names else len(names)
        found: NDArray[np.bool_] = np.asarray(encoded.indices) == code
        return found

    def passes_over(self, first: int, names: Callable[[], Collection[str]]) -> bool:  # noqa: ARG002 - as others have it
        """Return whether none of some rows is the query's."""
        return self._query not in names()
