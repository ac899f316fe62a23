"""
commits       1    2    3    4    5    6
published                    |               what came later stays, whatever the budget wants
goes          [=========]
numbers       q: 10                          of the rows that went: the next one is the eleventh, also after a restart
"""  # fmt: skip

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from cluster.errors import StorageError
from cluster.storage.budgets import UNBOUNDED, Blocked, Budget
from cluster.storage.committed_results import CommittedResults
from cluster.storage.compaction import Compaction
from cluster.storage.results_retention import NUMBERS, ResultsRetention
from cluster.storage.results_table import ResultsTable

EACH, SMALL = 5, Budget(bytes=20_000)


class Published:
    """How far the publisher has come."""

    def __init__(self, version: int | None = None) -> None:
        self.version = version

    def __call__(self) -> int | None:
        return self.version


def opened(folder: Path, budget: Budget = SMALL, published: Published | None = None) -> ResultsTable:
    compaction = Compaction(4, budget=lambda: budget)
    return ResultsTable(
        str(folder / "results"), "f", compaction=compaction, budget=budget, published=published or Published()
    )


def fill(table: ResultsTable, first: int, last: int, query: str = "q") -> None:
    for number in range(first, last):
        columns = {
            "query": [query] * EACH,
            "start_us": [number] * EACH,
            "end_us": [number + 1] * EACH,
            "kind": ["row"] * EACH,
            "row": ["{}"] * EACH,
        }
        table.append(pl.DataFrame(columns), number)


def sequences(table: ResultsTable, query: str = "q") -> list[int]:
    """Return the numbers of a query's rows as another program sees them: DuckDB, over what Delta says of the table."""
    seen = DeltaTable(table.root).to_pyarrow_dataset()
    with duckdb.connect() as database:
        database.register("seen", seen)
        text = "SELECT sequence FROM seen WHERE query = ? ORDER BY 1"
        return [number for (number,) in database.execute(text, [query]).fetchall()]


def test_without_a_budget_everything_stays(tmp_path: Path) -> None:
    table = opened(tmp_path, UNBOUNDED)
    fill(table, 0, 30)
    assert sequences(table) == list(range(1, 151))


def test_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    table = opened(tmp_path)
    fill(table, 0, 40)
    left = sequences(table)
    assert left == list(range(left[0], 201))
    assert 1 < left[0] < 200
    assert table.retention.numbers.dropped_rows == left[0] - 1
    assert table.rows_after("q", 0, 1000)["sequence"].to_list() == left


def test_a_query_whose_rows_are_gone_is_numbered_on(tmp_path: Path) -> None:
    table = opened(tmp_path)
    fill(table, 0, 2, "quiet")
    fill(table, 2, 42)
    assert sequences(table, "quiet") == []
    assert table.last_sequence("quiet") == 2 * EACH
    again = opened(tmp_path)
    assert again.last_sequence("quiet") == 2 * EACH
    assert again.last_sequence("q") == 40 * EACH
    fill(again, 42, 43, "quiet")
    assert sequences(again, "quiet") == list(range(2 * EACH + 1, 3 * EACH + 1))
    assert again.retention.numbers.dropped_rows >= table.retention.numbers.dropped_rows > 0


def test_what_is_not_published_stays_and_is_reported(tmp_path: Path) -> None:
    published = Published(0)
    table = opened(tmp_path, published=published)
    fill(table, 0, 40)
    assert sequences(table) == list(range(1, 201))
    assert table.retention.blocked.by == "it is not published yet"
    assert table.retention.blocked.bytes > 0
    published.version = table.version
    fill(table, 40, 46)
    assert table.retention.blocked == Blocked()
    assert sequences(table)[0] > 1
    assert sequences(table)[-1] == 46 * EACH


@pytest.mark.parametrize("version", [3, 11, 25])
def test_wherever_the_publisher_is_it_reads_on(tmp_path: Path, version: int) -> None:
    table = opened(tmp_path, Budget(bytes=1), Published(version))
    fill(table, 0, 40)
    commits = [
        CommittedResults(table.root).commit(each, table.version) for each in range(version + 1, table.version + 1)
    ]
    rows = [number for commit in commits for number in commit["sequence"].to_pylist()]
    assert rows == list(range(rows[0], 201)), "commit by commit"
    assert set(rows) <= set(sequences(table)), "and in the table"


def test_numbers_that_cannot_be_read_are_an_error_not_a_new_beginning(tmp_path: Path) -> None:
    table = opened(tmp_path)
    fill(table, 0, 40)
    Path(table.root, NUMBERS).write_text("{")
    with pytest.raises(StorageError, match="what has gone of the results cannot be read"):
        ResultsRetention(table.root)


@pytest.mark.parametrize("every", [3, 5])
def test_the_oldest_rows_go_first_however_large_commits_are(tmp_path: Path, every: int) -> None:
    """A file that is too large to be merged lies between small ones, which are."""
    budget = Budget(bytes=60_000)
    table, last = opened(tmp_path, budget), 0
    for number in range(40):
        rows = 400 if number % every == 2 else EACH
        texts = [f'{{"x":{number * 7919 + place * 104_729}}}' for place in range(rows)]
        columns = {"query": "q", "start_us": number, "end_us": number + 1, "kind": "row", "row": texts}
        table.append(pl.DataFrame(columns), number)
        last += rows
        kept = sequences(table)
        assert kept == list(range(kept[0], last + 1)), f"after commit {number}"
    assert kept[0] > 1, "something has gone"
