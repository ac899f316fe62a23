"""Tables of relations, as lookups read them: complete or in parts, and where they come from.

:mod:`cluster.fjord.relation_tables` and :mod:`cluster.local.memory_tables` hold some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.errors import PlanError
from cluster.fjord.key_index import KeyIndex
from cluster.operators import Node


class UnreadableRelationError(PlanError):
    """A relation that cannot be looked up: not read yet, or not for longer than its author allows."""


class LookupTable:
    """The table in which tuples are looked up.

    Parameters
    ----------
    rows
        The table, without intervals.
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows
        self._indexes: dict[str, KeyIndex] = {}

    def parts(self, probes: pl.Series | None) -> Iterator[tuple[NDArray[np.int64] | None, LookupTable]]:
        """Yield the complete table."""
        del probes
        yield None, self

    @property
    def bytes(self) -> int:
        """Its approximate size in memory, with the hash tables counted as four numbers for each row."""
        return int(self.rows.estimated_size()) + 32 * self.rows.height * len(self._indexes)

    def index(self, column: str) -> KeyIndex:
        """Return the hash table on a column, built when it is first needed."""
        if column not in self._indexes:
            self._indexes[column] = KeyIndex(self.rows[column])
        return self._indexes[column]


class Parts(Protocol):
    """A table, possibly in parts."""

    def parts(self, probes: pl.Series | None) -> Iterator[tuple[NDArray[np.int64] | None, LookupTable]]:
        """Yield parts of the table, with the places of the values whose rows they have; None for all values.

        Parameters
        ----------
        probes
            The values that are looked up by equality; None if there are none.
        """
        ...


class Tables(Protocol):
    """The source of the tables of lookups."""

    def pieces(
        self, table: Node, key: str | None, streams: frozenset[str], first_us: int, last_us: int
    ) -> Sequence[tuple[int, Parts | PlanError]]:
        """Return a table's pieces between two instants, each with its begin and rows; the first holds at `first_us`.

        Where the table cannot be read, there is the reason instead of rows.

        Parameters
        ----------
        table
            A plan of relations.
        key
            The column that is looked up by equality; None if none is.
        streams
            The streams whose time determines the beginning of versions.
        first_us, last_us
            The instants.
        """
        ...
