"""Columns of aggregates take time in each micro-batch, however few rows come: so there are few of them."""

from __future__ import annotations

import pytest

from cluster.fjord.acceptance import (
    COLUMNS_OF_VALUES,
    WINDOWS_OF_A_COLUMN,
    ColumnLimitError,
    aggregate_columns,
    check_columns,
    check_supported,
)
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower, with_query
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

FIELDS = (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.REAL))
CATALOG = Catalog.of([StreamSchema("traffic", FIELDS)])
WINDOW = "WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND)"


def query(columns: str, number: int = 1, window: str = WINDOW) -> PlannedQuery:
    node = rewrite(translate(f"SELECT sensor, {columns} FROM traffic {window} GROUP BY sensor", CATALOG).node).node
    check_supported(node)
    return PlannedQuery(f"q{number}", number, node)


def different(call: str, count: int, first: int = 0) -> str:
    return ", ".join(f"{call.format(number)} AS c{number}" for number in range(first, first + count))


def columns_of(*queries: PlannedQuery) -> float:
    return aggregate_columns(lower(Plan(len(queries), queries)))


def test_more_columns_than_the_limit_are_refused_with_the_figures_and_a_way_out() -> None:
    running = lower(Plan(1, (query(different("STDDEV(speed + {})", 100)),)))
    more = query(different("STDDEV(speed + {})", 200, first=100), 2)
    after = with_query(running, more)
    check_columns(running, after, 900)
    with pytest.raises(ColumnLimitError) as caught:
        check_columns(running, after, 899)
    assert "the plan would compute 900 columns of aggregates, 600 of them for this query alone" in str(caught.value)
    assert "in every micro-batch; the limit is 899" in str(caught.value)
    assert "several columns from one" in (caught.value.hint or "")
    assert "--max-aggregate-columns" in (caught.value.hint or "")


def test_what_adds_no_column_is_let_in_even_when_there_are_more_than_the_limit() -> None:
    running = lower(Plan(1, (query(different("STDDEV(speed + {})", 10)),)))
    same = query(different("STDDEV(speed + {})", 10), 2)
    check_columns(running, with_query(running, same), 1)
    node = rewrite(translate("SELECT sensor, speed FROM traffic WHERE speed > 3", CATALOG).node).node
    check_columns(running, with_query(running, PlannedQuery("rows", 3, node)), 1)


@pytest.mark.parametrize(("columns", "kept"), [
    ("MAX(speed) AS x", 1),
    ("AVG(speed) AS x, SUM(speed) AS y, COUNT(speed) AS z", 3),
    ("STDDEV(speed) AS x", 3),
    ("MEDIAN(speed) AS x", COLUMNS_OF_VALUES),
    (", ".join(f"STDDEV(speed) * {number} AS c{number}" for number in range(3_000)), 3),
])  # fmt: skip
def test_a_column_is_counted_as_often_as_it_is_computed(columns: str, kept: int) -> None:
    assert columns_of(query(columns)) == kept


def test_windows_that_share_panes_merge_the_same_columns_again() -> None:
    windows = [query("MAX(speed) AS x", size, f"WINDOW(RANGE {size} SECONDS SLIDE 1 SECOND)") for size in (1, 2, 3)]
    assert columns_of(*windows) == 1 + 2 / WINDOWS_OF_A_COLUMN


def test_aggregates_without_panes_count_too() -> None:
    assert columns_of(query("STDDEV(speed) AS x", window="WINDOW(ROWS 5)")) == 3
