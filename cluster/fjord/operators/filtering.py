"""Filters: of one query, of all query groups at once by an index of predicates, and of samples that are aggregated.

**A predicate index: finds the predicates, of thousands, that hold for the rows of a batch.**

Each predicate is entered in a segment tree under one of its columns, with the intervals of values for which it may
hold. The values of a batch descend the tree together, so a lookup costs the depth of the tree and the number of
results. Only for these candidates, the intervals of other columns are compared and all other conditions evaluated, once
for all predicates with the same expression. TelegraphCQ's grouped filters and NiagaraCQ work in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import final

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.expressions.walks import functions_called
from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.fjord.row_order import laid_out
from cluster.fjord.running_kind import Alone, KeepsNothing, PassesNoOrigins, PassesRows, RuntimeContext, Subscribed
from cluster.fjord.scalars import compile_scalar
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, Scalar, Schema
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment
from cluster.plan.predicate_intervals import Conditions, Interval, Intervals, Value, extract_ranges
from protocols.errors import FjordError
from protocols.wire.batches import COVERED_BY_COLUMN
from protocols.wire.streams import FieldType

Numbers = npt.NDArray[np.int64]
NOWHERE = -1
"""The position of NULL."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs of a row and a predicate that holds for it.

    Parameters
    ----------
    rows, predicates
        Numbers, in pairs; in the order of rows, then predicates.
    failures
        By predicate: why it could not be evaluated. It holds for no row of the batch.
    """

    rows: Numbers
    predicates: Numbers
    failures: Mapping[int, str] = field(default_factory=dict)


class PredicateIndex:
    """An index of predicates over one schema.

    Parameters
    ----------
    predicates
        Numbered from 0; None holds for every row.
    columns
        The columns that predicates may read.
    """

    def __init__(self, predicates: Sequence[Scalar | None], columns: Schema) -> None:
        types = {column.name: column.type for column in columns}
        parts = [extract_ranges(predicate, columns) for predicate in predicates]
        self._axes = {name: _Axis(name, types[name], parts) for name in types}
        self._axes = {name: axis for name, axis in self._axes.items() if axis.used}
        entered: dict[str, list[tuple[int, list[tuple[int, int]]]]] = {name: [] for name in self._axes}
        compared: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in self._axes}
        everywhere: list[int] = []
        self._expressions: dict[Scalar, list[int]] = {}
        for number, conditions in enumerate(parts):
            spans = {name: self._axes[name].spans(unions) for name, unions in conditions.intervals.items()}
            access = min(spans, key=lambda name: self._axes[name].share(spans[name]), default=None)
            if access is None:
                everywhere.append(number)
            else:
                entered[access].append((number, spans.pop(access)))
            rest = list(conditions.rest)
            for name, union in spans.items():
                if len(union) == 1:
                    compared[name][number] = union[0]
                else:
                    rest.append(_as_expression(predicates[number]))
            for scalar in dict.fromkeys(rest):
                self._expressions.setdefault(scalar, []).append(number)
        count = len(parts)
        self._trees = {
            name: _SegmentTree(axis.positions, entered[name]) for name, axis in self._axes.items() if entered[name]
        }
        self._bounds = {name: _Bounds(bounds, count) for name, bounds in compared.items() if bounds}
        self._everywhere = np.array(everywhere, np.int64)
        self._count = count

    def match(self, rows: pl.DataFrame) -> Matches:
        """Return the predicates that hold for each row."""
        positions = {
            name: self._axes[name].positions_of(rows[name]) for name in self._trees.keys() | self._bounds.keys()
        }
        every = np.arange(rows.height, dtype=np.int64)
        found_rows = [np.repeat(every, len(self._everywhere))]
        found_predicates = [np.tile(self._everywhere, rows.height)]
        for name, tree in self._trees.items():
            tree.find(positions[name], found_rows, found_predicates)
        row, predicate = np.concatenate(found_rows), np.concatenate(found_predicates)
        for name, bounds in self._bounds.items():
            keep = bounds.contain(predicate, positions[name][row])
            row, predicate = row[keep], predicate[keep]
        failures: dict[int, str] = {}
        for scalar, numbers in self._expressions.items():
            row, predicate = self._evaluate(rows, scalar, numbers, (row, predicate), failures)
        order = np.lexsort((predicate, row))
        return Matches(row[order], predicate[order], failures)

    def _evaluate(
        self,
        rows: pl.DataFrame,
        scalar: Scalar,
        numbers: list[int],
        pairs: tuple[Numbers, Numbers],
        failures: dict[int, str],
    ) -> tuple[Numbers, Numbers]:
        """Keep the pairs for which an expression, part of the predicates with these numbers, is true."""
        row, predicate = pairs
        concerned = np.zeros(self._count, np.bool_)
        concerned[numbers] = True
        asked = concerned[predicate]
        if not asked.any():
            return pairs
        candidates = np.unique(row[asked])
        holds = np.zeros(rows.height, np.bool_)
        try:
            true = rows[candidates].select("*", compile_scalar(scalar).fill_null(value=False).alias("fjord_holds"))
            holds[candidates] = true["fjord_holds"].to_numpy()
        except Exception as error:  # noqa: BLE001 - whatever one predicate does must not stop the others
            if len(numbers) > 1 and functions_called(scalar.expression):
                # It failed for rows of some of the predicates; the others have nothing to do with them.
                for number in numbers:
                    pairs = self._evaluate(rows, scalar, [number], pairs, failures)
                return pairs
            reason = str(error) if isinstance(error, FjordError) else f"{type(error).__name__}: {error}"
            failures.update(dict.fromkeys(numbers, reason))
        keep = ~asked | holds[row]
        return row[keep], predicate[keep]


class _Axis:
    """The values of a column that occur in predicates, in order: value number i is at position 2i + 1, gaps between."""

    def __init__(self, name: str, kind: FieldType, parts: Sequence[Conditions]) -> None:
        self._kind = kind
        unions = [union for conditions in parts for union in conditions.intervals.get(name, ())]
        self.used = bool(unions)
        ends = {
            end for union in unions for interval in union for end in (interval.low, interval.high) if end is not None
        }
        self._ends: list[Value] = sorted(ends)
        self._places = {end: place for place, end in enumerate(self._ends)}
        self.positions = 2 * len(self._ends) + 1

    def spans(self, unions: Sequence[Intervals]) -> list[tuple[int, int]]:
        """Return, as first and last positions, the intersection of these unions."""
        found = [(0, self.positions - 1)]
        for union in unions:
            merged = _merged(sorted(self._span(interval) for interval in union))
            found = [
                (max(low, other_low), min(high, other_high))
                for low, high in found
                for other_low, other_high in merged
                if max(low, other_low) <= min(high, other_high)
            ]
        return found

    def share(self, spans: Sequence[tuple[int, int]]) -> float:
        """Return the fraction of all positions in these spans: the smaller, the better for the lookup."""
        return sum(high - low + 1 for low, high in spans) / self.positions

    def positions_of(self, values: pl.Series) -> Numbers:
        """Return the positions of values."""
        if not self._ends:  # every value is in every interval, or in none
            found = np.zeros(len(values), np.int64)
        elif self._kind is FieldType.TEXT:
            ends = pl.Series(self._ends, dtype=pl.String)
            given = values.fill_null("")
            below = ends.search_sorted(given, side="left").to_numpy().astype(np.int64)
            above = ends.search_sorted(given, side="right").to_numpy().astype(np.int64)
            found = below + above
        else:
            dtype = np.float64 if self._kind is FieldType.REAL else np.int64
            numbers = values.fill_null(0).to_numpy().astype(dtype, copy=False)
            array = np.array([*self._ends, self._ends[-1]], dtype)  # one more, so that every position has a value
            below = np.searchsorted(array[:-1], numbers, side="left")
            found = 2 * below + ((array[below] == numbers) & (below < len(self._ends)))
        if values.null_count():
            found[values.is_null().to_numpy()] = NOWHERE
        return found

    def _span(self, interval: Interval) -> tuple[int, int]:
        low, high = 0, self.positions - 1
        if interval.low is not None:
            low = 2 * self._places[interval.low] + (2 if interval.low_open else 1)
        if interval.high is not None:
            high = 2 * self._places[interval.high] + (0 if interval.high_open else 1)
        return low, high


class _SegmentTree:
    """Predicates at the nodes of a binary tree over positions; a position finds those on its way to the root."""

    def __init__(self, positions: int, entered: Sequence[tuple[int, Sequence[tuple[int, int]]]]) -> None:
        self._leaves = 1 << max(positions - 1, 1).bit_length()
        spans = [(number, low, high) for number, union in entered for low, high in union if low <= high]
        number, low, high = (np.array(each, np.int64) for each in (zip(*spans, strict=True) if spans else ((), (), ())))
        left, right = low + self._leaves, high + self._leaves + 1
        nodes, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while (open_ := left < right).any():
            number, left, right = number[open_], left[open_], right[open_]
            at_left, at_right = left % 2 == 1, right % 2 == 1
            nodes += [left[at_left], right[at_right] - 1]
            numbers += [number[at_left], number[at_right]]
            left, right = (left + 1) // 2, right // 2
        node, predicate = np.concatenate(nodes), np.concatenate(numbers)
        # Most rows of most streams match no condition: they need not descend the tree.
        steps = np.zeros(self._leaves + 1, np.int64)
        np.add.at(steps, low, 1)
        np.add.at(steps, high + 1, -1)
        self._wanted = np.append(np.cumsum(steps)[:-1] > 0, False)  # the last one is NOWHERE's
        order = np.argsort(node, kind="stable")
        self._predicates = predicate[order]
        self._starts = np.searchsorted(node[order], np.arange(2 * self._leaves + 1))

    def find(self, positions: Numbers, rows: list[Numbers], predicates: list[Numbers]) -> None:
        """Add the pairs of rows and predicates; rows at :data:`NOWHERE` match none."""
        row = np.flatnonzero(self._wanted[positions])
        node = positions[row] + self._leaves
        while row.size and node[0]:
            first = self._starts[node]
            count = self._starts[node + 1] - first
            if count.any():
                number, place = laid_out(first, count)
                rows.append(row[number])
                predicates.append(self._predicates[place])
            node //= 2


class _Bounds:
    """First and last position, by predicate, on a column under which it was not entered."""

    def __init__(self, bounds: Mapping[int, tuple[int, int]], count: int) -> None:
        # A condition without bounds here accepts NULL, too.
        self._low = np.full(count, NOWHERE, np.int64)
        self._high = np.full(count, np.iinfo(np.int64).max, np.int64)
        for number, (low, high) in bounds.items():
            self._low[number], self._high[number] = low, high

    def contain(self, predicates: Numbers, positions: Numbers) -> npt.NDArray[np.bool_]:
        """Return, pair by pair, whether the position is within the predicate's bounds."""
        within: npt.NDArray[np.bool_] = (self._low[predicates] <= positions) & (positions <= self._high[predicates])
        return within


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted spans with overlapping ones merged."""
    found: list[tuple[int, int]] = []
    for low, high in spans:
        if low > high:
            continue
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def _as_expression(predicate: Scalar | None) -> Scalar:
    assert predicate is not None  # noqa: S101 - it has intervals
    return predicate


class Filter(Operator):
    """Stateless.

    Parameters
    ----------
    predicate
        Rows for which it is false or NULL are removed.
    """

    def __init__(self, predicate: Scalar) -> None:
        self._predicate = compile_scalar(predicate)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Keep the rows for which the predicate is true."""
        del port
        return Batch(batch.rows.filter(self._predicate), batch.watermark_us)


@final
class RunningFilter(PassesRows, KeepsNothing, Alone[kinds.Filter]):
    """A filter."""

    def operator(self, operation: kinds.Filter) -> Operator:
        """Return the operator."""
        return Filter(operation.predicate)

    def with_origins(self, operation: kinds.Filter, context: RuntimeContext) -> Operator:
        """Return the operator itself, which passes on rows as they are."""
        return self.instantiate(operation, context)


class GroupedFilter(Operator):
    """Stateless. A row becomes one row for each query group whose condition holds for it, with the group's number.

    Parameters
    ----------
    conditions
        Numbers of the query groups and their conditions; None for no condition.
    columns
        The columns that conditions may read.
    newest
        By query group: the epoch to put into the column VISIBLE_FROM; None for no such column.

    Attributes
    ----------
    failures
        By query group: why its condition could not be evaluated on the last batch, of which it then gets no rows.
    """

    def __init__(
        self, conditions: Sequence[tuple[int, Scalar | None]], columns: Schema, newest: Mapping[int, int] | None = None
    ) -> None:
        self._numbers = np.array([number for number, _ in conditions], np.int64)
        predicates = tuple(predicate for _, predicate in conditions)
        # A single group without a condition needs no index.
        self._only = conditions[0][0] if predicates == (None,) else None
        self._index = _index(predicates, columns)
        self._newest = None if newest is None else np.array([newest[number] for number, _ in conditions], np.int64)
        self.failures: dict[int, str] = {}

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the rows of all groups, in the order of the batch."""
        del port
        self.failures = {}
        if self._only is not None:
            marks = [pl.lit(self._only, pl.Int64).alias(QUERY_GROUP.name)]
            if self._newest is not None:
                marks.append(pl.lit(self._newest[0], pl.Int64).alias(VISIBLE_FROM.name))
            return Batch(batch.rows.with_columns(marks), batch.watermark_us)
        matches = self._index.match(batch.rows)
        self.failures = {int(self._numbers[place]): reason for place, reason in matches.failures.items()}
        columns = [pl.Series(QUERY_GROUP.name, self._numbers[matches.predicates], pl.Int64)]
        if self._newest is not None:
            columns.append(pl.Series(VISIBLE_FROM.name, self._newest[matches.predicates], pl.Int64))
        return Batch(batch.rows[matches.rows].with_columns(columns), batch.watermark_us)


@lru_cache(maxsize=64)
def _index(predicates: tuple[Scalar | None, ...], columns: Schema) -> PredicateIndex:
    """Building an index takes longer than using it, and a micro-batch is soon followed by another."""
    return PredicateIndex(predicates, columns)


@final
class RunningGroupedFilter(PassesRows, KeepsNothing, PassesNoOrigins, Subscribed[kinds.GroupedFilter]):
    """The conditions of all query groups at once."""

    def operator(self, operation: kinds.GroupedFilter, fragment: Fragment) -> Operator:
        """Return the operator for the conditions of the queries."""
        newest = fragment.newest if operation.visible_from else None
        return GroupedFilter(fragment.conditions[operation.place], operation.columns, newest)


_ROW, _CONDITION = "fjord_row", "fjord_condition"


class PerQueryFilter(Operator):
    """Stateless. Each different condition is evaluated once, over the rows of all query groups that have it.

    Parameters
    ----------
    conditions
        By query group. Rows of other groups are dropped.
    """

    def __init__(self, conditions: Mapping[int, Scalar]) -> None:
        different = {predicate: place for place, predicate in enumerate(dict.fromkeys(conditions.values()))}
        self._predicates = [compile_scalar(predicate) for predicate in different]
        self._groups = list(conditions)
        self._places = [different[predicate] for predicate in conditions.values()]

    def transition(self, port: int, batch: Batch) -> Batch:
        """Keep the rows that meet their group's condition, in their order."""
        del port
        rows = batch.rows
        if len(self._predicates) == 1 or not rows.height:
            known = pl.col(QUERY_GROUP.name).is_in(self._groups)
            return Batch(rows.filter(known, self._predicates[0]), batch.watermark_us)
        condition = pl.col(QUERY_GROUP.name).replace_strict(
            self._groups, self._places, default=None, return_dtype=pl.Int32
        )
        numbered = rows.with_row_index(_ROW).with_columns(condition.alias(_CONDITION))
        pieces = numbered.drop_nulls(_CONDITION).partition_by(_CONDITION, as_dict=True, include_key=False)
        kept = [piece.filter(self._predicates[place]) for (place,), piece in pieces.items()]
        if not kept:
            return Batch(rows.clear(), batch.watermark_us)
        return Batch(pl.concat(kept).sort(_ROW).drop(_ROW), batch.watermark_us)


@final
class RunningPerQueryFilter(PassesRows, KeepsNothing, Subscribed[kinds.PerQueryFilter]):
    """Of each query group's rows those that meet its own condition."""

    def operator(self, operation: kinds.PerQueryFilter, fragment: Fragment) -> Operator:
        """Return the operator for the conditions of the queries."""
        return PerQueryFilter({each.group: each.choices[operation.place] for each in fragment.subscribers})

    def with_origins(self, operation: kinds.PerQueryFilter, context: RuntimeContext) -> Operator:
        """Return the operator itself, which passes on rows as they are."""
        return self.instantiate(operation, context)


class PreaggregatedFilter(Operator):
    """Stateless. Removes from each query group the samples that the device aggregates it uses contain.

    Parameters
    ----------
    fingerprints
        By query group: the push-down fingerprint of the aggregates it uses.
    only_aggregates
        Groups that use aggregates alone, and no samples.
    """

    def __init__(self, fingerprints: Mapping[int, str], only_aggregates: frozenset[int] = frozenset()) -> None:
        self._fingerprints = fingerprints
        self._only_aggregates = sorted(only_aggregates)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the samples that count."""
        del port
        rows = batch.rows
        if self._only_aggregates:
            rows = rows.filter(~pl.col(QUERY_GROUP.name).is_in(self._only_aggregates))
        if COVERED_BY_COLUMN not in rows.columns:
            return Batch(rows, batch.watermark_us)
        if rows[COVERED_BY_COLUMN].null_count() < rows.height:
            own = pl.col(QUERY_GROUP.name).replace_strict(self._fingerprints, default=None, return_dtype=pl.String)
            covered = pl.col(COVERED_BY_COLUMN).str.split(" ").list.contains(own)
            rows = rows.filter(~covered.fill_null(value=False))
        return Batch(rows.drop(COVERED_BY_COLUMN), batch.watermark_us)


@final
class RunningPreaggregatedFilter(PassesRows, KeepsNothing, PassesNoOrigins, Subscribed[kinds.PreaggregatedFilter]):
    """Samples without those that device aggregates contain."""

    def operator(self, operation: kinds.PreaggregatedFilter, fragment: Fragment) -> Operator:
        """Return the operator for the aggregates that the queries use."""
        del operation
        given = {each.group: each.devices for each in fragment.subscribers if each.devices is not None}
        only = frozenset(group for group, devices in given.items() if devices.only)
        return PreaggregatedFilter({group: devices.fingerprint for group, devices in given.items()}, only)
