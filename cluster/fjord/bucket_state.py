"""The state of a bucket in its store: a value for each operator, and the heading, which has a version of each fragment.

A fragment's version changes whenever any of its values is written. So a host that has kept the operators of a fragment
finds out from the heading alone, which is one short value, whether they are in the state that the store holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec
import polars as pl

from cluster.fjord.lacking_answers import Lacking, Unnamed
from cluster.fjord.operator import State
from cluster.operators.columns import QUERY_GROUP
from cluster.operators.mark_columns import RIGHT

HEADING = ""
"""The name of the heading; operators' values have names with letters."""

_BEGINS = b"fjord"
"""Earlier versions had 16 random bytes in place of the heading, which showed nothing but whether they had changed."""


class Store(Protocol):
    """One bucket's state: values by name."""

    def get(self, name: str) -> bytes | None:
        """Return a value, or None."""
        ...

    def put(self, name: str, value: bytes) -> None:
        """Set a value."""
        ...

    def remove(self, name: str) -> None:
        """Remove a value."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all values."""
        ...


_UNNAMED = ""
"""What lacks rows is in the heading as the version of a fragment of this name, which no fragment has."""

Versions = Mapping[str, bytes]
"""By identity of a fragment: the version of its values. A fragment without one has no values in the store."""


class Heading(NamedTuple):
    """The heading of a store.

    Parameters
    ----------
    versions
        The versions of its values; None if it has none that this version of the program knows.
    unnamed
        By fragment: which answers lack rows, as no error has named yet.
    """

    versions: Versions | None = None
    unnamed: Mapping[str, Unnamed] = MappingProxyType({})


def read_heading(store: Store) -> Heading:
    """Return a store's heading."""
    found = store.get(HEADING)
    if found is None or not found.startswith(_BEGINS):
        return Heading()
    versions = msgspec.msgpack.decode(found[len(_BEGINS) :], type=dict[str, bytes])
    unnamed = versions.pop(_UNNAMED, None)
    if unnamed is None:
        return Heading(versions)
    return Heading(versions, msgspec.msgpack.decode(unnamed, type=dict[str, dict[str, Lacking]]))


def write_heading(store: Store, versions: Versions, unnamed: Mapping[str, Unnamed]) -> None:
    """Write the heading."""
    found = {**versions, **({_UNNAMED: msgspec.msgpack.encode(unnamed)} if unnamed else {})}
    store.put(HEADING, _BEGINS + msgspec.msgpack.encode(found))


def without_dropped_groups(state: State, groups: frozenset[int]) -> State:
    """Return a fragment's saved state without the rows of query groups that were dropped."""
    alive = list(groups)
    kept = dict(state)
    for name, value in state.items():
        if isinstance(value, pl.DataFrame):
            marks = [mark for mark in (QUERY_GROUP.name, RIGHT + QUERY_GROUP.name) if mark in value.columns]
            # A row without a partner, such as an unmatched tuple of a zipper join, has one mark only.
            own = (pl.col(mark).is_in(alive) | pl.col(mark).is_null() for mark in marks)
            kept[name] = value.filter(*own) if marks else value
    return kept
