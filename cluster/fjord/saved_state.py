"""The state of a bucket as bytes: a value for each operator, in MessagePack, and the heading of all of them.

**The state of a bucket in its store: a value for each operator, and the heading, which has a version of each
fragment.**

A fragment's version changes whenever any of its values is written. So a host that has kept the operators of a fragment
finds out from the heading alone, which is one short value, whether they are in the state that the store holds.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec
import polars as pl

from cluster.errors import StateError
from cluster.fjord.answer_kinds import Lacking, Unnamed
from cluster.fjord.operator import State
from cluster.operators.columns import QUERY_GROUP, RIGHT

FORMAT = 2
"""In format 1, partial values were named after their aggregates."""


class _Saved(msgspec.Struct, array_like=True):
    format: int
    scalars: dict[str, int | str]
    tables: dict[str, bytes]


class _FormatOnly(msgspec.Struct, array_like=True):
    format: int


def pack_state(state: State) -> bytes:
    """Return the bytes of an operator's state."""
    scalars: dict[str, int | str] = {}
    tables: dict[str, bytes] = {}
    for name, value in state.items():
        if isinstance(value, pl.DataFrame):
            sink = io.BytesIO()
            value.write_ipc_stream(sink)
            tables[name] = sink.getvalue()
        else:
            scalars[name] = value
    return msgspec.msgpack.encode(_Saved(FORMAT, scalars, tables))


def unpack_state(raw: bytes) -> State:
    """Return the state in `raw`.

    Raises
    ------
    StateError
        If it is not a state, or one of another format.
    """
    try:
        found = msgspec.msgpack.decode(raw, type=_FormatOnly).format
        if found != FORMAT:
            raise StateError(
                f"operator state has format {found}, this program reads format {FORMAT}",
                hint="run the version that wrote it, or start the cluster on a new data folder",
            )
        saved = msgspec.msgpack.decode(raw, type=_Saved)
    except msgspec.DecodeError as error:
        raise StateError(f"operator state cannot be read: {error}") from error
    return {**saved.scalars, **{name: pl.read_ipc_stream(table) for name, table in saved.tables.items()}}


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
