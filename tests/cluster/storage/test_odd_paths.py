"""A data folder may be called what folders are called: spaces and letters of all languages are part of a path."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

from cluster.operators.columns import Column
from cluster.relations.allowed_files import AllowedFiles
from cluster.relations.frames import DeltaSource
from cluster.relations.source import Limits
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamTable
from protocols.wire.streams import FieldType
from tests.cluster.storage.test_tables import TRAFFIC, answers, at, rows

NAMES = ("my data", "Straße", "数据", "a+b&c=d")


@pytest.mark.parametrize("name", NAMES)
def test_results_are_found_under_odd_paths(tmp_path: Path, name: str) -> None:
    root = str(tmp_path / name / "results")
    ResultsTable(root, "f").append(answers(("q", 1), ("q", 2)), 0)
    table = ResultsTable(root, "f")
    table.append(answers(("q", 3)), 1)
    assert table.rows_after("q", 1, 10)["sequence"].to_list() == [2, 3]


@pytest.mark.parametrize("name", NAMES)
def test_streams_are_found_under_odd_paths(tmp_path: Path, name: str) -> None:
    root = str(tmp_path / name / "traffic")
    StreamTable(root, TRAFFIC).append([rows(1)], at(1), {("p", "e"): 1})
    table = StreamTable(root)
    assert (table.version, table.latest_stamp() is not None, table.sequences()) == (1, True, {("p", "e"): 1})


@pytest.mark.parametrize("name", NAMES)
def test_relations_are_read_under_odd_paths(tmp_path: Path, name: str) -> None:
    write_deltalake(str(tmp_path / name), pl.DataFrame({"lane": [1, 2]}).to_arrow())
    source = DeltaSource(tmp_path / name, limits=Limits(), files=AllowedFiles([tmp_path]))
    assert source.rows((Column("lane", FieldType.INTEGER),))["lane"].to_list() == [1, 2]
