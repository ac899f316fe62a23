"""Random nodes, over NULL, the ends of the types and Unicode, compiled to Polars: they mean what they mean in DuckDB.

``FJORD_EXPRESSIONS=100000 pytest tests/cluster/expressions/test_meaning.py`` draws so many; ``FJORD_SEED`` others.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import polars as pl
import pytest

from cluster.expressions.nodes import Expression
from cluster.expressions.text import text_of
from cluster.fjord.scalars import POLARS_TYPES, compile_scalar
from cluster.operators.columns import Scalar
from protocols.wire.streams import FieldType
from tests.cluster.expressions.drawing import COLUMNS, drawn
from tests.cluster.expressions.duckdb_meaning import MACROS, TYPES, in_duckdb
from tests.cluster.oracle.scalar_sql import SETTINGS

EXPRESSIONS = int(os.environ.get("FJORD_EXPRESSIONS", "400"))
SEED = os.environ.get("FJORD_SEED", "1")
AT_ONCE = 50
ROWS = 24
VALUES: dict[FieldType, tuple[Any, ...]] = {
    FieldType.BOOLEAN: (None, True, False),
    FieldType.INTEGER: (None, 0, 1, -1, 2, 7, -10, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)),
    FieldType.REAL: (
        None, 0.0, 0.1, -0.5, 0.5, 1.5, 2.5, -3.0, 5e-324, -5e-324, 2.2e-308, 1e16, 1e300, -1e308,
        1.7976931348623157e308, -1.7976931348623157e308, 2.0**53, 2.0**63, -(2.0**63), 9.3e18,
    ),
    FieldType.TEXT: (
        None, "", " ", "a", "B", "AB", "a%b", "_", "12", "-3.5", " 12 ", "2.5", "x y", " pad ", "Élan", "日本語",
        "a\nb", "👩\u200d👧", "e\u0301", "nan", "inf", "1e400", "9223372036854775807",
        "9223372036854775808", "t", "NO", "it's", '"', "\U0010ffff",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        for setting in (*SETTINGS, *MACROS):
            found.execute(setting)
        yield found


def given_rows(dice: random.Random) -> pl.DataFrame:
    columns = {
        name: pl.Series([dice.choice(VALUES[kind]) for _ in range(ROWS)], dtype=POLARS_TYPES[kind])
        for name, kind in COLUMNS.items()
    }
    return pl.DataFrame(columns)


def computed(rows: pl.DataFrame, scalars: Sequence[Scalar]) -> list[list[Any]]:
    columns = [compile_scalar(scalar).alias(str(number)) for number, scalar in enumerate(scalars)]
    found = rows.with_row_index("#").select("#", *columns)
    return [found[str(number)].to_list() for number in range(len(scalars))]


def defined(
    connection: duckdb.DuckDBPyConnection, rows: pl.DataFrame, drawn_now: Sequence[tuple[Expression, FieldType, bool]]
) -> list[list[Any]]:
    connection.register("given_rows", rows.with_row_index("#").to_arrow())
    columns = [f"CAST({in_duckdb(each, COLUMNS)[0]} AS {TYPES[kind]})" for each, kind, _ in drawn_now]
    try:
        found = connection.execute(f'SELECT {", ".join(columns)} FROM given_rows ORDER BY "#"').fetchall()
    finally:
        connection.unregister("given_rows")
    return [list(column) for column in zip(*found, strict=True)]


def is_same(one: Any, other: Any, *, exact: bool) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if one == 0 and math.copysign(1, one) < 0:
            return False  # there is no minus zero
        return one == other or (not exact and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12))
    return bool(one == other) and type(one) is type(other)


@pytest.mark.parametrize("first", range(0, EXPRESSIONS, AT_ONCE))
def test_expressions_mean_what_they_mean_in_duckdb(connection: duckdb.DuckDBPyConnection, first: int) -> None:
    found = [drawn(f"{SEED}/{number}") for number in range(first, first + AT_ONCE)]
    rows = given_rows(random.Random(f"{SEED}/{first}"))
    ours = computed(rows, [Scalar(expression, kind) for expression, kind, _ in found])
    theirs = defined(connection, rows, found)
    for (expression, _, exact), one, other in zip(found, ours, theirs, strict=True):
        wrong = [place for place in range(ROWS) if not is_same(one[place], other[place], exact=exact)]
        assert not wrong, (text_of(expression), rows.row(wrong[0], named=True), one[wrong[0]], other[wrong[0]])
