"""Rows of relations that the tuples of a stream are looked up in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, final

import msgspec

from cluster.operators.columns import Scalar, Schema
from cluster.operators.families import PassesMarks, RowByRow
from cluster.operators.greatest_values import Greatest, both, greatest_of
from cluster.operators.node import Conditions, Need, Node, lasts_us
from cluster.operators.operation import Prompt, listed, readable
from cluster.operators.scalar_expressions import columns_of
from cluster.shared_nodes import remembered

LookupKind = Literal["inner", "left", "semi", "anti"]
"""Pairs; pairs, or the tuple with NULLs where it has no partner; tuples that have a partner; tuples that have none."""


class TableLookup(msgspec.Struct, frozen=True):
    """What every tuple of a stream is looked up in: see :class:`Lookup`.

    Parameters
    ----------
    table
        A plan of relations only.
    predicate
        Over the columns of both; None for all pairs.
    kind
        What becomes of a tuple.
    """

    table: Node
    predicate: Scalar | None
    kind: LookupKind

    @property
    def pairs(self) -> bool:
        """True if it adds the columns of the table."""
        return self.kind in ("inner", "left")


@final
class Lookup(PassesMarks, RowByRow, frozen=True, tag="Lookup"):
    """Tuples with the rows of a table of relations that are active when they begin to be valid.

    A change of a relation affects only tuples that begin after it (papers/star_joins.md section 1.3); a pair is valid
    as long as its tuple is.

    Parameters
    ----------
    input
        The tuples.
    table
        A plan of relations only.
    predicate
        Over the columns of both; None for all pairs.
    kind
        What becomes of a tuple.
    by
        Columns of the input by whose values tuples are spread over buckets, where the table is too large for every
        worker to have it; none where it is not.
    """

    written_as: ClassVar[str] = "LEFT JOIN"
    table: Node
    predicate: Scalar | None
    kind: LookupKind = "inner"
    by: tuple[str, ...] = ()

    @property
    def pairs(self) -> bool:
        """True if it adds the columns of the table."""
        return self.kind in ("inner", "left")

    @property
    def tables(self) -> tuple[Node, ...]:
        """The table."""
        return (self.table,)

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of the tuples, and those of the table if there are pairs."""
        return self.input.schema + (self.table.schema if self.pairs else ())

    def describe(self) -> str:
        """Return one line, without the table."""
        return lookup_words(self)

    def operation(self, lag_us: int | None = None) -> None:
        """Return nothing: it is more than one node."""
        del lag_us

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield the tuples: with what is wanted of them, and what the predicate reads."""
        del conditions
        needed = wanted | (columns_of(self.predicate) if self.predicate else frozenset())
        yield self.input, needed & self.input.names, ()

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same, and those of the predicate if tuples without a partner do not pass."""
        passes = self.kind in ("inner", "semi")
        return (both(greatest, greatest_of(self.predicate)) if passes else greatest,)

    @remembered
    def reach_us(self) -> int:
        """Return the reach of the tuples; they are looked up where they begin."""
        if self.input.interval_shape() is not None:
            return self.input.reach_us()
        # What is looked up depends on when a row begins, and that on tuples that have ended by then.
        return self.input.reach_us() + lasts_us(self.input)


@final
class LookupOperation(Prompt, frozen=True, tag="Lookup"):
    """Rows with what a table of relations has for them.

    Parameters
    ----------
    table
        The table, the condition and the kind of lookup.
    streams
        The streams whose instants determine the version of the table.
    """

    table: TableLookup
    streams: tuple[str, ...]

    def describe(self) -> str:
        """Return one line about it."""
        return lookup_words(self.table)


def lookup_words(lookup: Lookup | TableLookup) -> str:
    """Return one line about a lookup, without its table."""
    names = listed(tuple(dict.fromkeys(relation.name for relation in lookup.table.relations)))
    on = f" on {readable(lookup.predicate)}" if lookup.predicate else ""
    match lookup.kind:
        case "inner":
            return f"look up in {names}{on}"
        case "left":
            return f"look up in {names}{on}, or NULLs"
        case "semi":
            return f"keep if found in {names}{on}"
        case "anti":
            return f"keep if not found in {names}{on}"
