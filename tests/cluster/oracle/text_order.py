"""Which queries keep the order in which tuples of one stream arrive, what a window by rows goes by at equal stamps; and
the first rows of an order, in DuckDB."""

from __future__ import annotations

from tests.cluster.oracle.text_expressions import Scalar
from tests.cluster.oracle.text_forms import Nested, Query, Select, Stream, Top, Zipped, types_of


def keeps_order(query: Query) -> bool:
    """Return whether tuples come as they do from one stream."""
    if (
        not isinstance(query, Select)
        or query.grouped
        or query.distinct
        or len(query.items) != 1
        or query.top is not None
        or query.ranked
        or (query.where and _asks(query.where))
    ):
        return False
    item = query.items[0]
    if isinstance(item, Zipped) or item.reshaped or item.extent is not None or item.valid is not None:
        return False
    window = item.window
    if window is not None and not (window.kind == "RANGE" and window.size == window.slide == 1):
        return False
    source = item.source
    return isinstance(source, Stream) or (isinstance(source, Nested) and keeps_order(source.query))


def _asks(scalar: Scalar) -> bool:
    return scalar.query is not None or any(_asks(part) for part in scalar.parts)


def first_rows(query: Query, top: Top, sql: str) -> str:
    """Return the first rows of each instant; those with equal keys in the order of their columns, left to right."""
    columns = [f"c{n}" for n in range(len(types_of(query)))]
    keys = [
        f"c{key.column} {'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in top.keys
    ]
    order = ", ".join([*keys, *(f"{each} ASC NULLS LAST" for each in columns)])
    most = "" if top.limit is None else f" AND i <= {top.offset + top.limit}"
    place = f"row_number() OVER (PARTITION BY r, t ORDER BY {order}) AS i"
    shown = ", ".join(columns)
    return f"SELECT r, t, NULL::BIGINT AS o, {shown} FROM (SELECT *, {place} FROM ({sql})) WHERE i > {top.offset}{most}"
