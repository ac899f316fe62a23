"""Zipper joins: tuples of two streams paired one to one (``ZIP``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, NoReturn, final

from msgspec.structs import replace

from cluster.operators.characteristics import Characteristics, Expected, Measured
from cluster.operators.columns import Column, Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import CountsCopies, Instantaneous, TwoInputs
from cluster.operators.node import Conditions, Need, Node
from cluster.operators.operation import Prompt, own_pairs, pairs_listed, signed
from cluster.operators.query_groups import SAME_GROUP, marks_renamed, with_either_mark
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType

ZipKind = Literal["inner", "left", "full"]
"""Pairs; pairs and left tuples without a partner; pairs and all tuples without one."""


@final
class Zip(CountsCopies, Instantaneous, TwoInputs, frozen=True, tag="Zip"):
    """Tuples of both sides paired one to one in the order of their stamps (papers/fjords.md section 2, zipper join).

    Tuples of either side are valid at their own instant only. Look, among tuples with equal keys, at the earliest of
    each side that is neither paired nor unmatched yet; of equal stamps, at the one with the least values:

    * right minus left above `high_us` leaves the left one unmatched, below `low_us` the right one;
    * else, if the side of the earlier one has a later tuple that is not after the other and within the bounds, too, the
      earlier one stays unmatched: the later one is nearer;
    * else they are a pair.

    A pair is valid at the instant of its later tuple, an unmatched tuple at the last instant at which a partner might
    have come; NULLs are in place of the other side then.

    Parameters
    ----------
    keys
        Columns of left and right that must be equal; a NULL equals nothing.
    low_us, high_us
        Bounds of the right stamp minus the left one.
    kind
        Which tuples without a partner there are.
    apart
        The name of the column, behind those of both sides, with the right stamp minus the left one.
    """

    written_as: ClassVar[str] = "a zipper join"
    keys: tuple[tuple[str, str], ...]
    low_us: int
    high_us: int
    kind: ZipKind
    apart: str

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of both, and how far their stamps are apart."""
        return (*self.left.schema, *self.right.schema, Column(self.apart, FieldType.INTEGER, "us"))

    def describe(self) -> str:
        """Return one line about it."""
        return zip_words(self.kind, self.low_us, self.high_us, self.keys)

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Node:
        """Return pairs of one query group; a tuple without a partner has the marks of its own side."""
        left, right = inputs
        right = marks_renamed(right, self.right.schema, marks)
        return with_either_mark(
            replace(self, left=left, right=right, keys=(*self.keys, SAME_GROUP)), self.schema, marks
        )

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return a row for each of the left; both are kept as long as partners may come."""
        del measured
        left, right = below
        return Expected(left, left.rate * (max(self.high_us, 0) + 1) + right.rate * (max(-self.low_us, 0) + 1))

    def operation(self, lag_us: int | None = None) -> ZipOperation:
        """Return what runs of it."""
        del lag_us
        return ZipOperation(
            self.left.schema, self.right.schema, self.keys, self.low_us, self.high_us, self.kind, self.apart
        )

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield all tuples of both, as pairs depend on all, with what is wanted of them and the keys."""
        del conditions
        needed = wanted.union(*self.keys)
        for side in self.inputs:
            yield side, needed & side.names, ()

    def reach_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("which tuples a zipper join pairs depends on all tuples before them")

    delay_us = reach_us

    def published_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("rows are valid until a tuple comes, or for ever")

    @property
    @remembered
    def full_after_us(self) -> int:
        """The larger bound after both."""
        return max(each.full_after_us for each in self.inputs) + max(-self.low_us, self.high_us, 0)

    @property
    @remembered
    def never_null(self) -> frozenset[str]:
        """Those of sides that are in every row."""
        left = self.left.never_null if self.kind != "full" else frozenset()
        return left | self.right.never_null | {self.apart} if self.kind == "inner" else left


@final
class ZipOperation(Prompt, frozen=True, tag="Zip"):
    """Rows paired one to one in the order of their stamps; fields as of the node."""

    left: Schema
    right: Schema
    keys: tuple[tuple[str, str], ...]
    low_us: int
    high_us: int
    kind: ZipKind
    apart: str

    def describe(self) -> str:
        """Return one line about it."""
        return zip_words(self.kind, self.low_us, self.high_us, own_pairs(self.keys))


def zip_words(kind: ZipKind, low_us: int, high_us: int, keys: tuple[tuple[str, str], ...]) -> str:
    """Return one line about a zipper join."""
    which = "" if kind == "inner" else f"{kind} "
    bounds = signed(high_us) if low_us == -high_us else f"{signed(low_us)} to {signed(high_us)}"
    return f"{which}zip within {bounds}{pairs_listed(keys)}"
