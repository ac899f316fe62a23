"""What queries are made of is left alone by the collector of garbage: it lives as long as they do.

A full collection visits every object there is, and nothing else runs meanwhile: with 10,000 queries 1.3 s, again for
each quarter of objects that has come since. What is there after a change of queries is therefore put aside
(``gc.freeze``); it is freed all the same once nothing refers to it. Only cycles are not, of which there are few: one
object in ten queries that are added. They are looked for once in very many changes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

FULL_EVERY = 1_000_000
"""Changes between two full collections."""
_NEVER = 2**31 - 1
_YOUNG = 1
"""The generation up to which is collected before the rest is put aside: a few thousand objects."""


class LongLived:
    """Puts aside what queries are made of.

    Parameters
    ----------
    full_every
        Changes between two full collections.
    """

    def __init__(self, full_every: int = FULL_EVERY) -> None:
        self._full_every = full_every
        self._changes = 0

    def put_aside(self, changes: int = 1) -> None:
        """Put aside what is there now.

        Parameters
        ----------
        changes
            How many queries have been planned, or have come or gone, since the last call.
        """
        self._changes += changes
        if self._changes < self._full_every:
            gc.collect(_YOUNG)
        else:
            self._changes = 0
            gc.unfreeze()
            gc.collect()
        gc.freeze()


@contextmanager
def without_full_collections() -> Iterator[None]:
    """Let no full collection begin by itself: it would visit the new plans of thousands of queries, several times.

    Contexts do not overlap.
    """
    young, older, oldest = gc.get_threshold()
    gc.set_threshold(young, older, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, older, oldest)
