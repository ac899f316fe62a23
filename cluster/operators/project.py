"""Expressions of each tuple (``SELECT``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self, final

from msgspec.structs import replace

from cluster.operators.aggregate import Aggregate
from cluster.operators.columns import Column, Output, Schema
from cluster.operators.families import PassesErrors, PassesForEver, RowByRow
from cluster.operators.filter import Filter
from cluster.operators.greatest_values import Greatest, least
from cluster.operators.node import Conditions, Need, Node, all_exact, error_of
from cluster.operators.operation import ADDED, Prompt, listed, readable
from cluster.operators.scalar_expressions import (
    by_name,
    columns_of,
    columns_of_all,
    passed_on,
    plain_column,
    substituted,
)
from cluster.shared_nodes import remembered


@final
class Project(PassesForEver, PassesErrors, RowByRow, frozen=True, tag="Project"):
    """Tuples mapped to new ones; duplicates stay."""

    outputs: tuple[Output, ...]

    @property
    @remembered
    def schema(self) -> Schema:
        """The outputs."""
        return tuple(Column(output.name, output.scalar.type, output.unit) for output in self.outputs)

    def describe(self) -> str:
        """Return the outputs."""
        return f"project {listed(tuple(output_words(output) for output in self.outputs))}"

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return it with the marks passed on."""
        return replace(self, input=inputs[0], outputs=(*self.outputs, *passed_on(marks)))

    @property
    @remembered
    def below_filters(self) -> Node:
        """That of the input."""
        return self.input.below_filters

    def error_of(self, column: str) -> float | None:
        """Return that of a column that is passed on; what is computed of exact ones is exact."""
        scalar = by_name(self.outputs)[column]
        name = plain_column(scalar)
        if name is not None:
            return error_of(self.input, name)
        return 0.0 if all_exact(self.input, columns_of(scalar)) else None

    def operation(self, lag_us: int | None = None) -> ProjectOperation:
        """Return what runs of it."""
        del lag_us
        return ProjectOperation(self.outputs)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield what the wanted outputs read, and the conditions with the outputs written out."""
        outputs = by_name(self.outputs)
        below = [substituted(condition, outputs) for condition in conditions]
        known = tuple(condition for condition in below if condition is not None)
        yield self.input, columns_of_all([scalar for name, scalar in outputs.items() if name in wanted]), known

    @property
    @remembered
    def never_null(self) -> frozenset[str]:
        """Those that are columns of the input that are never NULL."""
        below = self.input.never_null
        return frozenset(output.name for output in self.outputs if plain_column(output.scalar) in below)

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return those of columns that are passed on."""
        passed = {output.name: plain_column(output.scalar) for output in self.outputs}
        return (least((name, most) for each, most in greatest.items() if (name := passed.get(each)) is not None),)

    @property
    def single_row(self) -> bool:
        """Whether the input is a single row at most."""
        return self.input.single_row

    @property
    @remembered
    def unique_columns(self) -> frozenset[str] | None:
        """Those of the input, if all are passed on."""
        below = self.input.unique_columns
        if below is None or self.single_row:
            return frozenset() if self.single_row else None
        names = {plain_column(output.scalar): output.name for output in reversed(self.outputs)}
        return frozenset(names[each] for each in below) if below <= names.keys() else None

    @property
    @remembered
    def duplicate_free(self) -> bool:
        """Whether it passes on all keys of groups, so that its rows are distinct."""
        below = self.input
        while isinstance(below, Filter):
            below = below.input
        passed_on = {plain_column(output.scalar) for output in self.outputs}
        return isinstance(below, Aggregate) and all(key in passed_on for key in below.keys)


@final
class ProjectOperation(Prompt, frozen=True, tag="Project"):
    """Rows mapped to new ones."""

    outputs: tuple[Output, ...]

    def describe(self) -> str:
        """Return the outputs, but for those that Fjord adds."""
        outputs = (output for output in self.outputs if output.name not in ADDED)
        return f"project {listed(tuple(_own_output_words(each) for each in outputs))}"


def output_words(output: Output) -> str:
    """Return one column of a projection, with its expression if that differs from its name."""
    return output.name if plain_column(output.scalar) == output.name else f"{output.name} = {readable(output.scalar)}"


def _own_output_words(output: Output) -> str:
    """Return one column of a running projection: keys of panes have names that are made of expressions."""
    return readable(output.scalar) if output.name.startswith("fjord_key(") else output_words(output)
