"""Tuples that have a partner or none (``EXISTS``, ``IN`` and their opposites)."""

from __future__ import annotations

from typing import ClassVar, Self, final

from msgspec.structs import replace

from cluster.operators.characteristics import Characteristics
from cluster.operators.columns import Scalar, Schema
from cluster.operators.expected_rows import Expected, Measured
from cluster.operators.families import LeftRows, OnCondition
from cluster.operators.greatest_values import Greatest, both, greatest_of
from cluster.operators.kept_rows import kept_by_join
from cluster.operators.node import Node
from cluster.operators.operation import Late, own_condition
from cluster.operators.query_groups import sides_apart
from cluster.operators.words import readable
from cluster.shared_nodes import remembered


class _ByPartners(LeftRows, OnCondition, frozen=True):
    """Base of nodes that let tuples of the left pass by their partners."""

    written_as: ClassVar[str] = "a subquery in a condition"

    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return that of the left only: one partner is as good as many."""
        return (above, False)

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return tuples by their partners in the same query group."""
        left, right, predicate = sides_apart(inputs, self.right.schema, self.predicate, marks)
        return replace(self, left=left, right=right, predicate=predicate)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return all rows of the left, as nothing is known of partners."""
        del measured
        return Expected(below[0], sum(kept_by_join(below[0], below[1])))

    @property
    def single_row(self) -> bool:
        """Whether the left is a single row at most."""
        return self.left.single_row

    @property
    def unique_columns(self) -> frozenset[str] | None:
        """Those of the left."""
        return self.left.unique_columns

    @property
    def duplicate_free(self) -> bool:
        """Whether the left is."""
        return self.left.duplicate_free

    def _condition_words(self) -> str:
        return f" {readable(self.predicate)}" if self.predicate else ""


@final
class SemiJoin(_ByPartners, frozen=True, tag="SemiJoin"):
    """Left tuples, with their multiplicity, for which some right tuple satisfies the predicate."""

    def describe(self) -> str:
        """Return the predicate."""
        return f"keep if any{self._condition_words()}"

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same for the left, and those of the predicate for both."""
        known = greatest_of(self.predicate)
        return both(greatest, known), known

    def operation(self, lag_us: int | None = None) -> SemiJoinOperation:
        """Return what runs of it."""
        del lag_us
        return SemiJoinOperation(self.left.schema, self.right.schema, self.predicate, anti=False)

    @property
    @remembered
    def is_empty(self) -> bool:
        """Whether one of them is."""
        return self.left.is_empty or self.right.is_empty


@final
class AntiJoin(_ByPartners, frozen=True, tag="AntiJoin"):
    """Left tuples, with their multiplicity, for which no right tuple satisfies the predicate."""

    def describe(self) -> str:
        """Return the predicate."""
        return f"keep if none{self._condition_words()}"

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same for the left; partners have those of the predicate."""
        return greatest, greatest_of(self.predicate)

    def operation(self, lag_us: int | None = None) -> SemiJoinOperation:
        """Return what runs of it."""
        del lag_us
        return SemiJoinOperation(self.left.schema, self.right.schema, self.predicate, anti=True)

    @property
    def is_empty(self) -> bool:
        """Whether the left is."""
        return self.left.is_empty


@final
class SemiJoinOperation(Late, frozen=True, tag="SemiJoin"):
    """Rows of the left input that have a partner, or that have none (`anti`)."""

    left: Schema
    right: Schema
    predicate: Scalar | None
    anti: bool

    def describe(self) -> str:
        """Return one line about it."""
        return f"keep if {'none' if self.anti else 'any'}{own_condition(self.predicate)}"
