"""Conditions that keep no tuple whatever the columns are, against what DuckDB makes of random values."""

from __future__ import annotations

from itertools import product

import duckdb
import pytest

from cluster.expressions.conditions import never_true
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType

N, B = "CAST(NULL AS INTEGER)", "CAST(NULL AS BOOLEAN)"
NEVER = [
    f"{N} > 1", f'"x" = {N}', f'-{N} + "x" < 5', f'NOT ({N} = "x")', f"{N} BETWEEN 1 AND 2", f"{N} IN (1, 2)",
    f'NOT {N} IN (1, "x")', f"CAST({N} AS TEXT) LIKE '%'", f'"b" AND {B}', f"{B} OR {N} = 1", f"NOT {N} IS NULL",
    f"{B} IS TRUE", f"{B} IS FALSE", f"COALESCE({N}, {N}) > 0", "NULL", "FALSE", "NOT TRUE", '"b" AND FALSE',
    f"({N} = 1) IS TRUE", f"NOT COALESCE({B}, TRUE)", f"CAST({N} AS TEXT) || 'a' = 'a'",
]  # fmt: skip
PERHAPS = [
    f"{N} IS NULL", f'{B} OR "b"', f"{B} IS NULL", f'COALESCE({N}, "x") > 0', f"NOT ({B} IS TRUE)", '"x" > 1', "TRUE",
    f'{N} IS DISTINCT FROM "x"', f'"x" NOT BETWEEN 1 AND {N}', f"CASE WHEN {B} THEN FALSE ELSE TRUE END",
    f'"x" IN (1, {N})', f"({N} = 1) IS NULL", f"COALESCE({B}, TRUE)", f"GREATEST({N}, 1) = 1",
    f"CONCAT({N}, 'a') = 'a'",
]  # fmt: skip


def read(sql: str) -> bool:
    return never_true(read_scalar(sql, FieldType.BOOLEAN).expression)


def kept(sql: str) -> int:
    values = product(("NULL", "0", "1", "2"), ("NULL", "TRUE", "FALSE"))
    rows = ", ".join(f"({x}, {b})" for x, b in values)
    (found,) = duckdb.execute(f"SELECT count(*) FROM (VALUES {rows}) AS t(x, b) WHERE {sql}").fetchall()
    return int(found[0])


@pytest.mark.parametrize("sql", NEVER)
def test_conditions_that_are_never_true(sql: str) -> None:
    assert read(sql)
    assert kept(sql) == 0


@pytest.mark.parametrize("sql", PERHAPS)
def test_conditions_that_may_be_true(sql: str) -> None:
    assert not read(sql)
    assert kept(sql) > 0
