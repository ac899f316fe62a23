"""A scan leaves out rows that no query uses, and no other: answers are the same with and without that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.fjord.batch import START
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.stream_scan import MOST, RowsInFile, RowsInMemory, StreamScan, wanted_rows
from cluster.fjord.upstream_dataflow import UpstreamDataflow
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.physical.nodes import Fragment
from cluster.physical.operations import Scan
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

STREAM = StreamSchema(
    "s",
    (
        Field("k", FieldType.INTEGER),
        Field("x", FieldType.REAL),
        Field("t", FieldType.TEXT),
        Field("b", FieldType.BOOLEAN),
    ),
)
PLACES = StaticRelation("places", "places@1", (Column("key", FieldType.INTEGER), Column("name", FieldType.TEXT)))
CATALOG = Catalog.of([STREAM, PLACES])
NO_TABLES: Tables | None = None

CONDITIONS = (
    "k = 1",
    "k <> 1",
    "k IN (0, 2)",
    "k > 0.5",
    "k < 9007199254740993",
    "x < 1",
    "x > 0.0",
    "x = 0.0",
    "x <= -1.5 OR x > 3",
    "x BETWEEN 0 AND 1 AND k = 2",
    "t LIKE 'a%'",
    "t >= 'b'",
    "b",
    "NOT b AND k = 1",
    "k = 1 AND ABS(x) > 1",
    "k = 1 AND k = 2",
    "x IS NULL",
    "k + 1 = 2",
    "x > k",
)
INTEGERS = st.none() | st.sampled_from([0, 1, 2, -1, 2**53, 2**53 + 1, 2**53 + 2, -(2**63)])
REALS = st.none() | st.sampled_from([0.0, -0.0, 1.0, -1.5, 4.0, math.inf, -math.inf, math.nan, 1e308])
TEXTS = st.none() | st.sampled_from(["", "a", "ab", "b", "\U0001f600", "\uffff"])
ROWS = st.lists(st.tuples(INTEGERS, REALS, TEXTS, st.none() | st.booleans()), max_size=12)


def fragments(*conditions: str | None) -> tuple[Fragment, ...]:
    return plan(*(f"SELECT k, x, t FROM s{'' if each is None else f' WHERE {each}'}" for each in conditions))


def plan(*texts: str) -> tuple[Fragment, ...]:
    planned = [
        PlannedQuery(f"q{number}", number, rewrite(translate(text, CATALOG).node).node)
        for number, text in enumerate(texts, 1)
    ]
    return lower(Plan(len(planned), tuple(planned))).fragments


def wanted(found: Sequence[Fragment]) -> pl.Expr | None:
    return wanted_rows([(each, node) for each in found for node in each.nodes if isinstance(node.operation, Scan)])


def answers(found: Sequence[Fragment], rows: pl.DataFrame) -> list[list[tuple[object, ...]]]:
    scan = StreamScan([RowsInMemory(rows)], 100)
    emitted = UpstreamDataflow(found, lambda *_: scan, NO_TABLES).run()
    return [[] if each.rows is None else each.rows.rows() for each in emitted]


@given(ROWS, st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=3, unique=True))
def test_answers_are_the_same_as_without_it(values: list[tuple[object, ...]], conditions: list[str]) -> None:
    schema = {"k": pl.Int64, "x": pl.Float64, "t": pl.String, "b": pl.Boolean}
    rows = pl.DataFrame(values, schema=schema, orient="row").with_row_index(START).cast({START: pl.Int64})
    # With a query that has no condition every row is read: what it changes nothing about is each of the others.
    for found in map(fragments, conditions):
        (alone,) = answers(found, rows)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("cluster.fjord.upstream_dataflow.wanted_rows", lambda _: None)
            (everything,) = answers(found, rows)
        assert alone == everything
    together = fragments(*conditions)
    found_together = answers(together, rows)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cluster.fjord.upstream_dataflow.wanted_rows", lambda _: None)
        assert answers(together, rows) == found_together


def test_rows_that_no_query_uses_are_not_read(tmp_path: Path) -> None:
    rows = pl.DataFrame({START: range(10), "fjord_default_rate": [True] * 10, "k": range(10), "x": [0.5] * 10})
    rows.write_parquet(tmp_path / "rows.parquet")
    condition = wanted(fragments("k = 1", "x > 1 AND k = 8", "k = 7 AND ABS(x) > 2"))
    for stored in (RowsInFile(str(tmp_path / "rows.parquet")), RowsInMemory(rows)):
        assert stored.read(["k"], None, condition)["k"].to_list() == [1, 7]
        assert stored.read(["k"], (2, 8), condition)["k"].to_list() == [7]


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param(("k = 1", None), id="a query that uses all rows"),
        pytest.param(("k = 1", "x IS NULL"), id="a condition that is no interval"),
        pytest.param(("b",), id="truth values"),
        pytest.param(tuple(f"k = {number}" for number in range(MOST + 1)), id="many conditions"),
    ],
)
def test_otherwise_all_rows_are_read(conditions: tuple[str | None, ...]) -> None:
    assert wanted(fragments(*conditions)) is None


def test_what_is_looked_up_is_read_whole() -> None:
    """Its conditions are tried behind the lookup."""
    looked_up = "SELECT s.k, p.name FROM s JOIN places AS p ON s.k = p.key WHERE s.k > 5"
    assert wanted(plan("SELECT k FROM s WHERE k = 1")) is not None
    assert wanted(plan(looked_up, "SELECT k FROM s WHERE k = 1")) is None
