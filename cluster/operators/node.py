"""The logical algebra: immutable typed nodes, one per operator of papers/pipes_algebra.md section 3, and their facts.

A node is a value: equal nodes mean the same stream. Nodes are shared: a plan is a graph in which equal parts may be one
object (cluster/shared_nodes.py). Column names of a node are unique.

What is true of an operator is a method of its node. A fact that has no safe answer is abstract, so that an operator
without it fails the type check; one that is merely known of some operators says "not known" for the others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import ClassVar, NamedTuple, NoReturn, Self, final

from cluster.operators.characteristics import NOT_KNOWN, Characteristics, Expected, Measured
from cluster.operators.columns import Scalar, Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.greatest_values import Greatest
from cluster.operators.operation import Operation
from cluster.operators.window_shapes import END_OF_TIME_US
from cluster.shared_nodes import SharedNode, remembered

Conditions = tuple[Scalar, ...]


class Bounds(NamedTuple):
    """What :meth:`Node.reach_us` and :meth:`Node.delay_us` return; None where there is no bound."""

    reach_us: int | None
    delay_us: int | None


class Node:
    """Any node of the logical algebra; no struct, so that plans are decoded by tag (cluster/plan/stored_plans.py)."""

    __slots__ = ()
    __struct_fields__: ClassVar[tuple[str, ...]]

    written_as: ClassVar[str] = "a stream"
    """How its operator is written in queries, in words."""

    @classmethod
    @abstractmethod
    def kind_name(cls) -> str:
        """Return what names it in plan files and prices, which never changes, however the class is called."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Its output columns."""

    @property
    @remembered
    def names(self) -> frozenset[str]:
        """The names of its output columns."""
        return frozenset(column.name for column in self.schema)

    @property
    @abstractmethod
    def inputs(self) -> tuple[Node, ...]:
        """Its inputs, left to right; the table of a lookup is none."""

    @abstractmethod
    def with_inputs(self, inputs: tuple[Node, ...]) -> Self:
        """Return the node above other inputs, left to right."""

    @abstractmethod
    def describe(self) -> str:
        """Return one line about the node itself."""

    @abstractmethod
    def operation(self, lag_us: int | None = None) -> Operation | None:
        """Return what runs of it in a physical plan; None for what does not run by itself.

        Parameters
        ----------
        lag_us
            How far a window by count, a rank or an extent may lag behind its input; None for any distance.
        """

    @abstractmethod
    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Node:
        """Return the node, above inputs whose rows have marks, so that rows of several queries do not meet.

        Its rows have the marks, too: they stay columns, or become keys (:mod:`cluster.physical.rules.folding`).

        Parameters
        ----------
        inputs
            In place of its own, left to right.
        marks
            QUERY_GROUP; and VISIBLE_FROM, if queries share tuples.
        """

    @property
    @remembered
    def relations(self) -> tuple[Relation, ...]:
        """The relations it reads, each once for every set of its columns, from the top down."""
        tables = (*self.tables, *self.inputs)
        return tuple(dict.fromkeys(relation for each in tables for relation in each.relations))

    @property
    def tables(self) -> tuple[Node, ...]:
        """Plans of relations that it reads besides its inputs."""
        return ()

    @property
    @remembered
    def streams(self) -> frozenset[str]:
        """The names of the streams it reads."""
        return frozenset[str]().union(*(each.streams for each in self.inputs))

    @property
    @abstractmethod
    def is_instantaneous(self) -> bool:
        """Whether every tuple is valid at one instant only (papers/pipes_algebra.md table 5.15)."""

    @property
    @remembered
    def longest_validity_us(self) -> int | None:
        """A bound on how long a row is valid; None if there is none."""
        return 1 if self.is_instantaneous else self.rows_last_us

    @property
    @abstractmethod
    def rows_last_us(self) -> int | None:
        """A bound on how long a row is valid that lasts longer than an instant; None if there is none."""

    @abstractmethod
    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return, by input, whether the answer depends on how many copies of a tuple the input has.

        Parameters
        ----------
        above
            Whether the multiplicity of the node's own answers matters.
        """

    @abstractmethod
    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield each input with the needed part of it.

        Parameters
        ----------
        wanted
            What is needed of the node's columns.
        conditions
            Met by all tuples that are needed of it.
        """

    @abstractmethod
    def reach_us(self) -> int:
        """Return how long after its stamp a tuple may matter to the answers of a plan, in microseconds.

        Raises
        ------
        UnboundedPlanError
            If there is no bound; says why.
        """

    @abstractmethod
    def published_us(self) -> int:
        """Return how long after the last stamp read a row may end that has been published with its end.

        Raises
        ------
        UnboundedPlanError
            If there is no bound; says why.
        """

    @abstractmethod
    def delay_us(self) -> int:
        """Return how far a plan's answers may be behind its streams, in microseconds.

        Once all streams have come to an instant t, all rows of the plan have flowed that begin before t less this.

        Raises
        ------
        UnboundedPlanError
            If there is no bound; says why.
        """

    @property
    def time_bounds(self) -> Bounds:
        """Its reach and delay; None where there is none."""
        return Bounds(_if_bounded(self.reach_us), _if_bounded(self.delay_us))

    @property
    @abstractmethod
    def full_after_us(self) -> int:
        """How long after its streams begin a plan lacks nothing; what has no bound in time is not waited for."""

    @property
    def keeps_tuples(self) -> bool:
        """Whether its operator would keep every tuple of an input whose tuples are valid for ever."""
        return True

    @property
    def stays_for_ever(self) -> bool:
        """Whether its rows may stay valid for ever, however many others come after them."""
        return False

    @property
    def quality(self) -> str | None:
        """The column with the quality of its rows, if tuples may be dropped and rows pass as they are."""
        return None

    @property
    def is_cut_at_watermarks(self) -> bool:
        """Whether a row waits for later tuples, and is cut where an operator above waits for its progress."""
        return False

    @property
    def waits_for_progress(self) -> bool:
        """Whether its operator answers what its inputs' progress has passed; else it answers each row as it comes."""
        return True

    @property
    @remembered
    def is_off(self) -> bool:
        """Whether a query allows an error in what it reads."""
        return any(each.is_off for each in self.inputs)

    @property
    def rows_are_certain(self) -> bool:
        """Whether the same rows are known to result whatever the values are that may be off."""
        return not self.is_off

    def error_of(self, column: str) -> float | None:
        """Return by how much a column may be off, of a node for which that has to be found out; None if not known."""
        del column
        return None

    @abstractmethod
    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return what is expected of it in its steady state: averages, for comparing plans.

        Parameters
        ----------
        below
            The rows of its inputs, left to right.
        measured
            What is known of streams, conditions and relations.
        """

    @property
    def below_filters(self) -> Node:
        """The topmost node, from this one on, that is neither a filter nor a projection."""
        return self

    @property
    def stream_as_it_comes(self) -> str | None:
        """The stream of which it passes on tuples as they are, each by itself; None if it computes them."""
        return None

    @property
    def never_null(self) -> frozenset[str]:
        """Columns that are known never to be NULL: counts, also when other operators pass them on."""
        return frozenset()

    @property
    def single_row(self) -> bool:
        """Whether it is known to have at most one row at any instant: an aggregate over all rows, or the first one."""
        return False

    @property
    def unique_columns(self) -> frozenset[str] | None:
        """Columns by which no two rows of an instant are equal; None if none are known."""
        return frozenset() if self.single_row else None

    @property
    def duplicate_free(self) -> bool:
        """Whether no snapshot can hold a tuple twice, as far as is known."""
        return False

    @property
    def is_empty(self) -> bool:
        """Whether it is known to have no tuple at any instant."""
        return False

    @property
    def step_us(self) -> int | None:
        """The distance of the instants at which its rows begin and end; None if they may do so at any."""
        return None

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return, by input, which rows are asked for: those with at most these values; all, as far as is known.

        Parameters
        ----------
        greatest
            Of the node's own columns.
        """
        del greatest
        return tuple({} for _ in self.inputs)

    def interval_shape(self, windows: tuple[Hashable, ...] = ()) -> Hashable | None:
        """Return what decides how long rows last: plans with equal snapshots and equal shapes have equal rows.

        Rows of plans without a shape also begin and end where other tuples do, so that the same snapshots may be cut in
        many ways: groups at every tuple that an aggregate gets to see, ranked rows even with the progress of time.

        Parameters
        ----------
        windows
            Those above it, from the top down.
        """
        del windows
        return None


def _if_bounded(bound_us: Callable[[], int]) -> int | None:
    try:
        return bound_us()
    except UnboundedPlanError:
        return None


Need = tuple[Node, frozenset[str], Conditions]
"""A part of a plan, the needed ones of its columns, and conditions that all needed tuples meet."""


class Leaf(SharedNode, Node, frozen=True):
    """Base of nodes without inputs."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """None."""
        return ()

    def with_inputs(self, inputs: tuple[Node, ...]) -> Self:
        """Return the node itself."""
        del inputs
        return self

    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return nothing."""
        del above
        return ()

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield nothing."""
        del wanted, conditions
        return iter(())


@final
class Relation(Leaf, frozen=True, tag="Relation"):
    """A relation as it is at an instant: a table that changes outside Fjord (papers/star_joins.md section 1.3).

    Parameters
    ----------
    name
        Its name in queries.
    identity
        A name no other relation ever has, not even one that is made anew under the same name.
    columns
        Those of its columns that are read.
    """

    name: str
    identity: str
    columns: Schema

    @property
    def schema(self) -> Schema:
        """Its columns."""
        return self.columns

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Itself."""
        return (self,)

    @property
    def streams(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def describe(self) -> str:
        """Return its name."""
        return f"relation {self.name}"

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return nothing: its versions are no rows that flow."""
        del below, measured
        return NOT_KNOWN

    def operation(self, lag_us: int | None = None) -> None:
        """Return nothing: it is more than one node."""
        del lag_us

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return the node itself: it is the same for all queries."""
        del inputs, marks
        return self

    @property
    def is_instantaneous(self) -> bool:
        """No: a version holds until the next."""
        return False

    @property
    def rows_last_us(self) -> None:
        """As long as a version holds."""
        return

    def reach_us(self) -> NoReturn:
        """Raise: it has no stamps."""
        raise UnboundedPlanError("a relation has no known bound")

    published_us = delay_us = reach_us

    @property
    def full_after_us(self) -> int:
        """At once."""
        return 0


@lru_cache(maxsize=4096)
def error_of(node: Node, column: str) -> float | None:
    """Return by how much a column of a node may be off; None if that is not known."""
    return node.error_of(column) if node.is_off else 0.0


def all_exact(node: Node, columns: Iterable[str]) -> bool:
    """Return whether none of some columns of a node may be off."""
    return all(error_of(node, name) == 0 for name in columns)


def lasts_us(node: Node) -> int:
    """Return how long a row of a node is valid at most.

    Raises
    ------
    UnboundedPlanError
        If there is no bound.
    """
    if (found := node.longest_validity_us) is None:
        raise UnboundedPlanError("its rows may be valid for ever")
    return found


def bounded(length_us: int) -> int | None:
    """Return a bound on how long a row is valid, None if it may be valid until the end of time."""
    return length_us if length_us < END_OF_TIME_US else None
