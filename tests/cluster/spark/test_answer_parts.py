"""
task 0     a 1 2        file                   one behind the other: file, rows, file
task 1     a 2 3        rows
task 2     a 4          file

task 0     a 1 5        file                   their starts overlap: all are read, and put in order
task 1     a 4          file
"""  # fmt: skip

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

from cluster.fjord.answers import HostOutput, collected, error_row
from cluster.spark.envelopes import OUTPUT_SCHEMA, CollectedOutputs, collected_outputs, pack_output, written_by_task
from cluster.storage.results_table import Part
from cluster.storage.unnumbered_answers import UnnumberedFile, UnnumberedFolder, read_unnumbered
from tests.cluster.spark.answer_rows import answers

import pyarrow as pa  # isort: skip

MOST = 2


@pytest.fixture
def folder(tmp_path: Path) -> str:
    made = UnnumberedFolder(str(tmp_path), "run")
    made.make()
    return made.path


def outputs(folder: str, *tasks: list[pl.DataFrame]) -> CollectedOutputs:
    """Return what the driver collects of tasks that write more than two answers; they end in reverse order."""
    rows = []
    for origin, pieces in enumerate(tasks):
        output = HostOutput(pieces)
        packed = pack_output(output, written_by_task(output, folder, MOST))
        assert packed is not None
        assert (packed.answers is None) == (packed.file is not None)
        rows.append({"bucket": origin, "answers": packed.answers, "counters": None, "file": packed.file})
    return collected_outputs(pa.Table.from_pylist(rows[::-1], OUTPUT_SCHEMA))


def kinds(parts: list[Part]) -> list[str]:
    return ["file" if isinstance(part, UnnumberedFile) else "rows" for part in parts]


def by_query(parts: list[Part]) -> dict[str, list[tuple[int, str]]]:
    """Return start and text of each query's rows in the order in which they are numbered."""
    found: dict[str, list[tuple[int, str]]] = {}
    for part in parts:
        rows = read_unnumbered(part) if isinstance(part, UnnumberedFile) else part
        for query, start, _, kind, text in rows.iter_rows():
            found.setdefault(query, []).append((start, f"{kind} {text}"))
    return found


def driver_alone(*tasks: list[pl.DataFrame]) -> dict[str, list[tuple[int, str]]]:
    return by_query([collected(map(HostOutput, tasks)).rows])


def test_only_tasks_with_many_answers_write_files(folder: str) -> None:
    many, few = [answers(("a", 1), ("b", 1), ("a", 2))], [answers(("a", 2), ("a", 3))]
    last = [answers(("a", 4)), answers(("b", 4), ("a", 5))]
    found = outputs(folder, many, few, few, last)
    assert found.in_files
    assert kinds(found.parts()) == ["file", "rows", "file"]
    assert by_query(found.parts()) == driver_alone(many, few, few, last)
    assert not outputs(folder, few, few).in_files
    assert not outputs("", many, last).in_files, "nowhere to write"
    assert not outputs(f"{folder}/missing", many, last).in_files, "a machine that does not share the table's disk"


def test_tasks_whose_answers_overlap_are_put_in_order_by_the_driver(folder: str) -> None:
    first, second = [answers(("a", 1), ("a", 2), ("a", 5))], [answers(("a", 4), ("b", 4), ("b", 5))]
    found = outputs(folder, first, second)
    assert found.in_files
    assert kinds(found.parts()) == ["rows"]
    assert by_query(found.parts()) == driver_alone(first, second)
    assert [start for start, _ in by_query(found.parts())["a"]] == [1, 2, 4, 5]


def test_an_error_that_several_tasks_report_is_one_though_others_write_files(folder: str) -> None:
    error = error_row("b", "no such thing", 5)
    tasks = [error, answers(("a", 1))], [answers(("a", 1), ("a", 2), ("a", 3))], [answers(("a", 4), ("a", 4)), error]
    found = outputs(folder, *tasks)
    assert [isinstance(piece, UnnumberedFile) for piece in found.pieces] == [False, True, False]
    assert by_query(found.parts()) == driver_alone(*tasks)
    assert by_query(found.parts())["b"] == [(5, 'error "no such thing"')]


@pytest.mark.parametrize("kind", ["open", "closes", "error"])
def test_answers_among_which_are_others_than_whole_rows_are_returned(folder: str, kind: str) -> None:
    rows = answers(("a", 1), ("a", 2), ("b", 3)).with_columns(
        pl.when(pl.col("query") == "b").then(pl.lit(kind)).otherwise("kind").alias("kind")
    )
    found = outputs(folder, [rows])
    assert not found.in_files
    assert found.rows()["kind"].to_list() == ["row", "row", kind]


@pytest.mark.parametrize("seed", range(40))
def test_rows_get_the_numbers_that_the_driver_alone_gives_them(folder: str, seed: int) -> None:
    dice = random.Random(seed)
    tasks, at = [], 0
    for _ in range(dice.randrange(1, 6)):
        pieces = []
        for _ in range(dice.randrange(1, 3)):
            starts = sorted(at + dice.randrange(5) for _ in range(dice.randrange(1, 5)))
            pieces.append(answers(*((dice.choice("abc"), start) for start in starts)))
        tasks.append(pieces)
        at += dice.choice([0, 2, 4, 5])
    assert by_query(outputs(folder, *tasks).parts()) == driver_alone(*tasks)
