"""Lookup: each tuple with the rows of a table of relations that are active when it begins (papers/star_joins.md 1.3).

    tuples      t1      t2   t3      t4
    table    |-- version 1 --)[-- version 2 --
    answer   t1 and t2 with rows of version 1, t3 and t4 with rows of version 2

It keeps nothing: a tuple is answered when it comes, whoever reads the table, however large it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import polars as pl

from cluster.fjord.batch import START, Batch
from cluster.fjord.key_index import KeyIndex
from cluster.fjord.operator import Operator
from cluster.fjord.operators.join_condition import join_condition
from cluster.fjord.scalars import POLARS_TYPES
from cluster.language.algebra import Lookup as LookupNode
from cluster.language.algebra import Node, TableLookup, schema_of

MOST_PAIRS = 2_000_000
"""Pairs that are tried at once where no equality says which rows can match."""

_ROW = "fjord_row"


class LookupTable:
    """What tuples are looked up in.

    Parameters
    ----------
    rows
        The table, without intervals.
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows
        self._indexes: dict[str, KeyIndex] = {}

    @property
    def bytes(self) -> int:
        """What it takes of the memory, about: the hash tables with four numbers for each row."""
        return int(self.rows.estimated_size()) + 32 * self.rows.height * len(self._indexes)

    def index(self, column: str) -> KeyIndex:
        """Return the hash table on a column, made when it is first asked for."""
        if column not in self._indexes:
            self._indexes[column] = KeyIndex(self.rows[column])
        return self._indexes[column]


class Tables(Protocol):
    """Where the tables of lookups come from."""

    def pieces(
        self, table: Node, streams: frozenset[str], first_us: int, last_us: int
    ) -> Sequence[tuple[int, LookupTable]]:
        """Return what a table is between two instants: since when, and its rows; the first holds at `first_us`.

        Parameters
        ----------
        table
            A plan of relations.
        streams
            By whose time versions of relations begin.
        first_us, last_us
            The instants.
        """
        ...


class Lookup(Operator):
    """Stateless.

    Parameters
    ----------
    lookup
        The table, the condition, and what becomes of a tuple.
    streams
        Where the tuples come from.
    tables
        Where the table comes from; None for an operator that is only tried, not run.
    """

    def __init__(self, lookup: TableLookup | LookupNode, streams: frozenset[str], tables: Tables | None) -> None:
        self._lookup = lookup
        self._streams = streams
        self._tables = tables
        columns = schema_of(lookup.table)
        self._right = pl.DataFrame(schema={column.name: POLARS_TYPES[column.type] for column in columns})
        self._condition = join_condition(lookup.predicate, None, set(self._right.columns))

    def transition(self, port: int, batch: Batch) -> Batch:
        """Look the tuples up."""
        del port
        rows = batch.rows
        if not rows.height:
            return Batch(rows.hstack(self._right) if self._lookup.pairs else rows, batch.watermark_us)
        assert self._tables is not None  # noqa: S101 - it is run
        starts = rows[START].to_numpy()
        pieces = self._tables.pieces(self._lookup.table, self._streams, int(starts[0]), int(starts[-1]))
        begins = np.searchsorted(starts, [since for since, _ in pieces[1:]], side="left")
        places = [0, *(int(place) for place in begins), rows.height]
        answers = [
            self._answer(rows[first:until], table)
            for (_, table), first, until in zip(pieces, places, places[1:], strict=False)
            if until > first
        ]
        return Batch(answers[0] if len(answers) == 1 else pl.concat(answers), batch.watermark_us)

    def _answer(self, rows: pl.DataFrame, table: LookupTable) -> pl.DataFrame:
        match self._lookup.kind:
            case "inner":
                return pl.concat([found.drop(_ROW) for found in self._pairs(rows, table)])
            case "left":
                pairs = pl.concat(list(self._pairs(rows, table)))
                alone = rows.with_row_index(_ROW).join(pairs.select(_ROW), on=_ROW, how="anti")
                both = pl.concat([pairs, alone], how="diagonal").sort(_ROW, maintain_order=True)
                return both.select(*rows.columns, *self._right.columns)
            case "semi":
                return rows.filter(self._met(rows, table))
            case "anti":
                return rows.filter(~self._met(rows, table))

    def _met(self, rows: pl.DataFrame, table: LookupTable) -> pl.Series:
        """Return, for each row, whether the table has a partner for it."""
        condition = self._condition
        if len(condition.left_keys) == 1 and condition.residual is None:
            return pl.Series(table.index(condition.right_keys[0]).contains(rows[condition.left_keys[0]]))
        met = np.zeros(rows.height, np.bool_)
        for pairs in self._pairs(rows, table):
            met[pairs[_ROW].to_numpy()] = True
        return pl.Series(met)

    def _pairs(self, rows: pl.DataFrame, table: LookupTable) -> Iterator[pl.DataFrame]:
        """Yield the pairs for which the condition is true, with the number of the row, in the order of rows."""
        condition, numbered = self._condition, rows.with_row_index(_ROW)
        if condition.left_keys:
            # The other equalities are tried on the pairs that the first one leaves.
            matches = table.index(condition.right_keys[0]).matches(rows[condition.left_keys[0]])
            pairs = numbered[matches.asked].hstack(table.rows[matches.found])
            others = zip(condition.left_keys[1:], condition.right_keys[1:], strict=True)
            equal = [pl.col(left) == pl.col(right) for left, right in others]
            tests = [*equal, *([condition.residual] if condition.residual is not None else [])]
            yield pairs.filter(tests) if tests else pairs
            return
        at_once = max(1, MOST_PAIRS // max(1, table.rows.height))
        for first in range(0, rows.height, at_once):
            product = numbered[first : first + at_once].join(table.rows, how="cross", maintain_order="left_right")
            yield product if condition.residual is None else product.filter(condition.residual)
