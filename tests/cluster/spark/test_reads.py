"""Reads of a micro-batch, divided among its tasks."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.spark.reading.reads import ROWS_PER_TASK, StreamRead, UpstreamTask, divided

FILES = st.lists(st.integers(0, 2 * ROWS_PER_TASK), max_size=12)


def reads_of(*rows: list[int]) -> list[StreamRead]:
    return [
        StreamRead(f"s{stream}", tuple((f"{stream}-{number}", each) for number, each in enumerate(counts)), 10 * stream)
        for stream, counts in enumerate(rows)
    ]


@given(st.lists(FILES, max_size=3), st.integers(1, 5))
def test_each_file_is_in_one_part_and_each_part_has_all_reads(rows: list[list[int]], max_parts: int) -> None:
    reads = reads_of(*rows)
    parts = divided(reads, max_parts)
    assert 1 <= len(parts) <= max_parts
    assert len(parts) <= max(1, sum(map(sum, rows)) // ROWS_PER_TASK)
    for number, read in enumerate(reads):
        assert tuple(file for part in parts for file in part[number].files) == read.files
        for part in parts:
            assert msgspec.structs.replace(part[number], files=read.files) == read


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([], [[]]),
        ([ROWS_PER_TASK], [[0]]),
        ([ROWS_PER_TASK] * 2, [[0], [1]]),
        ([ROWS_PER_TASK // 2] * 4, [[0, 1], [2, 3]]),
        ([ROWS_PER_TASK] * 5, [[0, 1], [2, 3], [4]]),
        ([10] * 5, [[0, 1, 2, 3, 4]]),
    ],
)
def test_parts_have_about_as_many_rows(rows: list[int], parts: list[list[int]]) -> None:
    found = [[int(path.split("-")[1]) for path, _ in read.files] for (read,) in divided(reads_of(rows), 3)]
    assert found == parts


def test_a_task_knows_how_far_the_streams_have_come_live() -> None:
    live, unknown = StreamRead("a", (), 7), StreamRead("b", (), None)
    backfill = StreamRead("a", (), 99, (0, 99), backfill_epoch=3)
    assert UpstreamTask("plans", "streams", 1, 1, 3, 0, (live, unknown, backfill)).reached_us == 7
    assert UpstreamTask("plans", "streams", 1, 1, 3, 0, (unknown,)).reached_us == 0
