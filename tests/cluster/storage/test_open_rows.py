"""Open rows and their ends in the results table: an end names its row by number, whatever has happened in between."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cluster.storage import results_retention
from cluster.storage.budgets import Budget
from cluster.storage.committed_results import RESULT_SCHEMA, CommittedResults
from cluster.storage.compaction import Compaction
from cluster.storage.delta_tables import created
from cluster.storage.results_table import ResultsTable


def answers(*rows: tuple[str, int, int, str, str]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["query", "start_us", "end_us", "kind", "row"], orient="row")


def opened(query: str, start: int, row: str = "{}") -> tuple[str, int, int, str, str]:
    return query, start, start + 1, "open", row


def closed(query: str, start: int, end: int, row: str = "{}") -> tuple[str, int, int, str, str]:
    return query, start, end, "closes", row


def stored(table: ResultsTable, query: str = "q") -> list[tuple[int, str, int | None]]:
    return table.rows_after(query, 0, 1_000).select("sequence", "kind", "closes").rows()


def test_an_end_names_its_row_by_number_and_has_a_number_of_its_own(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    table.append(answers(opened("q", 1), ("q", 2, 3, "row", "{}"), opened("q", 3), opened("other", 3)), 0)
    table.append(answers(closed("q", 3, 9), opened("q", 9)), 1)
    assert stored(table) == [
        (1, "open", None),
        (2, "row", None),
        (3, "open", None),
        (4, "closes", 3),
        (5, "open", None),
    ]


@pytest.mark.parametrize("anew", [False, True])
def test_a_table_opened_anew_knows_which_rows_are_open(tmp_path: Path, *, anew: bool) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    table.append(answers(opened("q", 1), opened("q", 2)), 0)
    table.append(answers(closed("q", 1, 9)), 1)
    table = ResultsTable(table.root, "f") if anew else table
    table.append(answers(closed("q", 2, 9)), 2)
    assert stored(table)[2:] == [(3, "closes", 1), (4, "closes", 2)]


def test_a_replayed_micro_batch_closes_nothing_twice(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    table.append(answers(opened("q", 1), opened("q", 1)), 0)
    for _ in range(2):
        table.append(answers(closed("q", 1, 9)), 1)
    table.append(answers(closed("q", 1, 8)), 2)
    assert stored(table)[2:] == [(3, "closes", 2), (4, "closes", 1)]


def test_rows_that_are_equal_in_all_that_names_them_are_closed_one_by_one(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    table.append(answers(opened("q", 1), opened("q", 1), opened("q", 1, '{"a":1}')), 0)
    table.append(answers(closed("q", 1, 5), closed("q", 1, 6), closed("q", 1, 7, '{"a":1}')), 1)
    assert sorted(closes for _, kind, closes in stored(table) if kind == "closes") == [1, 2, 3]


def ends_earlier(query: str, start: int, end: int, row: str = "{}") -> tuple[str, int, int, str, str]:
    """The end of a row that goes on since an instant from which on another plan answers."""
    return query, start, end, "closes_earlier", row


@pytest.mark.parametrize("anew", [False, True])
def test_an_end_of_the_next_plan_closes_the_row_that_has_gone_on(tmp_path: Path, *, anew: bool) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    sums = '{"s":0.30000000000000004}', '{"s":0.3}'
    table.append(answers(opened("q", 1, sums[0]), opened("q", 2), opened("other", 3, sums[0]), opened("q", 30)), 0)
    table = ResultsTable(table.root, "f") if anew else table
    table.append(answers(ends_earlier("q", 10, 20, sums[1]), ends_earlier("q", 10, 20, '{"s":0.4}')), 1)
    assert stored(table)[3:] == [(4, "closes", 1), (5, "row", None)]
    rows = table.rows_after("q", 3, 9).select("start_us", "end_us", "row").rows()
    assert rows == [(1, 20, sums[0]), (10, 20, '{"s":0.4}')], "with start and text of what it closes"
    table.append(answers(ends_earlier("q", 30, 40), ends_earlier("q", 30, 41), ends_earlier("q", 30, 42)), 2)
    assert stored(table)[5:] == [(6, "closes", 3), (7, "closes", 2), (8, "row", None)], "its own comes first"


def test_the_newest_of_equal_rows_is_closed_because_an_earlier_query_may_have_left_the_others(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    table.append(answers(opened("q", 1)), 0)
    table.append(answers(opened("q", 1)), 1)
    table.append(answers(closed("q", 1, 5)), 2)
    assert stored(table)[-1] == (3, "closes", 2)


def test_a_table_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    root, schema = str(tmp_path / "results"), pa.schema([field for field in RESULT_SCHEMA if field.name != "closes"])
    created(root, schema, "results")
    old = answers(("q", 1, 2, "row", "{}")).with_columns(sequence=pl.lit(1, pl.Int64)).select(schema.names)
    from deltalake import write_deltalake

    write_deltalake(root, old.to_arrow().cast(schema), mode="append")
    table = ResultsTable(root, "f")
    assert stored(table) == [(1, "row", None)]
    assert CommittedResults(root).commit(1, 1).column("closes").to_pylist() == [None]
    table.append(answers(opened("q", 5)), 0)
    table.append(answers(closed("q", 5, 6)), 1)
    assert stored(table) == [(1, "row", None), (2, "open", None), (3, "closes", 2)]
    commits = [CommittedResults(root).commit(version, table.version) for version in range(1, table.version + 1)]
    assert [commit.column("closes").to_pylist() for commit in commits] == [[None], [], [None], [2]]


def test_an_open_row_that_was_removed_is_closed_by_its_number(tmp_path: Path) -> None:
    table = _over_budget(tmp_path)
    assert "open" not in [kind for _, kind, _ in stored(table)], "the row itself is gone"
    table = ResultsTable(table.root, "f")
    table.append(answers(closed("q", 0, 99)), 99)
    assert stored(table)[-1][1:] == ("closes", 1)


def test_an_end_whose_row_is_lost_is_given_as_a_whole_row(tmp_path: Path) -> None:
    table = _over_budget(tmp_path)
    Path(table.root, results_retention.NUMBERS).unlink()
    table = ResultsTable(table.root, "f")
    table.append(answers(closed("q", 0, 99)), 99)
    assert stored(table)[-1][1:] == ("row", None)
    assert table.rows_after("q", 0, 1_000).row(-1, named=True)["end_us"] == 99


def _over_budget(tmp_path: Path) -> ResultsTable:
    """Return a table that has removed its first row, which is open."""
    budget = Budget(bytes=1)
    versions = [0]
    table = ResultsTable(
        str(tmp_path / "results"),
        "f",
        compaction=Compaction(4, budget=lambda: budget),
        budget=budget,
        published=lambda: versions[0],
    )
    table.append(answers(opened("q", 0)), 0)
    for number in range(1, 12):
        table.append(answers(("q", number, number + 1, "row", "{}")), number)
        versions[0] = DeltaTable(table.root).version()
    return table
