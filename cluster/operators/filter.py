"""Conditions (``WHERE``, ``HAVING``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, final

from cluster.expressions.conditions import never_true
from cluster.operators.characteristics import Characteristics, Expected, Measured, filtered
from cluster.operators.columns import Scalar
from cluster.operators.families import PassesErrors, PassesForEver, PassesMarks, RowByRow
from cluster.operators.greatest_values import Greatest, both, greatest_of
from cluster.operators.node import Conditions, Need, Node
from cluster.operators.operation import Prompt, readable
from cluster.operators.scalar_expressions import columns_of, conjuncts_of
from cluster.shared_nodes import remembered


@final
class Filter(PassesMarks, PassesForEver, PassesErrors, RowByRow, frozen=True, tag="Filter"):
    """Tuples for which the predicate is true (not false, not NULL).

    In a template, `choice` is the place of the condition in each subscriber's list (cluster/physical/rules); None in a
    query.
    """

    predicate: Scalar
    choice: int | None = None

    def describe(self) -> str:
        """Return the condition."""
        return f"filter {'by own condition' if self.choice is not None else readable(self.predicate)}"

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the share of rows that meet the condition."""
        share = measured.passing(self.input.stream_as_it_comes, self.predicate.expression)
        return Expected(filtered(below[0], share))

    @property
    @remembered
    def stream_as_it_comes(self) -> str | None:
        """That of the input."""
        return self.input.stream_as_it_comes

    @property
    @remembered
    def below_filters(self) -> Node:
        """That of the input."""
        return self.input.below_filters

    @property
    def decided_by(self) -> frozenset[str]:
        """What the condition reads."""
        return columns_of(self.predicate)

    def operation(self, lag_us: int | None = None) -> FilterOperation | PerQueryFilterOperation:
        """Return what runs of it."""
        del lag_us
        return FilterOperation(self.predicate) if self.choice is None else PerQueryFilterOperation(self.choice)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield tuples that meet the condition, too, with what it reads."""
        here = (*conditions, *conjuncts_of(self.predicate))
        yield self.input, wanted | columns_of(self.predicate), here

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same, and those of the condition."""
        return (both(greatest, greatest_of(self.predicate)),)

    @property
    def single_row(self) -> bool:
        """Whether the input is a single row at most."""
        return self.input.single_row

    @property
    def unique_columns(self) -> frozenset[str] | None:
        """Those of the input."""
        return self.input.unique_columns

    @property
    def duplicate_free(self) -> bool:
        """Whether the input is."""
        return self.input.duplicate_free

    @property
    @remembered
    def is_empty(self) -> bool:
        """Whether the condition can never be true, or the input is empty."""
        return never_true(self.predicate.expression) or self.input.is_empty


@final
class FilterOperation(Prompt, frozen=True, tag="Filter"):
    """Rows for which the predicate is true."""

    predicate: Scalar

    def describe(self) -> str:
        """Return one line about it."""
        return f"filter {readable(self.predicate)}"


@final
class PerQueryFilterOperation(Prompt, frozen=True, tag="PerQueryFilter"):
    """The rows of each query group for which its own condition is true; `place` is that of the condition."""

    place: int
    called: ClassVar[str] = "MemberFilter"

    def describe(self) -> str:
        """Return one line about it."""
        return f"filter by own condition {self.place}"
