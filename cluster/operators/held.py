"""Rows of relations as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NoReturn, Self, final

from msgspec.structs import replace

from cluster.operators.columns import Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import NotEstimated, OneInput
from cluster.operators.lookup import TableLookup
from cluster.operators.node import Conditions, Need, Node
from cluster.operators.operation import Late, listed
from cluster.shared_nodes import remembered


@final
class Held(NotEstimated, OneInput, frozen=True, tag="Held"):
    """The rows of a table of relations as a stream: each is valid as long as the versions that have it hold.

    A version holds, at the instants of the streams of `input`, from where tuples are looked up in it.

    Parameters
    ----------
    input
        A plan of the streams whose time passes; its tuples do not matter.
    table
        A plan of relations only.
    waits_us, against
        How much later the rows begin than these streams: once the windows they are held against can be full. Zero for
        rows that begin with the query.
    begins_us
        The instant at which the query begins: fixed when it does, None before, and if the streams begin later.
    epoch
        The epoch with which the query begins: no other one shares these rows.
    marks
        More columns, which tell the queries of a template apart (cluster/physical/rules).
    """

    written_as: ClassVar[str] = "a relation"
    table: Node
    waits_us: int = 0
    against: tuple[str, ...] = ()
    begins_us: int | None = None
    epoch: int = 0
    marks: Schema = ()

    @property
    def tables(self) -> tuple[Node, ...]:
        """The table."""
        return (self.table,)

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of the table, and marks."""
        return self.table.schema + self.marks

    @property
    def never_null(self) -> frozenset[str]:
        """Those of the table."""
        return self.table.never_null

    def describe(self) -> str:
        """Return one line, without the table."""
        return held_words(self.table, filled=self.waits_us > 0)

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return it with the marks as columns."""
        return replace(self, input=inputs[0], marks=marks)

    def operation(self, lag_us: int | None = None) -> None:
        """Return nothing: it is more than one node."""
        del lag_us

    @property
    def is_instantaneous(self) -> bool:
        """No: rows are valid while versions hold."""
        return False

    @property
    def rows_last_us(self) -> None:
        """As long as a version holds."""
        return

    @property
    def is_empty(self) -> bool:
        """No: its rows are those of the table."""
        return False

    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return False: only the time of the streams matters."""
        del above
        return (False,)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield the streams without columns: only their time matters."""
        del wanted, conditions
        yield self.input, frozenset(), ()

    def reach_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("rows of relations begin to flow with the query")

    delay_us = reach_us

    def published_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("rows are valid until a tuple comes, or for ever")

    @property
    @remembered
    def full_after_us(self) -> int:
        """As the streams."""
        return self.input.full_after_us


@final
class HeldOperation(Late, frozen=True, tag="Held"):
    """The rows of a table of relations, each valid as long as the versions that have it hold.

    Parameters
    ----------
    table
        The table; there is no condition.
    streams
        The streams whose instants determine the version of the table.
    begins_us
        The instant at which the query begins; None for that at which the streams do (cluster/physical/nodes.py).
    waits_us
        How much later the rows begin.
    marked
        Whether the rows have the query group.
    against
        The streams of which the last to begin counts then; none if the first of `streams` does.
    """

    table: TableLookup
    streams: tuple[str, ...]
    begins_us: int | None
    waits_us: int
    marked: bool
    against: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return one line about it."""
        return held_words(self.table.table, filled=self.waits_us > 0)


def held_words(table: Node, *, filled: bool) -> str:
    """Return one line about rows of relations that flow, without the plan of their table."""
    names = listed(tuple(dict.fromkeys(relation.name for relation in table.relations)))
    return f"rows of {names} while they hold{', once the windows they are held against can be full' if filled else ''}"
