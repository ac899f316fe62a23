"""Joins by stamps: interval joins and ASOF joins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, final

from msgspec.structs import replace

from cluster.operators.characteristics import Characteristics, Expected, Measured, combinations
from cluster.operators.columns import Scalar, Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import Instantaneous, TwoInputs
from cluster.operators.node import Conditions, Need, Node
from cluster.operators.operation import Prompt, own_pairs, pairs_listed, readable, signed
from cluster.operators.query_groups import SAME_GROUP, marks_renamed, with_either_mark
from cluster.operators.scalar_expressions import columns_of
from cluster.operators.zip import ZipKind
from cluster.shared_nodes import remembered


@final
class StampJoin(Instantaneous, TwoInputs, frozen=True, tag="StampJoin"):
    """Pairs of tuples whose stamps are at most so far apart: interval joins, and ASOF joins.

    Tuples of either side are valid at their own instant only. A pair is valid at the instant of its later tuple, a
    tuple without a partner at the last instant at which one might have come, with NULLs for the other side.

    Parameters
    ----------
    keys
        Columns of left and right that must be equal; a NULL equals nothing.
    low_us, high_us
        Bounds of the right stamp minus the left one; without a lower one, all earlier tuples of the right count.
    kind
        Which tuples without a partner there are.
    predicate
        Another condition on pairs, over the columns of both; None for none.
    latest
        Whether only the latest of all tuples on the right is the partner of a left one (ASOF); of equal stamps, the one
        with the greatest values, NULL being less than all. There is no other condition then.
    """

    written_as: ClassVar[str] = "a join by stamps"
    keys: tuple[tuple[str, str], ...]
    low_us: int | None
    high_us: int
    kind: ZipKind = "inner"
    predicate: Scalar | None = None
    latest: bool = False

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of both."""
        return self.left.schema + self.right.schema

    def describe(self) -> str:
        """Return one line about it."""
        bounds_us = (self.low_us, self.high_us)
        return stamp_join_words(self.kind, bounds_us, self.keys, self.predicate, latest=self.latest)

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Node:
        """Return pairs of one query group; a tuple without a partner has the marks of its own side."""
        left, right = inputs
        right = marks_renamed(right, self.right.schema, marks)
        return with_either_mark(
            replace(self, left=left, right=right, keys=(*self.keys, SAME_GROUP)), self.schema, marks
        )

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return a row for each of the left; both are kept as long as partners may come, or the latest of each key."""
        del measured
        left, right = below
        before_us = max(-self.low_us, 0) if self.low_us is not None else 0
        of_right = combinations(self.keys) if self.latest else right.rate * (before_us + 1)
        return Expected(left, left.rate * (max(self.high_us, 0) + 1) + of_right)

    def operation(self, lag_us: int | None = None) -> StampJoinOperation:
        """Return what runs of it."""
        del lag_us
        sides, bounds_us = (self.left.schema, self.right.schema), (self.low_us, self.high_us)
        return StampJoinOperation(*sides, self.keys, *bounds_us, self.kind, self.predicate, self.latest)

    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return whether the multiplicity of its rows matters; of the right only if it is more than the latest."""
        return (above, above and not self.latest)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield both with what is wanted of them, the keys, and what the predicate reads."""
        del conditions
        needed = wanted.union(*self.keys)
        if self.latest:
            needed |= self.right.names  # all break ties: cluster/plan/rewrite.py
        elif self.predicate is not None:
            needed |= columns_of(self.predicate)
        for side in self.inputs:
            yield side, needed & side.names, ()

    @remembered
    def reach_us(self) -> int:
        """Return that of both, and how far stamps are apart."""
        if self.low_us is None:
            raise UnboundedPlanError("a join by stamps without a lower bound keeps its tuples for ever")
        return max(each.reach_us() for each in self.inputs) + self._apart_us

    @remembered
    def published_us(self) -> int:
        """Return that of both, and how far stamps are apart."""
        return max(each.published_us() for each in self.inputs) + self._apart_us

    @remembered
    def delay_us(self) -> int:
        """Return that of both, and how far stamps are apart."""
        return max(each.delay_us() for each in self.inputs) + self._apart_us

    @property
    def _apart_us(self) -> int:
        return abs(self.low_us or 0) + abs(self.high_us) + 1

    @property
    @remembered
    def full_after_us(self) -> int:
        """The larger bound after both."""
        return max(each.full_after_us for each in self.inputs) + max(-(self.low_us or 0), self.high_us, 0)

    @property
    @remembered
    def never_null(self) -> frozenset[str]:
        """Those of sides that are in every row."""
        left = self.left.never_null if self.kind != "full" else frozenset()
        return left | self.right.never_null if self.kind == "inner" else left


@final
class StampJoinOperation(Prompt, frozen=True, tag="StampJoin"):
    """Pairs of rows whose stamps are at most so far apart; fields as of the node."""

    left: Schema
    right: Schema
    keys: tuple[tuple[str, str], ...]
    low_us: int | None
    high_us: int
    kind: ZipKind
    predicate: Scalar | None
    latest: bool

    def describe(self) -> str:
        """Return one line about it."""
        bounds_us = (self.low_us, self.high_us)
        return stamp_join_words(self.kind, bounds_us, own_pairs(self.keys), self.predicate, latest=self.latest)


def stamp_join_words(
    kind: ZipKind,
    bounds_us: tuple[int | None, int],
    keys: tuple[tuple[str, str], ...],
    predicate: Scalar | None,
    *,
    latest: bool,
) -> str:
    """Return one line about an ASOF join or an interval join."""
    low_us, high_us = bounds_us
    which = "" if kind == "inner" else f"{kind} "
    on = pairs_listed(keys)
    if latest:
        before = "before" if high_us < 0 else "up to then"
        return f"{which}join with the latest {before}{'' if low_us is None else f' within {signed(-low_us)}'}{on}"
    bounds = f"{'any time before' if low_us is None else signed(low_us)} to {signed(high_us)}"
    return f"{which}join of stamps {bounds} apart{on}{f' and {readable(predicate)}' if predicate else ''}"
