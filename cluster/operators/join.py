"""Joins of streams in their windows, and tuples that have a partner or none (``EXISTS``, ``IN``)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import ClassVar, NamedTuple, Self, final

from msgspec.structs import replace

from cluster.operators.characteristics import Characteristics, Expected, Measured, joined, kept_by_join
from cluster.operators.columns import Scalar, Schema
from cluster.operators.families import LeftRows, OnCondition, WhileBoth
from cluster.operators.greatest_values import Greatest, both, greatest_of
from cluster.operators.node import Node
from cluster.operators.operation import Late, Prompt, own_condition, readable
from cluster.operators.query_groups import sides_apart, visible_pairs
from cluster.shared_nodes import remembered


class ShapesTogether(NamedTuple):
    """What several plans have to do with each other, and how often each shape is among them."""

    kind: str
    counts: frozenset[tuple[Hashable, int]]


def shapes_together(kind: str, shapes: Iterable[Hashable | None]) -> ShapesTogether | None:
    """Return the shape of what is joined or united; None if any has none."""
    found: Counter[Hashable] = Counter()
    for each in shapes:
        if each is None:
            return None
        if isinstance(each, ShapesTogether) and each.kind == kind:
            found.update(dict(each.counts))
        else:
            found[each] += 1
    return ShapesTogether(kind, frozenset(found.items()))


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
