"""A predicate index: finds the predicates, of thousands, that hold for the rows of a batch.

Each predicate is entered in a segment tree under one of its columns, with the intervals of values for which it may
hold. The values of a batch descend the tree together, so a lookup costs the depth of the tree and the number of
results. Only for these candidates, the intervals of other columns are compared and all other conditions evaluated, once
for all predicates with the same expression. TelegraphCQ's grouped filters and NiagaraCQ work in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.expressions.walks import functions_called
from cluster.fjord.ranges import laid_out
from cluster.fjord.scalars import compile_scalar
from cluster.operators.columns import Scalar, Schema
from cluster.plan.predicate_intervals import Conditions, Interval, Intervals, Value, extract_ranges
from protocols.errors import FjordError
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
