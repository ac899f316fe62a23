"""Lookup: each tuple with the rows of relations that are active when it begins (papers/star_joins.md 1.3).

    tuples      t1      t2   t3      t4
    table    |-- version 1 --)[-- version 2 --
    answer   t1 and t2 with rows of version 1, t3 and t4 with rows of version 2

It keeps no state: a tuple is answered when it comes, however the table is read and however large it is. Tuples that
begin while the table cannot be read have no answer; the operator warns and goes on, so that other tuples are not lost.

Pieces of a row find what that has found where it began:

    table     |-- version 1 --)[-- version 2 --
    row           |-----------------------)        cut at two watermarks
    pieces        |------)-------)--------)        all of them with rows of version 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
import polars as pl

from cluster.costs.selectivity import most_partners
from cluster.errors import PlanError
from cluster.fjord.batch import START, Batch
from cluster.fjord.lookup_tables import LookupTable, Matches, Parts, Tables
from cluster.fjord.operator import Operator
from cluster.fjord.operators.join import join_condition, with_keys
from cluster.fjord.operators.origins import with_origins, without_origins
from cluster.fjord.row_flow import RowFlow
from cluster.fjord.running_kind import InputFlows, KeepsNothing, RunningKind, RuntimeContext
from cluster.fjord.scalars import POLARS_TYPES
from cluster.operators import Lookup as LookupNode
from cluster.operators import TableLookup
from cluster.operators.columns import ORIGIN
from cluster.physical import operations as kinds

MOST_PAIRS = 2_000_000
"""Most pairs that are tried at once where no equality selects the rows that can match."""

_ROW, _STARTS = "fjord_row", "fjord_starts"


class Lookup(Operator):
    """Stateless.

    Parameters
    ----------
    lookup
        The table, the condition, and the kind of lookup.
    streams
        The streams of the tuples.
    tables
        The source of the table; None for an operator that is only tried, not run.
    """

    def __init__(self, lookup: TableLookup | LookupNode, streams: frozenset[str], tables: Tables | None) -> None:
        self._lookup = lookup
        self._streams = streams
        self._tables = tables
        columns = lookup.table.schema
        self._right = pl.DataFrame(schema={column.name: POLARS_TYPES[column.type] for column in columns})
        self._condition = join_condition(lookup.predicate, self._right.columns, right_computes=False)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Look the tuples up."""
        del port
        self.warning = None
        rows = batch.rows
        if not rows.height:
            return Batch(self._nothing(rows), batch.watermark_us)
        assert self._tables is not None  # noqa: S101 - it is run
        rows = with_keys(rows, self._condition.left_computed)
        starts = rows[START].to_numpy()
        keys = self._condition.right_keys
        pieces = self._tables.pieces(
            self._lookup.table, keys[0] if keys else None, self._streams, int(starts[0]), int(starts[-1])
        )
        begins = np.searchsorted(starts, [since for since, _ in pieces[1:]], side="left")
        places = [0, *(int(place) for place in begins), rows.height]
        answers = []
        for (_, table), first, until in zip(pieces, places, places[1:], strict=False):
            if isinstance(table, PlanError):
                self.warning = table if until > first else self.warning
            elif until > first:
                answers.append(self._answer(rows[first:until], table))
        if not answers:
            return Batch(self._nothing(batch.rows), batch.watermark_us)
        answered = answers[0] if len(answers) == 1 else pl.concat(answers)
        computed = [key.name for key in self._condition.left_computed]
        return Batch(answered.drop(computed) if computed else answered, batch.watermark_us)

    def _nothing(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return an empty table with the columns of the answer."""
        return rows.clear().hstack(self._right) if self._lookup.pairs else rows.clear()

    def _answer(self, rows: pl.DataFrame, table: Parts) -> pl.DataFrame:
        match self._lookup.kind:
            case "inner":
                return self._all_pairs(rows, table).drop(_ROW)
            case "left":
                pairs = self._all_pairs(rows, table)
                alone = rows.with_row_index(_ROW).join(pairs.select(_ROW), on=_ROW, how="anti")
                both = pl.concat([pairs, alone], how="diagonal").sort(_ROW, maintain_order=True)
                return both.select(*rows.columns, *self._right.columns)
            case "semi":
                return rows.filter(self._met(rows, table))
            case "anti":
                return rows.filter(~self._met(rows, table))

    def _met(self, rows: pl.DataFrame, table: Parts) -> pl.Series:
        """Return, for each row, whether it has a partner in the table."""
        condition = self._condition
        met = np.zeros(rows.height, np.bool_)
        for probes, part in self._parts(rows.with_row_index(_ROW), table):
            if len(condition.left_keys) == 1 and condition.residual is None:
                found = part.index(condition.right_keys[0]).contains(probes[condition.left_keys[0]])
                met[probes[_ROW].to_numpy()[found]] = True
                continue
            for pairs in self._pairs(probes, part):
                met[pairs[_ROW].to_numpy()] = True
        return pl.Series(met)

    def _all_pairs(self, rows: pl.DataFrame, table: Parts) -> pl.DataFrame:
        """Return the pairs for which the condition is true, with the number of the row, in the order of rows."""
        parts = list(self._parts(rows.with_row_index(_ROW), table))
        pairs = [found for probes, part in parts for found in self._pairs(probes, part)]
        joined = pl.concat(pairs)
        return joined if len(parts) == 1 else joined.sort(_ROW, maintain_order=True)

    def _parts(self, rows: pl.DataFrame, table: Parts) -> Iterator[tuple[pl.DataFrame, LookupTable]]:
        """Yield the rows that may have partners in each part of the table."""
        keys = self._condition.left_keys
        for places, part in table.parts(rows[keys[0]] if keys else None):
            yield (rows if places is None else rows[places]), part

    def _pairs(self, numbered: pl.DataFrame, table: LookupTable) -> Iterator[pl.DataFrame]:
        """Yield the pairs of some rows and a part of the table, in the order of rows."""
        condition = self._condition
        if condition.left_keys:
            # The other equalities are tried on the pairs that the first one leaves.
            matches = table.index(condition.right_keys[0]).matches(numbered[condition.left_keys[0]])
            others = zip(condition.left_keys[1:], condition.right_keys[1:], strict=True)
            equal = [pl.col(left) == pl.col(right) for left, right in others]
            tests = [*equal, *([condition.residual] if condition.residual is not None else [])]
            yield _paired(numbered, table.rows, matches, tests)
            return
        at_once = max(1, MOST_PAIRS // max(1, table.rows.height))
        for first in range(0, numbered.height, at_once):
            product = numbered[first : first + at_once].join(table.rows, how="cross", maintain_order="left_right")
            yield product if condition.residual is None else product.filter(condition.residual)


class PiecewiseLookup(Operator):
    """Stateless. A lookup of pieces.

    Parameters
    ----------
    inner
        The lookup, which finds what holds where rows start.
    keeps
        Whether its answers have origins.
    """

    def __init__(self, inner: Lookup, *, keeps: bool) -> None:
        self._inner = inner
        self._keeps = keeps

    def transition(self, port: int, batch: Batch) -> Batch:
        """Look pieces up at their origins."""
        rows = with_origins(batch.rows)
        begun = rows.with_columns(pl.col(START).alias(_STARTS), pl.col(ORIGIN.name).alias(START))
        answer = self._inner.transition(port, Batch(begun.sort(START, maintain_order=True), batch.watermark_us))
        self.warning = self._inner.warning
        found = answer.rows.with_columns(pl.col(_STARTS).alias(START)).drop(_STARTS).sort(START, maintain_order=True)
        return Batch(with_origins(found) if self._keeps else without_origins(found), batch.watermark_us)


def _paired(numbered: pl.DataFrame, table: pl.DataFrame, matches: Matches, tests: Sequence[pl.Expr]) -> pl.DataFrame:
    """Return the pairs that pass all tests; of the others, perhaps many, only columns that tests read are fetched."""
    if tests:
        looked_at = {name for test in tests for name in test.meta.root_names()}
        left = numbered.select(name for name in numbered.columns if name in looked_at or name == _ROW)
        right = table.select(name for name in table.columns if name in looked_at)
        tried = _side_by_side(left, right, matches).with_columns(pl.int_range(pl.len()).alias(_ROW))
        matches = matches.at(tried.filter(tests)[_ROW].to_numpy())
    return _side_by_side(numbered, table, matches)


def _side_by_side(numbered: pl.DataFrame, table: pl.DataFrame, matches: Matches) -> pl.DataFrame:
    every_once = np.array_equal(matches.probed, np.arange(numbered.height))
    rows = numbered if every_once else numbered[matches.probed]
    return rows.hstack(table[matches.found]) if table.columns else rows


@final
class RunningLookup(KeepsNothing, RunningKind[kinds.Lookup]):
    """A lookup in a relation."""

    def instantiate(self, operation: kinds.Lookup, context: RuntimeContext) -> Lookup:
        """Return the operator, which reads the table where there are tables."""
        return Lookup(operation.table, frozenset(operation.streams), context.tables)

    def with_origins(self, operation: kinds.Lookup, context: RuntimeContext) -> Operator:
        """Return one that looks pieces up at their origins, and keeps these."""
        return PiecewiseLookup(self.instantiate(operation, context), keeps=True)

    def dropping_origins(self, operation: kinds.Lookup, context: RuntimeContext) -> Operator:
        """Return one that looks pieces up at their origins, and drops these."""
        return PiecewiseLookup(self.instantiate(operation, context), keeps=False)

    def flow(self, operation: kinds.Lookup, inputs: InputFlows) -> RowFlow:
        """Return rows with their partners in the relation."""
        below, times = inputs.first, most_partners(operation.table, inputs.sizes)
        return RowFlow(
            below.per_tuple * times,
            below.at_once * times,
            below.per_second * times,
            below.lasting_us,
            below.valid * times,
            below.per_key * times,
            below.per_second * (times - 1),
            "a relation of which each tuple finds many rows" if times > 1 else below.because,
            below.read_once * times,
        )
