"""Reads of a micro-batch, divided among its tasks."""

from __future__ import annotations

from collections import Counter

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


FILE = st.tuples(st.integers(0, 60), st.sampled_from([0, 1, 2, 5, 60]), st.integers(1, ROWS_PER_TASK))
STAMPED = st.lists(FILE, min_size=1, max_size=12)


@given(st.lists(STAMPED, min_size=1, max_size=2), st.integers(0, 30), st.integers(31, 70), st.integers(1, 4))
def test_each_stamp_of_a_file_is_in_one_part_and_parts_may_follow_each_other(
    streams: list[list[tuple[int, int, int]]], from_us: int, until_us: int, max_parts: int
) -> None:
    reads = []
    for number, files in enumerate(streams):
        there = sorted(file for file in files if file[0] < until_us and file[0] + file[1] >= from_us)
        paths = tuple((f"{number}-{place}", rows) for place, (_, _, rows) in enumerate(there))
        stamps = tuple((first, first + length) for first, length, _ in there)
        reads.append(StreamRead(f"s{number}", paths, until_us, (from_us, until_us), stamps=stamps))
    parts = divided(reads, max_parts)
    found, ends = Counter[tuple[str, int]](), list[tuple[int, int]]()
    for part in parts:
        within = [read.between_us for read in part if read.between_us]
        assert len(set(within)) == 1, "the same slice of all streams"
        ends.append(within[0])
        for read, (low, high) in zip(part, within, strict=True):
            for (path, _), (first, last) in zip(read.files, read.stamps, strict=True):
                found.update((path, stamp) for stamp in range(max(low, first), min(high - 1, last) + 1))
    wanted = {
        (path, stamp)
        for read in reads
        for (path, _), (first, last) in zip(read.files, read.stamps, strict=True)
        for stamp in range(max(from_us, first), min(until_us - 1, last) + 1)
    }
    assert found == Counter(wanted)
    if len(set(ends)) > 1:
        assert [low for low, _ in ends[1:]] == [high for _, high in ends[:-1]]
        rows = sum(count for read in reads for _, count in read.files)
        assert sum(count for part in parts for read in part for _, count in read.files) <= 1.25 * rows


def stamped(*files: tuple[int, int], rows: int = ROWS_PER_TASK) -> StreamRead:
    paths = tuple((str(place), rows) for place in range(len(files)))
    return StreamRead("s", paths, 100, (0, 100), stamps=files)


def test_files_that_overlap_a_little_are_read_twice_so_that_parts_are_slices_of_time() -> None:
    many = [(first, first + 12) for first in range(0, 100, 10)]
    first, second = (part for (part,) in divided([stamped(*many)], 2))
    assert (first.between_us, second.between_us) == ((0, 50), (50, 100))
    assert [path for path, _ in first.files] == ["0", "1", "2", "3", "4"]
    assert [path for path, _ in second.files] == ["4", "5", "6", "7", "8", "9"]


def test_files_that_overlap_much_are_read_once() -> None:
    wide = [(0, 99), (1, 99), (2, 99), (3, 99)]
    found = [part for (part,) in divided([stamped(*wide)], 2)]
    assert [[path for path, _ in part.files] for part in found] == [["0", "1"], ["2", "3"]]
    assert {part.between_us for part in found} == {(0, 100)}


def test_a_task_knows_how_far_the_streams_have_come_live() -> None:
    live, unknown = StreamRead("a", (), 7), StreamRead("b", (), None)
    backfill = StreamRead("a", (), 99, (0, 99), backfill_epoch=3)
    assert UpstreamTask("plans", "streams", 1, 1, 3, 0, (live, unknown, backfill)).reached_us == 7
    assert UpstreamTask("plans", "streams", 1, 1, 3, 0, (unknown,)).reached_us == 0
