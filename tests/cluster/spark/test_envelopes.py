"""From the output of tasks to rows of the results table and, apart from them, counters."""

from __future__ import annotations

from operator import itemgetter

import polars as pl
import pyarrow as pa

from cluster.fjord.answers import HostOutput, error_row
from cluster.fjord.batch import END, START
from cluster.fjord.counters import Counters, Totals
from cluster.spark.envelopes import (
    COMPRESS_FROM_ROWS,
    OUTPUT_SCHEMA,
    collected_outputs,
    pack_output,
    pack_rows,
    unpack_rows,
)
from tests.cluster.spark.answer_rows import answers


def table(*outputs: tuple[int, list[pl.DataFrame], Counters]) -> pa.Table:
    """Return the rows of buckets or parts, as Spark's driver gets them."""
    rows = []
    for number, pieces, counters in outputs:
        packed = pack_output(HostOutput(pieces, counters))
        assert packed is not None
        rows.append({"bucket": number, "answers": packed.answers, "counters": packed.counters})
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)


def by_query(rows: pl.DataFrame) -> list[tuple[object, ...]]:
    """Return rows of one query after those of another: which comes first depends on what Polars has seen before."""
    return sorted(rows.iter_rows(), key=itemgetter(0))


def test_each_querys_rows_are_in_order_however_tasks_end() -> None:
    first = 0, [answers(("a", 1), ("b", 1), ("a", 3))], {}
    second = 1, [answers(("a", 1), ("a", 2)), answers(("b", 0))], {}
    for order in ((first, second), (second, first)):
        answered = collected_outputs(table(*order))
        assert by_query(answered.rows().select("query", "start_us", "row")) == [
            ("a", 1, "0"), ("a", 1, "0"), ("a", 2, "1"), ("a", 3, "2"), ("b", 0, "0"), ("b", 1, "1"),
        ]  # fmt: skip
        assert answered.counters == {}


def test_an_error_that_several_tasks_report_is_one_and_equal_rows_are_several() -> None:
    error, other = error_row("a", "no such thing", 5), error_row("b", "no such thing", 5)
    row = answers(("a", 1))
    rows = collected_outputs(table((0, [row, error], {}), (1, [row, error, other], {}))).rows()
    assert by_query(rows.select("query", "kind")) == [("a", "row"), ("a", "row"), ("a", "error"), ("b", "error")]


def test_what_operators_did_is_added_up_apart_from_answers() -> None:
    did = {"scan": Totals("stream s", transitions=1, rows_in=5)}
    outputs = table((0, [], did), (1, [answers(("a", 1))], did))
    assert outputs["answers"].null_count == 1, "a bucket without answers reports what it did all the same"
    answered = collected_outputs(outputs)
    assert answered.rows()["query"].to_list() == ["a"]
    assert answered.counters == {"scan": Totals("stream s", transitions=2, rows_in=10)}


def test_a_host_without_output_sends_none() -> None:
    assert pack_output(HostOutput([])) is None


def test_no_task_at_all_answers_nothing() -> None:
    answered = collected_outputs(OUTPUT_SCHEMA.empty_table())
    assert (answered.rows().height, answered.counters) == (0, {})
    assert answered.rows().columns == ["query", "start_us", "end_us", "kind", "row"]


def test_many_rows_cross_spark_in_few_bytes() -> None:
    """Java copies each byte several times; what is equal in all rows, such as their query group, takes no room."""
    few = pl.DataFrame({START: range(10), END: range(1, 11), "fjord_member": [7] * 10})
    many = pl.concat([few] * (COMPRESS_FROM_ROWS // few.height))
    for rows in (few, many):
        assert unpack_rows(pack_rows(rows)).equals(rows)
    assert len(pack_rows(many)) < many.estimated_size() / 4
