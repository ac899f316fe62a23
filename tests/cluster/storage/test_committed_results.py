"""Reading commits: rows that are passed over are not read, and the places of others count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from cluster.storage import committed_results
from cluster.storage.appending import write_data_file
from cluster.storage.committed_results import REPEATED, RESULT_SCHEMA, CommittedResults
from cluster.storage.results_table import ResultsTable
from tests.cluster.service.test_publisher import answers

GROUPS = [{"q": 5}, {"q": 2, "p": 2}, {"p": 3}, {"q": 4}]
"""How many rows of which query each group of a file has."""


@pytest.fixture
def results(tmp_path: Path) -> CommittedResults:
    """Return a table, the first commit of which has such a file."""
    table = ResultsTable(str(tmp_path / "results"), "f")
    table.append(answers(1), 0)
    found = CommittedResults(table.root)
    (file,) = found.log.read(1).files
    last = Counter[str]()
    groups = []
    for group in GROUPS:
        rows = []
        for query, count in group.items():
            for _ in range(count):
                last[query] += 1
                rows.append(
                    {"query": query, "sequence": last[query], "start_us": 0, "end_us": 1, "kind": "row", "row": "{}",
                     "closes": None}
                )  # fmt: skip
        groups.append(pa.Table.from_pylist(rows, RESULT_SCHEMA))
    path = tmp_path / "results" / file.path
    path.unlink()
    write_data_file(table.root, RESULT_SCHEMA, groups, repeated=REPEATED, name=file.path)
    return found


def without(query: str) -> Callable[[int, int, Callable[[], Collection[str]]], bool]:
    return lambda _, __, names: set(names()) == {query}


def test_groups_are_passed_over_as_a_whole(results: CommittedResults) -> None:
    found = [rows if isinstance(rows, int) else rows.column("query").to_pylist() for rows in results.read(1, 1)]
    assert [name for names in found if not isinstance(names, int) for name in names] == (
        ["q"] * 7 + ["p"] * 5 + ["q"] * 4
    )
    asked: list[tuple[int, int, set[str]]] = []

    def passes_over(first: int, rows: int, names: Callable[[], Collection[str]]) -> bool:
        asked.append((first, rows, set(names())))
        return asked[-1][2] == {"q"}

    kept = [rows if isinstance(rows, int) else rows.num_rows for rows in results.read(1, 1, passes_over)]
    assert kept == [5, 4, 3, 4]
    assert asked == [(0, 5, {"q"}), (5, 4, {"p", "q"}), (9, 3, {"p"}), (12, 4, {"q"})]
    assert results.commit(1, 1).num_rows == 16


def test_the_wide_columns_of_what_is_passed_over_are_not_read(
    results: CommittedResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    iterate = parquet.ParquetFile.iter_batches

    def noted(self: parquet.ParquetFile, size: int, *, row_groups: list[int], columns: list[str]) -> Any:
        read.extend((group, len(columns)) for group in row_groups)
        return iterate(self, size, row_groups=row_groups, columns=columns)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", noted)
    assert [type(rows) for rows in results.read(1, 1, without("q"))] == [int, pa.RecordBatch, pa.RecordBatch, int]
    assert read == [(1, 1), (1, 7), (2, 7)], "statistics name the query of groups that have one"


def test_names_are_read_where_statistics_do_not_tell(
    results: CommittedResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_results, "NAMES_AT_ONCE", 2)
    (file,) = results.log.read(1).files
    path = Path(results.root, file.path)
    groups = [parquet.ParquetFile(path).read_row_group(group) for group in range(len(GROUPS))]
    with parquet.ParquetWriter(path, RESULT_SCHEMA, write_statistics=False) as writer:
        for group in groups:
            writer.write_table(group)
    assert [rows if isinstance(rows, int) else -1 for rows in results.read(1, 1, without("q"))] == [5, -1, -1, 4]
