"""Tables of relations, as lookups read them: complete or in parts, and with an index on a column.

**An index on a column of a table that is probed many times: built once for each version of a relation.**

Polars builds the hash table of a join anew for every join; micro-batches are small, and relations may be large. Pandas
keeps the hash table of an index, and finds a key in some thirty nanoseconds. Numbers that lie close together, such as
those of rooms or road segments, need no hashing: the number itself is the place, found in a few nanoseconds.

:mod:`cluster.fjord.relation_tables` and :mod:`cluster.local.engine` hold some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.errors import PlanError
from cluster.fjord.row_order import laid_out
from cluster.operators import Node

if TYPE_CHECKING:
    import pandas as pd

Places = NDArray[np.int64]
Values = NDArray[Any]

MOST_HOLES = 2
"""Numbers lie close together if there are at most so many integers between the least and the greatest for each."""

EXACT = 2**53
"""Up to here an integer equals only one real."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs of rows: places among the probes, ascending, and in the table."""

    probed: Places
    found: Places

    def at(self, chosen: Places) -> Matches:
        """Return the pairs at these positions."""
        return Matches(self.probed[chosen], self.found[chosen])


class KeyIndex:
    """Finds the rows of a table by the value of one column. NULL matches no row.

    An integer beside a real counts as the nearest real, as in comparisons: several may equal one real.

    Parameters
    ----------
    keys
        The column.
    """

    def __init__(self, keys: pl.Series) -> None:
        self._keys = keys
        self._as_reals: KeyIndex | None = None
        places = np.flatnonzero(keys.is_not_null().to_numpy())
        self._numbers, numbers = _numbered(_values(keys.drop_nulls()))
        # One more than there are: -1, the number of missing values, finds no row.
        self._counts: Places = np.bincount(numbers, minlength=self._numbers.count + 1)
        self._only_row: Places | None = None
        if self._counts.max() <= 1:
            self._only_row = np.full(len(self._counts), -1, np.int64)
            self._only_row[numbers] = places
            return
        self._places: Places = places[np.argsort(numbers, kind="stable")]
        self._firsts: Places = np.concatenate([[0], np.cumsum(self._counts)[:-1]])

    def contains(self, probes: pl.Series) -> NDArray[np.bool_]:
        """Return, for each value, whether the table has it."""
        if self._counts_as_reals(probes):
            return self._of_reals().contains(probes)
        met: NDArray[np.bool_] = self._counts[self._numbers_of(probes)] > 0
        return met

    def matches(self, probes: pl.Series) -> Matches:
        """Return all pairs of a value's place and a matching row, in the order of the values, then of the rows."""
        if self._counts_as_reals(probes):
            return self._of_reals().matches(probes)
        numbers = self._numbers_of(probes)
        if self._only_row is not None:
            rows = self._only_row[numbers]
            probed = np.flatnonzero(rows >= 0)
            return Matches(probed, rows if len(probed) == len(rows) else rows[probed])
        probed, places = laid_out(self._firsts[numbers], self._counts[numbers])
        return Matches(probed, self._places[places])

    def _counts_as_reals(self, probes: pl.Series) -> bool:
        """Return whether several integers of the table may equal one of the probes, which are reals."""
        return self._keys.dtype == pl.Int64 and probes.dtype == pl.Float64 and isinstance(self._numbers, _Hashed)

    def _of_reals(self) -> KeyIndex:
        if self._as_reals is None:
            self._as_reals = KeyIndex(self._keys.cast(pl.Float64))
        return self._as_reals

    def _numbers_of(self, probes: pl.Series) -> Places:
        """Return the number of each value; -1 for missing ones."""
        if self._keys.dtype == pl.Float64:
            probes = probes.cast(pl.Float64)
        if probes.null_count() == 0:
            return self._numbers.of(_values(probes))
        numbers: Places = np.full(len(probes), -1, np.int64)
        numbers[probes.is_not_null().to_numpy()] = self._numbers.of(_values(probes.drop_nulls()))
        return numbers


class _Numbers(Protocol):
    """Numbers the values of a column from 0 on."""

    @property
    def count(self) -> int:
        """How many numbers there are; some may have no value."""
        ...

    def of(self, probes: Values) -> Places:
        """Return the number of each value; -1 for values that cannot exist."""
        ...


@dataclass(frozen=True, slots=True)
class _Distances:
    """Integers are numbered by their distance from the least one."""

    least: int
    count: int

    def of(self, probes: Values) -> Places:
        if probes.dtype.kind != "f":
            return self._within(probes.astype(np.int64, copy=False))
        with np.errstate(invalid="ignore"):
            whole = probes.astype(np.int64)
        numbers: Places = np.where(whole == probes, self._within(whole), -1)
        return numbers

    def _within(self, probes: Places) -> Places:
        distances = probes - self.least  # may overflow: then it is too large as an unsigned number, too
        numbers: Places = np.where(distances.view(np.uint64) < self.count, distances, -1)
        return numbers


class _Hashed:
    """Values are numbered by a hash table."""

    def __init__(self, unique: pd.Index[Any]) -> None:
        self.count = len(unique)
        self._index = unique

    def of(self, probes: Values) -> Places:
        if not self.count:
            return np.full(len(probes), -1, np.int64)
        numbers: Places = self._index.get_indexer(probes).astype(np.int64, copy=False)
        return numbers


def _numbered(values: Values) -> tuple[_Numbers, Places]:
    """Return the numbering of the values, and the number of each."""
    import pandas as pd  # noqa: PLC0415 - takes longer to load than most of what runs without lookups

    if values.dtype.kind == "i" and len(values):
        least, greatest = int(values.min()), int(values.max())
        spanned = greatest - least + 1
        if spanned <= MOST_HOLES * len(values) and max(abs(least), abs(greatest)) <= EXACT:
            return _Distances(least, spanned), values - least
    index = pd.Index(values)
    if index.is_unique:
        return _Hashed(index), np.arange(len(values))
    codes, unique = pd.factorize(values, use_na_sentinel=False)  # NaN is a value like others
    return _Hashed(pd.Index(unique)), codes.astype(np.int64, copy=False)


def _values(column: pl.Series) -> Values:
    """Return a column without NULLs in the form in which pandas hashes it."""
    values: Values = column.to_numpy()
    return values.astype(object) if column.dtype == pl.String else values


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
