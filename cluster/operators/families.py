"""Families of operators: what is true of all that keep the same promise, answered once.

A class chooses its families in its first line. Bases with fields are structs, those without are plain classes that may
be combined.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator
from typing import ClassVar, Self

from msgspec.structs import replace

from cluster.operators.characteristics import NOT_KNOWN, Characteristics, Expected, Measured
from cluster.operators.columns import QUERY_GROUP, Scalar, Schema
from cluster.operators.node import Conditions, Need, Node, all_exact, error_of, lasts_us
from cluster.operators.scalar_expressions import columns_of
from cluster.shared_nodes import SharedNode, remembered


class ColumnsOfFirst(Node):
    """A family: rows have the columns of the first input, with its values."""

    __slots__ = ()

    @property
    @remembered
    def schema(self) -> Schema:
        """Those of the first input."""
        return self.inputs[0].schema

    @property
    @remembered
    def never_null(self) -> frozenset[str]:
        """Those of the first input."""
        return self.inputs[0].never_null


class RowsOfFirst(ColumnsOfFirst):
    """A family: each row is one of the first input, or made of some, and valid no longer."""

    __slots__ = ()

    @property
    @remembered
    def is_instantaneous(self) -> bool:
        """Whether those of the first input are."""
        return self.inputs[0].is_instantaneous

    @property
    @remembered
    def rows_last_us(self) -> int | None:
        """As long as those of the first input."""
        return self.inputs[0].longest_validity_us


class Instantaneous(Node):
    """A family: every row is valid at one instant only."""

    __slots__ = ()

    @property
    def is_instantaneous(self) -> bool:
        """Yes."""
        return True

    @property
    def rows_last_us(self) -> int:
        """An instant."""
        return 1


class PassesCopies(Node):
    """A family: each copy of a tuple makes a copy of its row."""

    __slots__ = ()

    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return whether the multiplicity of its rows matters."""
        return tuple(above for _ in self.inputs)


class PassesMarks(Node):
    """A family: a row has the marks of those that it is made of, which differ by no others."""

    __slots__ = ()

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return the node above these inputs."""
        del marks
        return self.with_inputs(inputs)


class CountsCopies(Node):
    """A family: the answer depends on how many copies of a tuple there are."""

    __slots__ = ()

    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return True for each input."""
        del above
        return tuple(True for _ in self.inputs)


class WholeTuples(Node):
    """A family: tuples are compared, or ordered, as a whole."""

    __slots__ = ()

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield all columns of each input."""
        del wanted, conditions
        for each in self.inputs:
            yield each, each.names, ()


class AnswersAtOnce(Node):
    """A family: each row is answered as it comes, and none is kept."""

    __slots__ = ()

    @property
    def waits_for_progress(self) -> bool:
        """No."""
        return False


class CutAtWatermarks(Node):
    """A family: a row waits for later tuples, and is cut where an operator above waits for its progress."""

    __slots__ = ()

    @property
    def is_cut_at_watermarks(self) -> bool:
        """Yes."""
        return True


class PassesForEver(Node):
    """A family: tuples that are valid for ever are passed on, and not kept."""

    __slots__ = ()

    @property
    def keeps_tuples(self) -> bool:
        """No."""
        return False

    @property
    @remembered
    def stays_for_ever(self) -> bool:
        """Whether those of an input do."""
        return any(each.stays_for_ever for each in self.inputs)


class PassesErrors(Node):
    """A family: rows have values of the first input's, which are off by as much; which rows there are, some decide."""

    __slots__ = ()

    @property
    def decided_by(self) -> frozenset[str]:
        """The columns that decide which rows there are, or what comes together; none, unless they are named."""
        return frozenset()

    @property
    @remembered
    def rows_are_certain(self) -> bool:
        """Whether those of the first input are, and no column that decides may be off."""
        below = self.inputs[0]
        return not self.is_off or (below.rows_are_certain and all_exact(below, self.decided_by))

    def error_of(self, column: str) -> float | None:
        """Return that of the first input."""
        return error_of(self.inputs[0], column)


class NotEstimated(Node):
    """A family: its rows are not estimated."""

    __slots__ = ()

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return nothing: that is not known."""
        del below, measured
        return NOT_KNOWN


class WhileBoth(PassesCopies):
    """A family: a row is valid while rows of all inputs are."""

    __slots__ = ()

    @property
    @remembered
    def is_instantaneous(self) -> bool:
        """Whether the rows of an input are."""
        return any(each.is_instantaneous for each in self.inputs)

    @property
    @remembered
    def rows_last_us(self) -> int | None:
        """As long as those of all inputs, at most."""
        bounds = [bound for each in self.inputs if (bound := each.longest_validity_us) is not None]
        return min(bounds, default=None)

    @property
    @remembered
    def is_empty(self) -> bool:
        """Whether an input is."""
        return any(each.is_empty for each in self.inputs)


class OneInput(SharedNode, Node, frozen=True):
    """Base of nodes with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The input."""
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Self:
        """Return the node above another input."""
        (below,) = inputs
        return replace(self, input=below)

    @property
    @remembered
    def is_empty(self) -> bool:
        """Whether the input is: nothing comes of nothing."""
        return self.input.is_empty


class Keyed(OneInput, frozen=True):
    """Base of nodes in which rows of different keys do not meet."""

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """Columns of the input."""

    @property
    def decided_by(self) -> frozenset[str]:
        """Its keys."""
        return frozenset(self.keys)

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return it with the query group as one more key."""
        del marks
        (below,) = inputs
        return replace(self, input=below, keys=(*self.keys, QUERY_GROUP.name))


class Snapshotwise(RowsOfFirst, OneInput, frozen=True):
    """Base of nodes whose answer at an instant is made of the input's snapshot at that instant, and nothing else."""

    @remembered
    def reach_us(self) -> int:
        """Return the reach of the input."""
        return self.input.reach_us()

    @remembered
    def published_us(self) -> int:
        """Return that of the input."""
        return self.input.published_us()

    @property
    @remembered
    def full_after_us(self) -> int:
        """As the input."""
        return self.input.full_after_us


class RowByRow(PassesCopies, AnswersAtOnce, Snapshotwise, frozen=True):
    """Base of nodes that answer at most one row for each of the input, whatever others there are."""

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows of the input: each makes one."""
        del measured
        return Expected(below[0])

    @remembered
    def delay_us(self) -> int:
        """Return the delay of the input."""
        return self.input.delay_us()

    @property
    @remembered
    def step_us(self) -> int | None:
        """That of the input."""
        return self.input.step_us

    def interval_shape(self, windows: tuple[Hashable, ...] = ()) -> Hashable | None:
        """Return that of the input."""
        return self.input.interval_shape(windows)


class Window(ColumnsOfFirst, OneInput, frozen=True):
    """Base of nodes that change only for how long the input's tuples are valid."""

    written_as: ClassVar[str] = "a window"


class TwoInputs(SharedNode, Node, frozen=True):
    """Base of nodes with two inputs."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Left and right."""
        return (self.left, self.right)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Self:
        """Return the node above other inputs."""
        left, right = inputs
        return replace(self, left=left, right=right)


class SnapshotPair(TwoInputs, frozen=True):
    """Base of nodes whose answer at an instant is made of both inputs' snapshots at that instant, and nothing else."""

    @remembered
    def reach_us(self) -> int:
        """Return the reach of both."""
        return max(self.left.reach_us(), self.right.reach_us())

    @remembered
    def published_us(self) -> int:
        """Return that of both."""
        return max(self.left.published_us(), self.right.published_us())

    @property
    @remembered
    def full_after_us(self) -> int:
        """As both."""
        return max(self.left.full_after_us, self.right.full_after_us)

    def delay_of_inputs_us(self) -> int:
        """Return the longer delay."""
        return max(self.left.delay_us(), self.right.delay_us())


class OnCondition(SnapshotPair, frozen=True):
    """Base of nodes that hold tuples of both inputs against each other by a condition (None: none)."""

    predicate: Scalar | None

    @property
    def _read(self) -> frozenset[str]:
        return columns_of(self.predicate) if self.predicate else frozenset()

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield both with what is wanted of them, and what the predicate reads."""
        del conditions
        needed = wanted | self._read
        for side in self.inputs:
            yield side, needed & side.names, ()

    @property
    @remembered
    def rows_are_certain(self) -> bool:
        """Whether those of both are, and the condition reads nothing that may be off."""
        sides = self.inputs
        return not self.is_off or all(
            each.rows_are_certain and all_exact(each, self._read & each.names) for each in sides
        )

    def error_of(self, column: str) -> float | None:
        """Return that of the side it is of."""
        return error_of(self.left if column in self.left.names else self.right, column)


class LeftRows(RowsOfFirst, SnapshotPair, frozen=True):
    """Base of nodes that answer rows of the left, which the right lets pass or not."""

    @remembered
    def delay_us(self) -> int:
        """Return the delay of both, and how long a row lasts: it is not answered before its end is known."""
        return self.delay_of_inputs_us() + lasts_us(self)
