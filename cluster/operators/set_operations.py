"""Bags of tuples: union, differences and intersections, and each tuple once (``UNION``, ``EXCEPT``, ``DISTINCT``)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import ClassVar, Self, final

from cluster.operators.characteristics import Characteristics, Expected, Measured, distinct, kept_by_distinct, united
from cluster.operators.columns import Schema
from cluster.operators.families import (
    CountsCopies,
    LeftRows,
    PassesCopies,
    PassesForEver,
    PassesMarks,
    SnapshotPair,
    Snapshotwise,
    WhileBoth,
    WholeTuples,
)
from cluster.operators.greatest_values import Greatest
from cluster.operators.join import shapes_together
from cluster.operators.node import Conditions, Need, Node, error_of
from cluster.operators.operation import Late, Prompt
from cluster.operators.query_groups import marks_in_place
from cluster.shared_nodes import remembered


@final
class Union(PassesForEver, PassesCopies, SnapshotPair, frozen=True, tag="Union"):
    """Bag union; the columns of both sides agree in number, type and (after renaming) name."""

    written_as: ClassVar[str] = "UNION"

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of the left."""
        return self.left.schema

    def describe(self) -> str:
        """Return its name."""
        return "union"

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return it above inputs whose marks have the same places."""
        return self.with_inputs(marks_in_place(inputs, marks))

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows of both."""
        del measured
        return Expected(united(below))

    @property
    @remembered
    def rows_are_certain(self) -> bool:
        """Whether those of both are."""
        return self.left.rows_are_certain and self.right.rows_are_certain

    def error_of(self, column: str) -> float | None:
        """Return the larger one of both."""
        place = [each.name for each in self.left.schema].index(column)
        left, right = error_of(self.left, column), error_of(self.right, self.right.schema[place].name)
        return None if left is None or right is None else max(left, right)

    def operation(self, lag_us: int | None = None) -> UnionOperation:
        """Return what runs of it."""
        del lag_us
        return UnionOperation(self.schema)

    @property
    @remembered
    def is_instantaneous(self) -> bool:
        """Whether both are."""
        return self.left.is_instantaneous and self.right.is_instantaneous

    @property
    @remembered
    def rows_last_us(self) -> int | None:
        """As long as those of either."""
        left, right = self.left.longest_validity_us, self.right.longest_validity_us
        return None if left is None or right is None else max(left, right)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield both with the columns at the places of the wanted ones."""
        del conditions
        places = [place for place, column in enumerate(self.schema) if column.name in wanted]
        for side in self.inputs:
            yield side, frozenset(side.schema[place].name for place in places), ()

    @remembered
    def delay_us(self) -> int:
        """Return the longer delay."""
        return self.delay_of_inputs_us()

    @property
    @remembered
    def never_null(self) -> frozenset[str]:
        """Those of both."""
        return self.left.never_null & self.right.never_null

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same for both, by the places of columns."""
        names = {one.name: other.name for one, other in zip(self.left.schema, self.right.schema, strict=True)}
        return greatest, {names[name]: most for name, most in greatest.items()}

    @property
    @remembered
    def is_empty(self) -> bool:
        """Whether both are."""
        return self.left.is_empty and self.right.is_empty

    def interval_shape(self, windows: tuple[Hashable, ...] = ()) -> Hashable | None:
        """Return those of all that is united."""
        return shapes_together("union", [each.interval_shape(windows) for each in self.inputs])


@final
class UnionOperation(Prompt, frozen=True, tag="Union"):
    """The rows of both inputs."""

    columns: Schema

    def describe(self) -> str:
        """Return one line about it."""
        return "union"


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


@final
class Distinct(PassesMarks, WholeTuples, Snapshotwise, frozen=True, tag="Distinct"):
    """Each tuple once per instant."""

    written_as: ClassVar[str] = "DISTINCT"

    def describe(self) -> str:
        """Return its name."""
        return "distinct"

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows, of each tuple one."""
        del measured
        return Expected(distinct(below[0], math.inf), kept_by_distinct(below[0]))

    def operation(self, lag_us: int | None = None) -> DistinctOperation:
        """Return what runs of it."""
        del lag_us
        return DistinctOperation(self.schema)

    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return False."""
        del above
        return (False,)

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same: rows pass with their values."""
        return (greatest,)

    @remembered
    def delay_us(self) -> int:
        """Return that of the input."""
        return self.input.delay_us()

    @property
    def single_row(self) -> bool:
        """Whether the input is a single row at most."""
        return self.input.single_row

    @property
    def unique_columns(self) -> frozenset[str]:
        """All; none if it is a single row at most."""
        return frozenset() if self.single_row else self.names

    @property
    def duplicate_free(self) -> bool:
        """Yes."""
        return True


@final
class DistinctOperation(Prompt, frozen=True, tag="Distinct"):
    """Each row once per instant."""

    columns: Schema

    def describe(self) -> str:
        """Return one line about it."""
        return "distinct"
