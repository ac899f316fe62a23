"""The rows that searches for a pattern read, by partition, and whether one can find a match at all.

    partition of sensor a     r0 r1 | r2 r3 r4         before the bar: rows that only PREV of later rows may read
                                      |  `- the search from r2 has read up to here

All rows lie in one table, in no order. A partition has the places of its own in the order of stamps, and of columns
where stamps are equal. Rows have a number in their partition, from 0 on, that never changes while they are kept.

**Whether a search can find a match at all, judged by which variables each row alone could be.**

    PATTERN (A+ B* C{2})     rows  a b a c b a c      from the first row on: an A, and two of C behind it, so perhaps
                                   A     C     C      from the second c on: no A, so no match, without a step

A match has the least number of rows of each element, in order, before the deadline. If the rows up to there have not,
whatever else the conditions say, there is none.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cluster.fjord.batch import NEVER, START
from cluster.fjord.row_automaton import Reserve
from cluster.fjord.row_order import comparable
from cluster.fjord.scalars import compile_scalar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.fjord.row_automaton import Search
    from cluster.operators.pattern_match import RowPattern

_PARTITION = "fjord_partition"
USED = "fjord_used"
"""In saved rows: true if only PREV of later rows may read the row."""
SPENT = "fjord_spent"
"""In saved reserves: how many steps are missing; START is the stamp of the last row that counts."""
_COMPACTED_AT = 4_096


@dataclass(slots=True)
class Partition:
    """The rows of one combination of keys.

    Parameters
    ----------
    number
        A number of its own.
    first
        The number of the first row that is kept.
    begin
        The number of the row with which the next match may begin.
    rows, stamps, fits
        By row that is kept: its place in the table, its stamp, and a bit for each variable that it may be.
    fitting
        By the bit of a variable: the rows that may be of it, in order.
    search
        The search that goes on, if any.
    read
        The number behind the last row that a search has read before that one.
    reserve
        How much work searches may still do.
    """

    number: int
    first: int = 0
    begin: int = 0
    rows: list[int] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    fits: list[int] = field(default_factory=list)
    fitting: dict[int, list[int]] = field(default_factory=dict)
    search: Search | None = None
    read: int = 0
    reserve: Reserve = field(default_factory=Reserve)

    @property
    def end(self) -> int:
        """The number behind that of the last row."""
        return self.first + len(self.rows)

    def stamp(self, row: int) -> int:
        """Return the stamp of a row."""
        return self.stamps[row - self.first]

    def places(self, begin: int, end: int) -> list[int]:
        """Return the places in the table of the rows from one number up to another one."""
        return self.rows[begin - self.first : end - self.first]

    def add(self, rows: list[int], stamps: list[int], fits: list[int]) -> None:
        """Add rows that come behind all that are there already."""
        for bit, fitting in self.fitting.items():
            fitting += [row for row, fit in enumerate(fits, self.end) if fit & bit]
        self.rows += rows
        self.stamps += stamps
        self.fits += fits

    def advance(self, row: int, within_us: int | None) -> None:
        """Let the next match begin no earlier than with a row."""
        self.reserve.advance(self.stamps[self.begin - self.first : row - self.first], within_us)
        self.begin = row

    def forget(self, before: int) -> None:
        """Leave out the rows before a number."""
        count = max(before - self.first, 0)
        if count:
            self.first += count
            for each in (self.rows, self.stamps, self.fits):
                del each[:count]
            for fitting in self.fitting.values():
                del fitting[: bisect_left(fitting, self.first)]


class PatternRows:
    """The rows of all partitions.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    keys
        The columns that tell partitions apart.
    pattern
        The pattern.
    variables
        Its variables, in the order of their bits.
    """

    def __init__(
        self, columns: pl.DataFrame, keys: tuple[str, ...], pattern: RowPattern, variables: tuple[str, ...]
    ) -> None:
        self._columns = columns.columns
        self._keys = list(dict.fromkeys(keys))
        self._ties = [name for name in pattern.ties if name in columns.columns]
        self._within_us = pattern.within_us
        self._lags = pattern.lags
        self._most_lag = max((lag.rows for lag in pattern.lags), default=0)
        conditions = {each.variable: each.row for each in pattern.definitions if each.row is not None}
        self._conditions = [
            (bit, compile_scalar(conditions[variable]))
            for bit, variable in enumerate(variables)
            if variable in conditions
        ]
        self._bits = [1 << bit for bit in range(len(variables))]
        self._always = sum(1 << bit for bit, variable in enumerate(variables) if variable not in conditions)
        self._partitions: dict[tuple[Any, ...], Partition] = {}
        self._numbers = 0
        self.table = self._with_lags(columns.clear().with_columns(pl.lit(0, pl.Int64).alias(_PARTITION)))
        """All rows that are kept, with the columns of PREV."""
        self._compact_at = _COMPACTED_AT

    @property
    def partitions(self) -> Iterable[Partition]:
        """All partitions with rows."""
        return self._partitions.values()

    def add(self, rows: pl.DataFrame) -> list[Partition]:
        """Add rows that come behind all that are there already; return their partitions."""
        ordered = rows.select(self._columns).sort(START, *self._ties, nulls_last=True, maintain_order=True)
        found = [(self._partition(key), places) for key, places in self._grouped(ordered)]
        numbers = np.zeros(ordered.height, np.int64)
        for partition, places in found:
            numbers[places] = partition.number
        own = ordered.with_columns(pl.Series(_PARTITION, numbers, pl.Int64))
        own = self._with_lags(own, [partition for partition, _ in found])
        fits = self._fitting(own)
        stamps = own[START].to_list()
        base = self.table.height
        self.table = pl.concat([self.table, own.select(self.table.columns)])
        for partition, places in found:
            partition.add(
                [base + place for place in places],
                [stamps[place] for place in places],
                [fits[place] for place in places],
            )
        return [partition for partition, _ in found]

    def _partition(self, key: tuple[Any, ...]) -> Partition:
        found = self._partitions.get(key)
        if found is None:
            found = self._partitions[key] = Partition(self._numbers, fitting={bit: [] for bit in self._bits})
            self._numbers += 1
        return found

    def _grouped(self, ordered: pl.DataFrame) -> list[tuple[tuple[Any, ...], list[int]]]:
        if not self._keys:
            return [((), list(range(ordered.height)))] if ordered.height else []
        numbered = ordered.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_PARTITION))
        keys = [comparable(ordered, key) for key in self._keys]
        groups = numbered.group_by(keys, maintain_order=True).agg(_PARTITION)
        return [(tuple(key), found) for *key, found in groups.select(*self._keys, _PARTITION).iter_rows()]

    def _with_lags(self, own: pl.DataFrame, partitions: Iterable[Partition] = ()) -> pl.DataFrame:
        """Add the columns of PREV to rows of which those before are in the table."""
        if not self._lags:
            return own
        behind = [place for each in partitions for place in each.rows[-self._most_lag :]]
        columns = own.columns
        before = self.table[behind].select(columns) if behind else own.clear()
        both = pl.concat([before, own])
        added = []
        for lag in self._lags:
            value = compile_scalar(lag.scalar)
            value = value if value.meta.root_names() else pl.when(pl.col(START).is_not_null()).then(value)
            shifted = value.shift(lag.rows).over(_PARTITION)
            if self._within_us is not None:
                apart = pl.col(START) - pl.col(START).shift(lag.rows).over(_PARTITION)
                shifted = pl.when(apart < self._within_us).then(shifted)
            added.append(shifted.alias(lag.name))
        return both.with_columns(added).slice(before.height)

    def _fitting(self, own: pl.DataFrame) -> list[int]:
        """Return a bit for each variable whose condition on the row alone is true."""
        bits = pl.lit(self._always, pl.Int64)
        for bit, condition in self._conditions:
            bits = bits + pl.when(condition.fill_null(value=False)).then(pl.lit(1 << bit, pl.Int64)).otherwise(0)
        return own.select(pl.col(START).is_not_null().cast(pl.Int64) * 0 + bits).to_series().to_list()

    def compact(self, watermark_us: int) -> None:
        """Leave out what no search and no PREV will read, if it is much."""
        if self.table.height > self._compact_at:
            self._forget(watermark_us)
            places = [place for each in self._partitions.values() for place in each.rows]
            self.table = self.table[places] if places else self.table.clear()
            place = 0
            for each in self._partitions.values():
                each.rows = list(range(place, place + len(each.rows)))
                place += len(each.rows)
            self._compact_at = max(2 * place, _COMPACTED_AT)

    def _forget(self, watermark_us: int) -> None:
        for key, each in list(self._partitions.items()):
            each.forget(self._first_kept(each, watermark_us))
            if not each.rows and not each.reserve.matters(watermark_us, self._within_us):
                del self._partitions[key]

    def _first_kept(self, partition: Partition, watermark_us: int) -> int:
        """Return the number of the first row that a search, or PREV of its rows and of later ones, may read."""
        first = max(partition.first, partition.begin - self._most_lag)
        until = watermark_us if partition.begin == partition.end else partition.stamp(partition.begin)
        if self._within_us is None:
            return partition.begin if until >= NEVER else first
        while first < partition.begin and partition.stamp(first) <= until - self._within_us:
            first += 1
        return first

    def save(self, watermark_us: int) -> dict[str, pl.DataFrame]:
        """Return the rows that are still needed, partition by partition, and reserves that are not full."""
        self._forget(watermark_us)
        return {"rows": self._saved_rows(), "reserves": self._saved_reserves()}

    def _saved_rows(self) -> pl.DataFrame:
        places, used = [], []
        for each in self._partitions.values():
            places += each.rows
            used += [row < each.begin for row in range(each.first, each.end)]
        rows = self.table[places] if places else self.table.clear()
        return rows.select(self._columns).with_columns(pl.Series(USED, used, pl.Boolean))

    def _saved_reserves(self) -> pl.DataFrame:
        found = [
            (*key, each.reserve.spent, each.reserve.before_us)
            for key, each in self._partitions.items()
            if each.reserve.spent
        ]
        kinds = {key: self.table.schema[key] for key in self._keys}
        return pl.DataFrame(found, schema={**kinds, SPENT: pl.Int64, START: pl.Int64}, orient="row")

    def restore(self, saved: pl.DataFrame, reserves: pl.DataFrame | None) -> list[Partition]:
        """Take saved rows, and reserves if the state has any; return the partitions of the rows."""
        found = self.add(saved.drop(USED)) if saved.height else []
        counts = saved.filter(pl.col(USED))
        for key, places in self._grouped(counts):
            self._partition(key).begin = len(places)
        if reserves is not None:
            for *values, spent, before_us in reserves.select(*self._keys, SPENT, START).iter_rows():
                self._partition(tuple(values)).reserve = Reserve(spent, before_us)
        return found


class PatternOutlook:
    """The rows that every match has.

    Parameters
    ----------
    pattern
        The pattern.
    variables
        Its variables, in the order of their bits.
    """

    def __init__(self, pattern: RowPattern, variables: tuple[str, ...]) -> None:
        self._most_rows = pattern.most_rows
        self._needed = [
            (1 << variables.index(element.variable), element.least) for element in pattern.elements if element.least
        ]

    def complete(self, partition: Partition, start: int, deadline_us: int, watermark_us: int) -> bool | None:
        """Return whether the rows from one on have what every match needs, in order and in time.

        Parameters
        ----------
        partition, start
            The row.
        deadline_us
            The first instant that is too late.
        watermark_us
            The rows before it are known, and no others.

        Returns
        -------
        bool or None
            None while that depends on rows to come. Otherwise no later row changes it.
        """
        last = self._last_needed(partition, start)
        most = self._most_rows
        if last is not None:
            return partition.stamp(last) < deadline_us and (most is None or last < start + most)
        known = watermark_us >= deadline_us or (most is not None and partition.end >= start + most)
        return False if known else None

    def _last_needed(self, partition: Partition, start: int) -> int | None:
        """Return the earliest row that can be the last one needed; None if none is known."""
        last = start - 1
        for bit, least in self._needed:
            rows = partition.fitting[bit]
            place = bisect_left(rows, last + 1) + least - 1
            if place >= len(rows):
                return None
            last = rows[place]
        return last
