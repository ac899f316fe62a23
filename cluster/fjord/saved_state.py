"""Operator state as bytes: a format version, scalars, and tables as Arrow streams, in MessagePack."""

from __future__ import annotations

import io

import msgspec
import polars as pl

from cluster.errors import StateError
from cluster.fjord.operator import State

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
