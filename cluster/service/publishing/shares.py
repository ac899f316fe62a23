"""Which publisher publishes which queries: by shards, whose number never changes. Pure.

    queries   -- digest of the name -->   16 shards   -- number modulo publishers -->   publishers

    shard              0  1  2  3  4  5 ...
    of 2 publishers    0  1  0  1  0  1
    of 3 publishers    0  1  2  0  1  2

How far publication has come is known of each shard, so that another number of publishers moves positions with shards.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

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
