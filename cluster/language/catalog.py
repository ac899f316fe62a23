"""The entities that a query may name: streams that proxies feed, streams derived from them, and relations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from cluster.operators import Node
from cluster.operators.columns import Column, Schema
from protocols.wire.names import folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.expressions.user_functions import UserFunction
    from protocols.wire.streams import StreamSchema


class CatalogError(ClusterError):
    """A name is in use, unknown, or still needed."""


@dataclass(frozen=True, slots=True)
class BaseStream:
    """A stream that proxies feed.

    Parameters
    ----------
    schema
        Its fields. The stamp is not among them.
    stamp
        The column named by ORDERED BY, if the stream was created with one. It is the tuples' time and no query may
        name it (papers/pipes_algebra.md section 0.8).
    """

    schema: StreamSchema
    stamp: str | None = None

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.schema.name

    @property
    def columns(self) -> Schema:
        """The fields as columns of a plan."""
        return tuple(Column(each.name, each.type, each.unit) for each in self.schema.fields)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of the fields that are properties of sensors."""
        return tuple(each.name for each in self.schema.fixed)


@dataclass(frozen=True, slots=True)
class DerivedStream:
    """A named query (``CREATE STREAM name AS query``).

    Parameters
    ----------
    name
        Its name.
    node
        Its plan; using the name means the same as writing the query in its place.
    text
        The query.
    warnings
        The warnings about the query when it was created.
    reads
        Names of the streams that the query names.
    readings
        How often it reads streams, with every name written out.
    """

    name: str
    node: Node
    text: str = ""
    warnings: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    readings: int = 1

    @property
    def columns(self) -> Schema:
        """The columns of its result."""
        return self.node.schema


@dataclass(frozen=True, slots=True)
class StaticRelation:
    """A relation: a table outside Fjord that changes now and then (``CREATE RELATION``).

    Parameters
    ----------
    name
        Its name.
    identity
        A name no other relation ever has, not even one that is made anew under the same name.
    columns
        Its columns.
    """

    name: str
    identity: str
    columns: Schema


Entry = BaseStream | DerivedStream | StaticRelation
"""Any entity that a query may name."""


def kind_of(entry: Entry) -> str:
    """Return the word for an entry in messages."""
    return "relation" if isinstance(entry, StaticRelation) else "stream"


@dataclass(frozen=True, slots=True)
class Catalog:
    """All streams and relations, by name without regard to case. Immutable: changes return a new catalog."""

    entries: Mapping[str, Entry] = field(default_factory=lambda: MappingProxyType({}))
    unreadable: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By name, without case: why a stream that was created by an earlier version cannot be read."""
    functions: Mapping[str, UserFunction] = field(default_factory=lambda: MappingProxyType({}))
    """By name, without case."""

    @classmethod
    def of(cls, streams: Iterable[StreamSchema | Entry]) -> Catalog:
        """Return a catalog of `streams`, some of which may be relations."""
        catalog = cls()
        for stream in streams:
            entry = stream if isinstance(stream, BaseStream | DerivedStream | StaticRelation) else BaseStream(stream)
            catalog = catalog.with_stream(entry)
        return catalog

    @property
    def names(self) -> tuple[str, ...]:
        """All names, as they were declared."""
        return tuple(entry.name for entry in self.entries.values())

    def find(self, name: str) -> Entry | None:
        """Return the stream or relation called `name`, or None."""
        return self.entries.get(folded(name))

    def function(self, name: str) -> UserFunction | None:
        """Return the function of a user called `name`, or None."""
        return self.functions.get(folded(name))

    def with_functions(self, functions: Iterable[UserFunction]) -> Catalog:
        """Return a catalog with these functions in place of its own."""
        return replace(self, functions=MappingProxyType({each.name.casefold(): each for each in functions}))

    def with_stream(self, entry: Entry) -> Catalog:
        """Return a catalog that also has `entry`.

        Raises
        ------
        CatalogError
            If its name is taken.
        """
        if (taken := self.find(entry.name)) is not None:
            raise CatalogError(
                f"there is already a {kind_of(taken)} {entry.name!r}", hint="drop it first, or choose another name"
            )
        return replace(self, entries=MappingProxyType({**self.entries, entry.name.casefold(): entry}))

    def without(self, name: str, *, used_by: Iterable[str] = ()) -> Catalog:
        """Return a catalog without the stream or relation called `name`.

        Parameters
        ----------
        name
            Name of the stream or relation to drop.
        used_by
            Names of the running queries that read it. Derived streams that do are found here.

        Raises
        ------
        CatalogError
            If it does not exist, or is in use.
        """
        entry = self.find(name)
        if entry is None:
            raise CatalogError(f"there is no stream {name!r} to drop")
        derived = [
            other.name
            for other in self.entries.values()
            if isinstance(other, DerivedStream) and name.casefold() in {each.casefold() for each in other.reads}
        ]
        users = sorted({*used_by, *derived})
        if users:
            raise CatalogError(f"{kind_of(entry)} {name!r} is in use by {', '.join(users)}", hint="drop those first")
        return replace(
            self,
            entries=MappingProxyType({key: entry for key, entry in self.entries.items() if key != name.casefold()}),
        )
