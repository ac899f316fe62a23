"""Joins of streams in their windows."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import ClassVar, final

from msgspec.structs import replace

from cluster.operators.characteristics import Characteristics, joined
from cluster.operators.columns import Scalar, Schema
from cluster.operators.expected_rows import Expected, Measured
from cluster.operators.families import OnCondition, WhileBoth
from cluster.operators.greatest_values import Greatest, both, greatest_of
from cluster.operators.interval_shapes import shapes_together
from cluster.operators.kept_rows import kept_by_join
from cluster.operators.node import Node
from cluster.operators.operation import Prompt, own_condition
from cluster.operators.query_groups import sides_apart, visible_pairs
from cluster.operators.words import readable
from cluster.shared_nodes import remembered


@final
class Join(WhileBoth, OnCondition, frozen=True, tag="Join"):
    """Pairs valid at the same instant for which the predicate is true (None: all pairs)."""

    written_as: ClassVar[str] = "a join"

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of both."""
        return self.left.schema + self.right.schema

    def describe(self) -> str:
        """Return the predicate."""
        return f"join {readable(self.predicate)}" if self.predicate else "product"

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Node:
        """Return pairs of one query group, visible to queries to which both tuples are."""
        left, right, predicate = sides_apart(inputs, self.right.schema, self.predicate, marks)
        return visible_pairs(replace(self, left=left, right=right, predicate=predicate), self.schema, marks)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the pairs that meet the condition, as long as neither side's rows are valid for ever."""
        left, right = below
        kept = sum(kept_by_join(left, right))
        if math.isinf(left.validity) or math.isinf(right.validity):
            return Expected(None, kept)
        condition = None if self.predicate is None else self.predicate.expression
        return Expected(joined(left, right, measured.pairs(condition, self.left.names, self.right.names)), kept)

    def operation(self, lag_us: int | None = None) -> JoinOperation:
        """Return what runs of it."""
        del lag_us
        return JoinOperation(self.left.schema, self.right.schema, self.predicate)

    @remembered
    def delay_us(self) -> int:
        """Return the longer delay."""
        return self.delay_of_inputs_us()

    @property
    @remembered
    def never_null(self) -> frozenset[str]:
        """Those of either."""
        return self.left.never_null | self.right.never_null

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same for both, and those of the predicate."""
        known = both(greatest, greatest_of(self.predicate))
        return known, known

    @property
    @remembered
    def unique_columns(self) -> frozenset[str] | None:
        """Those of both."""
        left, right = self.left.unique_columns, self.right.unique_columns
        return None if left is None or right is None else left | right

    @property
    @remembered
    def duplicate_free(self) -> bool:
        """Whether both are."""
        return self.left.duplicate_free and self.right.duplicate_free

    def interval_shape(self, windows: tuple[Hashable, ...] = ()) -> Hashable | None:
        """Return those of all that is joined, but for a join in a window."""
        return None if windows else shapes_together("join", [each.interval_shape() for each in self.inputs])


@final
class JoinOperation(Prompt, frozen=True, tag="Join"):
    """Pairs of rows that are valid together and meet the predicate."""

    left: Schema
    right: Schema
    predicate: Scalar | None

    def describe(self) -> str:
        """Return one line about it."""
        condition = own_condition(self.predicate)
        return f"join{condition}" if condition else "product"
