"""What conditions and measures of a pattern read of the rows that elements have, for many runs or matches at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from cluster.expressions.walks import columns_read
from cluster.fjord.aggregates import partial_columns, split_aggregate
from cluster.fjord.scalars import POLARS_TYPES, compile_scalar, program_of
from cluster.operators.scalar_expressions import plain_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.fjord.pattern_rows import Partition
    from cluster.fjord.row_automaton import Bounds
    from cluster.operators.columns import AggregateCall, Scalar
    from cluster.operators.pattern_match import Reach, RowPattern

_OF = "fjord_of"


class PatternValues:
    """Evaluates expressions over columns of rows, and :class:`~cluster.operators.pattern_match.Reach`.

    Parameters
    ----------
    pattern
        The pattern.
    """

    def __init__(self, pattern: RowPattern) -> None:
        self._reaches = {reach.name: reach for reach in pattern.reaches}
        self._elements = [element.variable for element in pattern.elements]
        self._conditions = {each.variable: each.reaching for each in pattern.definitions if each.reaching is not None}
        self._programs = {variable: program_of(scalar.expression) for variable, scalar in self._conditions.items()}
        aggregated = {name for name, reach in self._reaches.items() if reach.call is not None}
        self.aggregates = {name for name, program in self._programs.items() if aggregated & set(program.columns)}
        """Variables whose conditions read aggregates."""

    def met(self, variable: str, table: pl.DataFrame, asked: Sequence[tuple[Partition, Bounds, int]]) -> list[bool]:
        """Return whether the condition of a variable holds for the last row, in each of several runs."""
        program = self._programs[variable]
        current = [partition.rows[end - 1 - partition.first] for partition, _, end in asked]
        values = [
            self._reached(self._reaches[name], table, asked) if name in self._reaches else table[name].gather(current)
            for name in program.columns
        ]
        found = program.run(values).fill_null(value=False).to_list()
        return found if len(found) == len(asked) else found * len(asked)

    def measured(
        self, pattern: RowPattern, table: pl.DataFrame, matches: Sequence[tuple[Partition, Bounds, int]]
    ) -> pl.DataFrame:
        """Return the measures of matches, a row for each."""
        columns = {
            reach.name: self._reached(reach, table, matches)
            for reach in pattern.reaches
            if any(reach.name in _columns(output.scalar) for output in pattern.measures)
        }
        marked = pl.DataFrame({_OF: pl.Series(range(len(matches)), dtype=pl.Int64), **columns})
        outputs = []
        for output in pattern.measures:
            value = compile_scalar(output.scalar)
            value = value if value.meta.root_names() else pl.when(pl.col(_OF).is_not_null()).then(value)
            outputs.append(value.cast(POLARS_TYPES[output.scalar.type]).alias(output.name))
        return marked.select(outputs)

    def rows_read(self, variable: str, begins: Bounds, end: int) -> int:
        """Return how many rows the aggregates in a variable's condition read."""
        return end - begins[0] if variable in self.aggregates else 0

    def _reached(self, reach: Reach, table: pl.DataFrame, held: Sequence[tuple[Partition, Bounds, int]]) -> pl.Series:
        if reach.call is not None:
            return self._aggregated(reach, reach.call, table, held)
        assert reach.scalar is not None  # noqa: S101 - what a reach without an aggregate is
        places = [self._place(reach, partition, begins, end) for partition, begins, end in held]
        name = plain_column(reach.scalar)
        if name is not None:
            return table[name].gather(pl.Series(places, dtype=pl.Int64)).alias(reach.name)
        own = [place for place in places if place is not None]
        values = _evaluated(reach.scalar, table[own] if own else table.clear())
        number = iter(range(len(own)))
        back = pl.Series([None if place is None else next(number) for place in places], dtype=pl.Int64)
        return values.gather(back).alias(reach.name)

    def _place(self, reach: Reach, partition: Partition, begins: Bounds, end: int) -> int | None:
        """Return where the row is that is asked for; None if there is none."""
        left = reach.offset
        spans = list(self._spans(reach.variable, begins, end))
        for first, until in spans if reach.kind == "first" else reversed(spans):
            if left < until - first:
                row = first + left if reach.kind == "first" else until - 1 - left
                return partition.rows[row - partition.first]
            left -= until - first
        return None

    def _spans(self, variable: str | None, begins: Bounds, end: int) -> Iterable[tuple[int, int]]:
        """Yield the spans of rows that a variable has, in order; some may be empty."""
        if variable is None:
            yield begins[0], end
            return
        for place, begin in enumerate(begins):
            if self._elements[place] == variable:
                yield begin, begins[place + 1] if place + 1 < len(begins) else end

    def _aggregated(
        self,
        reach: Reach,
        call: AggregateCall,
        table: pl.DataFrame,
        held: Sequence[tuple[Partition, Bounds, int]],
    ) -> pl.Series:
        places: list[int] = []
        owners: list[int] = []
        for number, (partition, begins, end) in enumerate(held):
            for first, until in self._spans(reach.variable, begins, end):
                places += partition.places(first, until)
                owners += [number] * (until - first)
        rows = (table[places] if places else table.clear()).with_columns(pl.Series(_OF, owners, pl.Int64))
        columns = partial_columns([call])
        begun = rows.group_by(_OF, maintain_order=True).agg([column.begin for column in columns])
        merged = begun.group_by(_OF, maintain_order=True).agg([column.merge for column in columns])
        found = merged.select(_OF, split_aggregate(call).final)
        everyone = pl.DataFrame({_OF: pl.Series(range(len(held)), dtype=pl.Int64)})
        values = everyone.join(found, on=_OF, how="left", maintain_order="left")[call.name]
        return values.fill_null(0) if call.function == "count" else values


def _columns(scalar: Scalar) -> frozenset[str]:
    return frozenset(columns_read(scalar.expression))


def _evaluated(scalar: Scalar, rows: pl.DataFrame) -> pl.Series:
    program = program_of(scalar.expression)
    kind = POLARS_TYPES[scalar.type]
    values = program.run([rows[name] for name in program.columns]).cast(kind)
    return values if program.columns else values.new_from_index(0, rows.height)
