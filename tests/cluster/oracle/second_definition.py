"""A second definition of windows by count, DISTINCT and set operations: ordinary SQL about one instant at a time.

:mod:`tests.cluster.oracle.definition` writes the formulas of papers/pipes_algebra.md section 3, for all instants at
once. Here nothing of them is used: a query is drawn together with the ordinary SQL that answers it at the instant
``$t``, over tables of all that has ever come, and DuckDB's own ``EXCEPT``, ``INTERSECT``, ``UNION`` and ``QUALIFY`` do
the rest.

    WINDOW(PARTITION BY k ROWS 2)     what came up to $t, of each k the two that came last
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from cluster.operators import (
    Aggregate,
    CountWindow,
    Difference,
    Distinct,
    Filter,
    Intersection,
    Node,
    PartitionedWindow,
    Project,
    Source,
    TimeWindow,
    Union,
)
from cluster.operators.columns import AggregateCall, Output
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.oracle.definition import Bag, Snapshots, Streams
from tests.cluster.specimens.drawing import COLUMNS, LAST

INTEGER, BOOLEAN = FieldType.INTEGER, FieldType.BOOLEAN
INSTANTS = LAST + 16
"""Nothing changes any more at the last of them."""
ARROW = {INTEGER: pa.int64(), FieldType.REAL: pa.float64(), FieldType.TEXT: pa.string()}
NUMBERS = {"alpha": ("k", "count"), "beta": ("before",)}
"""The columns of each stream that hold integers."""


@dataclass(frozen=True)
class Query:
    """A plan, and ordinary SQL for what it answers at the instant $t; `names` are those of its columns of integers."""

    node: Node
    sql: str
    names: tuple[str, ...]


def second_snapshots(query: Query, streams: Streams) -> Snapshots:
    """Return the bag at each instant 0 to INSTANTS - 1."""
    cursor = _connection().cursor()
    try:
        for name, rows in streams.items():
            cursor.register(name, _table(name, rows))
        return [_bag(cursor.execute(query.sql, {"t": instant}).fetchall()) for instant in range(INSTANTS)]
    finally:
        cursor.close()


def _bag(rows: Sequence[tuple[Any, ...]]) -> Bag:
    return Counter(rows)


@lru_cache(maxsize=1)
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    return connection


def _table(name: str, rows: Sequence[tuple[int, tuple[Any, ...]]]) -> pa.Table:
    """Return everything that comes of a stream: when it was sampled, the how-manieth it was to come, and its values."""
    columns = list(zip(*((stamp, place, *row) for place, (stamp, row) in enumerate(rows)), strict=True))
    types = [pa.int64(), pa.int64(), *(ARROW[column.type] for column in COLUMNS[name])]
    names = ["stamp", "arrival", *(column.name for column in COLUMNS[name])]
    values = columns or [()] * len(types)
    return pa.table([pa.array(each, kind) for each, kind in zip(values, types, strict=True)], names=names)


@st.composite
def queries(draw: Any, depth: int = 2) -> Query:
    """Draw set operations, DISTINCT and counts of groups over windows."""
    if depth == 0:
        return draw(windowed())
    form = draw(st.sampled_from((*SETS, "DISTINCT", "DISTINCT", "GROUPS")))
    below = draw(queries(draw(st.integers(0, depth - 1))))
    if form == "DISTINCT":
        chosen = draw(st.sampled_from(below.names))
        node = Distinct(_picked(below.node, (chosen,), ("x",)))
        return Query(node, f'SELECT DISTINCT "{chosen}" AS x FROM ({below.sql})', ("x",))
    if form == "GROUPS":
        key = draw(st.sampled_from(below.names))
        count = AggregateCall("c", "count", None, INTEGER)
        node = _picked(Aggregate(below.node, (key,), (count,)), ("c",), ("x",))
        return Query(node, f'SELECT count(*) AS x FROM ({below.sql}) GROUP BY "{key}"', ("x",))
    return _combined(form, below, draw(queries(draw(st.integers(0, depth - 1)))))


SETS = ("UNION ALL", "UNION", "EXCEPT ALL", "EXCEPT", "INTERSECT ALL", "INTERSECT")


def _combined(form: str, left: Query, right: Query) -> Query:
    width = min(len(left.names), len(right.names))
    names = tuple("xyz"[:width])
    one, other = (_picked(side.node, side.names[:width], names) for side in (left, right))
    node: Node
    match form:
        case "UNION ALL":
            node = Union(one, other)
        case "UNION":
            node = Distinct(Union(one, other))
        case "EXCEPT ALL":
            node = Difference(one, other)
        case "EXCEPT":
            node = Difference(Distinct(one), Distinct(other))
        case "INTERSECT ALL":
            node = Intersection(one, other)
        case _:
            node = Intersection(Distinct(one), Distinct(other))
    sides = [
        "SELECT " + ", ".join(f'"{old}" AS {new}' for old, new in zip(side.names, names, strict=False))
        + f" FROM ({side.sql})"
        for side in (left, right)
    ]  # fmt: skip
    return Query(node, f"({sides[0]}) {form} ({sides[1]})", names)


def _picked(node: Node, old: Sequence[str], new: Sequence[str]) -> Node:
    outputs = (Output(name, read_scalar(f'"{column}"', INTEGER)) for column, name in zip(old, new, strict=True))
    return Project(node, tuple(outputs))


@st.composite
def windowed(draw: Any) -> Query:
    """Draw a window over a stream, with or without a condition."""
    stream = draw(st.sampled_from(sorted(COLUMNS)))
    numbers = NUMBERS[stream]
    node: Node = Source(stream, COLUMNS[stream])
    came = f"SELECT * FROM {stream} WHERE stamp <= $t"
    if draw(st.booleans()):
        column, least = draw(st.sampled_from(numbers)), draw(st.integers(0, 2))
        node = Filter(node, read_scalar(f'"{column}" >= {least}', BOOLEAN))
        came += f' AND "{column}" >= {least}'
    kind = draw(st.sampled_from(("RANGE", "ROWS", "PARTITION", "PARTITION")))
    if kind == "RANGE":
        size = draw(st.integers(1, 9))
        return _valued(stream, TimeWindow(node, size), f"{came} AND stamp > $t - {size}")
    rows, slide = draw(st.none() | st.integers(1, 3)), draw(st.sampled_from((1, 1, 2, 3)))
    if kind == "ROWS":
        return _valued(stream, CountWindow(node, rows, slide), _last(came, rows, slide, ""))
    rows = rows or 1
    names = [column.name for column in COLUMNS[stream]]
    keys = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    partition = "PARTITION BY " + ", ".join(f'"{key}"' for key in keys)
    return _valued(stream, PartitionedWindow(node, tuple(keys), rows, slide), _last(came, rows, slide, partition))


def _valued(stream: str, node: Node, sql: str) -> Query:
    columns = ", ".join(f'"{column.name}"' for column in COLUMNS[stream])
    return Query(node, f"SELECT {columns} FROM ({sql})", NUMBERS[stream])


def _last(came: str, rows: int | None, slide: int, partition: str) -> str:
    """Return SQL for the last rows that came, of which only whole slides count."""
    counted = (
        f"SELECT * FROM ({came}) QUALIFY row_number() OVER ({partition} ORDER BY stamp, arrival) "
        f"<= (count(*) OVER ({partition})) - (count(*) OVER ({partition})) % {slide}"
    )
    if rows is None:
        return counted
    latest_first = f"row_number() OVER ({partition} ORDER BY stamp DESC, arrival DESC)"
    return f"SELECT * FROM ({counted}) QUALIFY {latest_first} <= {rows}"
