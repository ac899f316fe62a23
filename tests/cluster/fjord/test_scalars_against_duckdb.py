"""Scalar expressions mean what they mean in DuckDB, with NULLs, zeros and odd texts, wherever the two can agree."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from cluster.fjord.scalars import POLARS_TYPES, compile_scalar
from cluster.operators.columns import Column, Scalar
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FIELD_TYPES, FieldType
from tests.cluster.oracle.scalar_sql import SETTINGS, scalar_sql

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT
COLUMNS = (
    Column("i", INTEGER), Column("j", INTEGER), Column("r", REAL), Column("q", REAL), Column("s", TEXT),
    Column("t", TEXT), Column("b", BOOLEAN), Column("c", BOOLEAN),
)  # fmt: skip
LITERALS = {
    INTEGER: ("0", "1", "2", "7", "(-3)"),
    REAL: ("0.0", "0.5", "2.25", "(-1.5)", "1e3"),
    TEXT: ("''", "'a'", "'Ab'", "' x '", "'12'", "'a%b'", "'ü'", "'it''s'"),
    BOOLEAN: ("TRUE", "FALSE"),
}
VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    INTEGER: st.none() | st.integers(-9, 9) | st.sampled_from([1000, -1024]),
    REAL: st.none() | st.sampled_from([0.0, -0.5, 0.5, 1.5, 2.5, -2.5, 1e6, 3.14159, 0.125, 2.5e-7, -1.5e-05]),
    TEXT: st.none()
    | st.sampled_from(["", "a", "b", "AB", "a%b", "_", "12", "-3.5", "x y", " pad ", "Élan", "日本", "a\nb", "true"]),
    BOOLEAN: st.none() | st.booleans(),
}
ROWS = st.lists(st.tuples(*(VALUES[column.type] for column in COLUMNS)), min_size=1, max_size=6)
PATTERNS = ("'a%'", "'%b'", "'_'", "'%a_%'", "''", "'%'", "'A.'", "'a[%'")

# What to write, by the type it gives; {i} is an integer, {r} a real, {s} a text, {b} a boolean expression.
FORMS: dict[FieldType, tuple[str, ...]] = {
    INTEGER: (
        "({i} + {i})", "({i} - {i})", "({i} * {i})", "({i} % {i})", "-{i}", "ABS({i})", "LENGTH({s})",
        "LEAST({i}, {i}, {i})", "GREATEST({i}, {i})", "COALESCE({i}, {i})", "NULLIF({i}, {i})",
        "CASE WHEN {b} THEN {i} ELSE {i} END", "CASE {i} WHEN {i} THEN {i} END", "CAST({s} AS BIGINT)",
        "CAST({b} AS BIGINT)", "CAST({r} AS BIGINT)",
    ),
    REAL: (
        "({r} + {i})", "({r} - {r})", "({r} * {r})", "({i} / {i})", "({r} / {r})", "ABS({r})", "ROUND({r})",
        "ROUND({r}, 1)", "FLOOR({r})", "CEIL({r})", "TRUNC({r})",
        "SIN({r})", "ATAN2({r}, {i})", "SQRT({r})", "EXP({i} % 9)", "POWER({r}, 2)",
        "POWER({i} % 5, {i} % 4)", "LN({r})", "LEAST({r}, {r})", "GREATEST({r}, {r})", "COALESCE({r}, {r})",
        "NULLIF({r}, {r})", "CASE WHEN {b} THEN {r} END", "CAST({i} AS DOUBLE)", "CAST({s} AS DOUBLE)",
    ),
    TEXT: (
        "({s} || {s})", "UPPER({s})", "LOWER({s})", "TRIM({s})", "SUBSTRING({s}, 1, 2)", "SUBSTRING({s}, 2)",
        "SUBSTRING({s}, {i})", "SUBSTRING({s}, {i}, {i})", "CONCAT({s}, {s})",
        "LEFT({s}, {i})", "RIGHT({s}, {i})", "SPLIT_PART({s}, {s}, {i})", "SPLIT_PART({s}, ' ', 2)",
        "REPLACE({s}, {s}, {s})", "REPLACE({s}, 'a', 'xy')", "LPAD({s}, {i})", "RPAD({s}, {i}, 'ab')",
        r"REGEXP_REPLACE({s}, '(a|\W)b?', '[\1]')", r"REGEXP_REPLACE({s}, '\d*', '-')",
        "COALESCE({s}, {s})",
        "NULLIF({s}, {s})", "LEAST({s}, {s})", "GREATEST({s}, {s})", "CASE WHEN {b} THEN {s} ELSE {s} END",
        "CAST({i} AS TEXT)", "CAST(({r} + 0.0) AS TEXT)", "CAST({b} AS TEXT)",  # a minus zero of DuckDB is none then
    ),
    BOOLEAN: (
        "{i} = {i}", "{i} <> {r}", "{r} < {i}", "{r} >= {r}", "{s} = {s}", "{s} < {s}", "{s} > {s}",
        "({b} AND {b})", "({b} OR {b})", "NOT ({b})", "{i} IS NULL", "NOT {s} IS NULL", "({b}) IS TRUE",
        "{i} IN ({i}, {i}, 2)", "{i} BETWEEN {i} AND {i}", "{s} BETWEEN {s} AND {s}", "{s} LIKE {p}",
        r"REGEXP_LIKE({s}, '^\w+ ?[^a]$')", "REGEXP_LIKE({s}, '(?i)A|%')",
        "{s} LIKE 'a!%' ESCAPE '!'", "{s} ILIKE {p}", "({b}) IS FALSE", "NOT ({b}) IS TRUE",
        "({i}) IS DISTINCT FROM {r}", "({i}) IS NOT DISTINCT FROM {i}", "{s} IS DISTINCT FROM {s}",
        "CAST({s} AS BOOLEAN)", "CAST({i} AS BOOLEAN)", "NOT {s} LIKE {p}",
        "CASE WHEN {b} THEN {b} ELSE FALSE END",
    ),
}  # fmt: skip
LETTERS = {"i": INTEGER, "r": REAL, "s": TEXT, "b": BOOLEAN}


@st.composite
def expressions(draw: Any, kind: FieldType, depth: int = 3) -> str:
    """SQL text of a type."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        names = [f'"{column.name}"' for column in COLUMNS if column.type is kind]
        return draw(st.sampled_from([*names, *names, *LITERALS[kind]]))
    text = draw(st.sampled_from(FORMS[kind]))
    for letter, inner in LETTERS.items():
        while "{" + letter + "}" in text:
            text = text.replace("{" + letter + "}", draw(expressions(inner, depth - 1)), 1)
    return f"({text.replace('{p}', draw(st.sampled_from(PATTERNS)))})"


SCALARS = st.sampled_from(FIELD_TYPES).flatmap(lambda kind: expressions(kind).map(lambda text: read_scalar(text, kind)))


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    found = duckdb.connect()
    for setting in SETTINGS:
        found.execute(setting)
    return found


def evaluated(scalar: Scalar, rows: list[tuple[Any, ...]]) -> list[Any]:
    frame = pl.DataFrame(rows, schema={column.name: POLARS_TYPES[column.type] for column in COLUMNS}, orient="row")
    return frame.with_row_index("#").select("#", compile_scalar(scalar).alias("#x"))["#x"].to_list()


def defined(scalar: Scalar, rows: list[tuple[Any, ...]], connection: duckdb.DuckDBPyConnection) -> list[Any]:
    frame = pl.DataFrame(rows, schema={column.name: POLARS_TYPES[column.type] for column in COLUMNS}, orient="row")
    given_rows = frame.with_row_index("#").to_arrow()
    cursor = connection.cursor().register("given_rows", given_rows)
    found = cursor.execute(f'SELECT {scalar_sql(scalar)} AS x FROM given_rows ORDER BY "#"').fetchall()
    return [value for (value,) in found]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12)
    return bool(one == other) and type(one) is type(other)


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(scalar=SCALARS, rows=ROWS)
@example(
    scalar=read_scalar('CAST((LPAD("t", 6)) AS BOOLEAN)', BOOLEAN), rows=[(None,) * 5 + ("true", None, None)]
)  # fmt: skip
def test_random_expressions_mean_what_they_mean_in_duckdb(
    connection: duckdb.DuckDBPyConnection, scalar: Scalar, rows: list[tuple[Any, ...]]
) -> None:
    note(scalar.sql)
    found, expected = evaluated(scalar, rows), defined(scalar, rows, connection)
    assert all(same(one, other) for one, other in zip(found, expected, strict=True)), (scalar.sql, found, expected)


EDGES = [0, 1, -1, 3, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63)]
REALS = [0.0, 0.5, 1.0, 5e-324, 2.0**53, 2.0**53 + 2, -(2.0**53), 2.0**62, 2.0**63, -(2.0**63), 1e300, 1e308, -1.7e308]
ENDS = st.lists(
    st.tuples(*(st.none() | st.sampled_from(REALS if each.type is REAL else EDGES) for each in COLUMNS[:4])),
    min_size=1,
    max_size=8,
).map(lambda rows: [(*row, None, None, None, None) for row in rows])
COMPARISONS = [
    '"i" = "r"', '"i" < "r"', '"r" <= "i"', '"i" <> "r"', '"i" = "j"', '"i" > "j"', '"r" >= "q"',
    '"i" = 9007199254740992.0', '"i" = 9007199254740993', '"r" = 9007199254740993',
    '"r" > -9223372036854775808', '"i" > -9223372036854775808',
    '"i" IN (9007199254740993, "j")', '"r" IN (9007199254740993, 0, NULL)', '"i" IN (9007199254740992.0, 0.5)',
    '"i" BETWEEN "r" AND 9007199254740993', '"r" BETWEEN "i" AND "j"', '"r" = -0.0', '"r" IN (-0.0, 1)', '"r" < -0.0',
    'CASE "i" WHEN "r" THEN TRUE ELSE FALSE END', 'NULLIF("i", "r") IS NULL', 'COALESCE("r", "i") = "j"',
    'LEAST("i", "r") < "q"', 'GREATEST("r", "j") = "i"', 'CAST("i" AS DOUBLE) = "r"', 'CAST("r" AS BIGINT) = "i"',
]  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(COMPARISONS), ENDS)
def test_comparisons_at_the_ends_of_the_types(
    connection: duckdb.DuckDBPyConnection, text: str, rows: list[tuple[Any, ...]]
) -> None:
    scalar = read_scalar(text, BOOLEAN)
    assert evaluated(scalar, rows) == defined(scalar, rows, connection)


OPERATIONS = [
    '"r" + "q"', '"r" - "q"', '"r" * "q"', '"r" / "q"', '"r" % "q"', '"r" * "i"', '"i" / "j"', '-"r"', 'ABS("r")',
    'FLOOR("r")', 'CEIL("r")', 'SQRT("r")', 'LN("r")', 'EXP("r")', 'POWER("r", "q")', 'POWER("i", "j")', '"r" * -0.0',
    'CAST("i" AS DOUBLE)', '"r" / 0', '"r" % 0', "1e308 * 10",
]  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(OPERATIONS), ENDS)
def test_what_leaves_the_reals_is_null(
    connection: duckdb.DuckDBPyConnection, text: str, rows: list[tuple[Any, ...]]
) -> None:
    scalar = read_scalar(text, REAL)
    frame = pl.DataFrame(rows, schema={column.name: POLARS_TYPES[column.type] for column in COLUMNS}, orient="row")
    cursor = connection.cursor().register("given_rows", frame.with_row_index("#").to_arrow())
    one = f"CAST(TRY({scalar_sql(scalar)}) AS DOUBLE)"
    found = cursor.execute(f'SELECT {one} FROM given_rows ORDER BY "#"').fetchall()
    expected = [value if value is not None and math.isfinite(value) else None for (value,) in found]
    for value, other in zip(evaluated(scalar, rows), expected, strict=True):
        assert value == other or math.isclose(value or math.nan, other or math.nan, rel_tol=1e-14)
        assert value is None or math.copysign(1, value) > 0 or value != 0
