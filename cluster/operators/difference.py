"""Differences and intersections of bags (``EXCEPT``, ``INTERSECT``)."""

from __future__ import annotations

from typing import ClassVar, Self, final

from cluster.operators.characteristics import Characteristics
from cluster.operators.columns import Schema
from cluster.operators.expected_rows import Expected, Measured
from cluster.operators.families import CountsCopies, LeftRows, WhileBoth, WholeTuples
from cluster.operators.greatest_values import Greatest
from cluster.operators.node import Node
from cluster.operators.operation import Late
from cluster.operators.query_groups import marks_in_place
from cluster.shared_nodes import remembered


class _ByCounts(WholeTuples, LeftRows, frozen=True):
    """Base of nodes that compare how many copies of a tuple both inputs have."""

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return it above inputs whose marks have the same places."""
        return self.with_inputs(marks_in_place(inputs, marks))

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return all rows of the left, as nothing is known of equal ones on the right."""
        del measured
        return Expected(below[0], sum(each.valid_rows for each in below))

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same for both, by the places of columns."""
        names = {one.name: other.name for one, other in zip(self.left.schema, self.right.schema, strict=True)}
        return greatest, {names[name]: most for name, most in greatest.items()}


@final
class Difference(CountsCopies, _ByCounts, frozen=True, tag="Difference"):
    """Bag difference: multiplicity max(left - right, 0)."""

    written_as: ClassVar[str] = "EXCEPT"

    def describe(self) -> str:
        """Return its name."""
        return "difference"

    def operation(self, lag_us: int | None = None) -> DifferenceOperation:
        """Return what runs of it."""
        del lag_us
        return DifferenceOperation(self.schema)

    @property
    def duplicate_free(self) -> bool:
        """Whether the left is."""
        return self.left.duplicate_free

    @property
    def is_empty(self) -> bool:
        """Whether the left is."""
        return self.left.is_empty


@final
class Intersection(WhileBoth, _ByCounts, frozen=True, tag="Intersection"):
    """Bag intersection: multiplicity min(left, right)."""

    written_as: ClassVar[str] = "INTERSECT"

    def describe(self) -> str:
        """Return its name."""
        return "intersection"

    def operation(self, lag_us: int | None = None) -> IntersectionOperation:
        """Return what runs of it."""
        del lag_us
        return IntersectionOperation(self.schema)

    @property
    @remembered
    def duplicate_free(self) -> bool:
        """Whether one of them is."""
        return self.left.duplicate_free or self.right.duplicate_free


@final
class DifferenceOperation(Late, frozen=True, tag="Difference"):
    """Rows of the left input without those of the right one."""

    columns: Schema
    called: ClassVar[str] = "Multiplicities"

    def describe(self) -> str:
        """Return one line about it."""
        return "difference"


@final
class IntersectionOperation(Late, frozen=True, tag="Intersection"):
    """Rows that both inputs have."""

    columns: Schema
    called: ClassVar[str] = "Multiplicities"

    def describe(self) -> str:
        """Return one line about it."""
        return "intersection"
