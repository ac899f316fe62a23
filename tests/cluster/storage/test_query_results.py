"""Rows of one query are read in order, whatever lies among them, and little of that."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.storage import committed_results
from cluster.storage.committed_results import RESULT_SCHEMA, rows_of_query

Row = tuple[str, int, str]

POOLS: list[pa.MemoryPool] = []
"""Those that tests read into, kept: a thread of Arrow may still free a buffer when the last row has been read."""


def dataset_of(folder: Path, files: Sequence[Sequence[Row]], group: int) -> ds.Dataset:
    """Write files of rows in groups of so many."""
    for number, rows in enumerate(files):
        columns = [[query, sequence, 0, 1, "row", text, None] for query, sequence, text in rows]
        arrays = [
            pa.array(list(each), kind)
            for each, kind in zip(zip(*columns, strict=True), RESULT_SCHEMA.types, strict=True)
        ]
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=RESULT_SCHEMA), folder / f"{number}.parquet", row_group_size=group
        )
    return ds.dataset(folder, RESULT_SCHEMA, format="parquet")


@st.composite
def tables(draw: Any) -> tuple[list[list[Row]], int]:
    """Draw files in which the rows of some queries lie in any order, and the size of their groups."""
    counts = {query: draw(st.integers(0, 12)) for query in "abc"}
    rows = [
        (query, number, "x" * (1 + number % 4)) for query, count in counts.items() for number in range(1, count + 1)
    ]
    dice = random.Random(draw(st.integers(0, 1000)))
    if draw(st.booleans()):
        dice.shuffle(rows)
    cuts = sorted(draw(st.sets(st.integers(0, len(rows)), max_size=4)))
    files = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    return [each for each in files if each], draw(st.integers(1, 5))


@settings(max_examples=60)
@given(
    table=tables(), after=st.integers(0, 13), limit=st.integers(1, 14),
    most=st.none() | st.integers(0, 30), batch=st.sampled_from((1, 100, 10_000)),
)  # fmt: skip
def test_the_first_rows_behind_a_number_are_read(
    tmp_path_factory: pytest.TempPathFactory,
    table: tuple[list[list[Row]], int], after: int, limit: int, most: int | None, batch: int,
) -> None:  # fmt: skip
    files, group = table
    dataset = dataset_of(tmp_path_factory.mktemp("results"), files, group)
    expected = sorted(
        (number, text) for rows in files for query, number, text in rows if query == "a" and number > after
    )
    expected = expected[:limit]
    with patch.multiple(committed_results, BATCH_BYTES=batch, FIRST_ROWS=2):
        rows = rows_of_query(dataset, "a", after, limit, most_bytes=most)
    found = list(zip(rows["sequence"].to_pylist(), rows["row"].to_pylist(), strict=True))
    assert found == expected[: len(found)]
    if most is None:
        assert found == expected
    elif len(found) < len(expected):
        assert found, "one is read however long it is"
        assert sum(len(text) for _, text in found) >= most


@pytest.mark.parametrize("query", ["small", "large"])
def test_long_rows_are_in_memory_in_small_parts(tmp_path: Path, query: str) -> None:
    """400 MB of a query's rows; beside them those of another, or the first few of its own."""
    dice = random.Random(1)
    long = [dice.randbytes(500_000).hex() for _ in range(4)]
    rows = [("large", number, long[number % 4]) for number in range(1, 401)]
    rows = [each for large in rows for each in (large, ("small", large[1], "x"))]
    files = [rows[start : start + 80] for start in range(0, 800, 80)]
    dataset, memory = dataset_of(tmp_path, files, 1_000), pa.proxy_memory_pool(pa.default_memory_pool())
    POOLS.append(memory)
    found = rows_of_query(dataset, query, 0, 1_000, most_bytes=16 * 1024**2, memory=memory)
    assert 16 <= len(found) <= 40 if query == "large" else len(found) == 400
    assert memory.max_memory() < 100 * 1024**2
