"""From what tasks answer to rows of the results table."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from cluster.fjord.answers import control_row, counters_row
from cluster.fjord.batch import END, START
from cluster.fjord.counters import Totals
from cluster.spark.envelopes import RESULT_SCHEMA, pack_rows
from cluster.spark.gathering import gathered


def answers(*named: tuple[str, int]) -> pl.DataFrame:
    columns = {
        "query": [query for query, _ in named],
        START: [start for _, start in named],
        END: [start + 1 for _, start in named],
        "kind": ["row"] * len(named),
        "row": [f"{place}" for place in range(len(named))],
    }
    return pl.DataFrame(columns, schema_overrides={START: pl.Int64, END: pl.Int64})


def table(*payloads: tuple[int, pl.DataFrame]) -> pa.Table:
    arrays = [[number for number, _ in payloads], [pack_rows(rows) for _, rows in payloads]]
    return pa.Table.from_arrays([pa.array(each) for each in arrays], schema=RESULT_SCHEMA)


def test_each_querys_rows_are_in_order_however_tasks_end() -> None:
    first, second = answers(("a", 1), ("b", 1), ("a", 3)), answers(("a", 1), ("a", 2), ("b", 0))
    for order in (((0, first), (1, second)), ((1, second), (0, first))):
        rows, counters = gathered(table(*order))
        assert list(rows.select("query", "start_us", "row").iter_rows()) == [
            ("a", 1, "0"), ("a", 1, "0"), ("a", 2, "1"), ("a", 3, "2"), ("b", 0, "2"), ("b", 1, "1"),
        ]  # fmt: skip
        assert counters == {}


def test_an_error_that_several_tasks_tell_is_one_and_equal_rows_are_several() -> None:
    error, other = control_row("a", "error", '"no such thing"', 5), control_row("b", "error", '"no such thing"', 5)
    row = answers(("a", 1))
    rows, _ = gathered(table((0, pl.concat([row, error])), (1, pl.concat([row, error, other]))))
    assert rows["query"].to_list() == ["a", "a", "a", "b"]
    assert rows["kind"].to_list() == ["row", "row", "error", "error"]


def test_what_operators_did_is_added_up_and_is_no_answer() -> None:
    did = counters_row({"scan": Totals("stream s", transitions=1, rows_in=5)})
    rows, counters = gathered(table((0, did), (1, pl.concat([answers(("a", 1)), did]))))
    assert rows["query"].to_list() == ["a"]
    assert counters == {"scan": Totals("stream s", transitions=2, rows_in=10)}


def test_no_task_at_all_answers_nothing() -> None:
    rows, counters = gathered(RESULT_SCHEMA.empty_table())
    assert (rows.height, counters) == (0, {})
    assert rows.columns == ["query", "start_us", "end_us", "kind", "row"]
