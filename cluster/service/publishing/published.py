"""How far results have been published, by version of the results table, and by shard of queries. Pure.

**Which publisher publishes which queries: by shards, whose number never changes.**

    queries   -- digest of the name -->   16 shards   -- number modulo publishers -->   publishers

    shard              0  1  2  3  4  5 ...
    of 2 publishers    0  1  0  1  0  1
    of 3 publishers    0  1  2  0  1  2

How far publication has come is known of each shard, so that another number of publishers moves positions with shards.

    commits          1   2   3   4   5   6   7   8   9
    shard 0          ================|                      version 5
    shard 1          ============================|          ahead, up to 8
    of both          ================|                      version 5, ahead {1: 8}

All shards of a publisher begin together, from the least of their versions; rows of a shard that is ahead are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

SHARDS = 16
"""Positions on disk are of these shards: their number never changes. There are at most so many publishers."""
ALL_SHARDS = frozenset(range(SHARDS))


@lru_cache(maxsize=65_536)
def shard_of(query: str) -> int:
    """Return the shard of a query.

    Examples
    --------
    >>> [shard_of(name) for name in ("slow", "fast", "q1", "q2")]
    [5, 14, 7, 10]
    """
    return hashlib.blake2b(query.encode(), digest_size=8).digest()[0] % SHARDS


class Share(NamedTuple):
    """What one of several publishers publishes.

    Parameters
    ----------
    number
        Which of them it is, from 0.
    publishers
        How many there are, up to :data:`SHARDS`.
    """

    number: int = 0
    publishers: int = 1

    @property
    def shards(self) -> frozenset[int]:
        """The shards that belong to it; no other publisher has any of them.

        Examples
        --------
        >>> sorted(Share(2, 3).shards)
        [2, 5, 8, 11, 14]
        """
        return frozenset(range(self.number, SHARDS, self.publishers))

    @property
    def is_everything(self) -> bool:
        """Whether there are no other publishers."""
        return self.publishers == 1

    def __str__(self) -> str:
        """Return how it is named in texts for people."""
        return "the publisher" if self.is_everything else f"publisher {self.number} of {self.publishers}"


EVERYTHING = Share()


def shares_of(publishers: int) -> list[Share]:
    """Return the shares of so many publishers."""
    return [Share(number, publishers) for number in range(publishers)]


class Position(NamedTuple):
    """Everything up to a version of the results table, and so many rows of the next one."""

    version: int
    row: int = 0


class LostResults(msgspec.Struct, frozen=True):
    """Results that are lost, published or not.

    Parameters
    ----------
    times
        How often some were lost.
    commits, rows
        How many; rows as far as is known.
    seen_us
        When the last loss was found.
    """

    times: int = 0
    commits: int = 0
    rows: int = 0
    seen_us: int | None = None


class Published(msgspec.Struct, frozen=True):
    """How far the shards of a publisher, or of all, have been published.

    Parameters
    ----------
    version
        Up to this version of the results table, everything has been published or counted as lost.
    lost
        What is lost.
    row
        How many rows of the next version have been published, too, of the shards that are not ahead.
    ahead
        The shards that are further, and up to which version.
    publishers
        Among how many publishers the shards are divided.
    division
        How often they have been divided anew.
    """

    version: int = 0
    lost: LostResults = LostResults()
    row: int = 0
    ahead: dict[int, int] = {}
    publishers: int = 1
    division: int = 0

    @property
    def newest(self) -> int:
        """The newest version of which anything has been published."""
        return max(self.version + (self.row > 0), *self.ahead.values(), 0)

    def reached(self, front: Position, behind: Mapping[int, Position], share: Share) -> Published:
        """Return it after a publisher has come further.

        Parameters
        ----------
        front
            Up to here it has published all rows of its queries, but for those of queries that are behind.
        behind
            Up to where it has published these, the least for each of their shards.
        share
            Its shards.

        Examples
        --------
        >>> after = Published(5).reached(Position(9, 3), {7: Position(6, 40), 8: Position(9, 1)}, Share(1, 2))
        >>> after.version, after.row, after.ahead
        (6, 40, {1: 9, 3: 9, 5: 9, 9: 9, 11: 9, 13: 9, 15: 9})
        """
        to = {shard: max(front, Position(self.ahead.get(shard, 0))) for shard in share.shards}
        to = {shard: min(at, behind.get(shard, at)) for shard, at in to.items()}
        version, row = min(to.values())
        ahead = {shard: at.version for shard, at in sorted(to.items()) if at.version > version}
        return replace(self, version=version, row=row, ahead=ahead)

    def back_to(self, version: int) -> Published:
        """Return it with nothing after a version."""
        if self.newest <= version:
            return self
        return with_versions(
            replace(self, row=self.row if self.version < version else 0),
            {shard: min(to, version) for shard, to in self.versions(ALL_SHARDS).items()},
        )

    def versions(self, shards: Iterable[int]) -> dict[int, int]:
        """Return up to which version each of these shards has been published."""
        return {shard: max(self.version, self.ahead.get(shard, 0)) for shard in shards}

    def unpublished(self, version: int, share: Share) -> frozenset[int]:
        """Return the shards of a publisher of which a version is still to be published."""
        return frozenset(shard for shard, to in self.versions(share.shards).items() if to < version)


def with_versions(published: Published, versions: Mapping[int, int]) -> Published:
    """Return what is published of shards, which have come up to these versions; all else is as before."""
    least = min(versions.values())
    ahead = {shard: version for shard, version in versions.items() if version > least}
    row = published.row if least == published.version else 0
    return replace(published, version=least, row=row, ahead=ahead)


def part_of(whole: Published, share: Share) -> Published:
    """Return what is published of the shards of one publisher."""
    return with_versions(whole, whole.versions(share.shards))


def united(whole: Published, parts: Mapping[int, Published]) -> Published:
    """Return how far all shards are.

    Parameters
    ----------
    whole
        How far they were when they were divided among publishers.
    parts
        By number of a publisher: how far those of its shards are now. One that has noted nothing yet is left out.
    """
    versions: dict[int, int] = {}
    for share in shares_of(whole.publishers):
        versions |= parts.get(share.number, whole).versions(share.shards)
    lost = most_lost([whole.lost, *(part.lost for part in parts.values())])
    return replace(with_versions(whole, versions), lost=lost)


def most_lost(found: Iterable[LostResults]) -> LostResults:
    """Return what is lost, of what several publishers have found.

    As a rule they lose the same commits, each its own rows of them; so these are counted once, and the highest count
    stands for all.
    """
    each = list(found)
    return LostResults(
        max(one.times for one in each),
        max(one.commits for one in each),
        max(one.rows for one in each),
        max((one.seen_us for one in each if one.seen_us is not None), default=None),
    )
