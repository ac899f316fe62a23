"""Rows in a file are found whatever its folder is called: a name is no pattern."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cluster.fjord.batch import START
from cluster.fjord.stored_rows import RowsInFile


@pytest.mark.parametrize("name", ["plant [1]", "a*b", "a?b", "{x,y}"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    path = tmp_path / name / "rows.parquet"
    pl.DataFrame({START: [1, 2], "k": [3, 4]}).write_parquet(path)
    stored = RowsInFile(str(path))
    assert stored.read(["k"])["k"].to_list() == [3, 4]
    assert stored.read(["k"], (2, 3))["k"].to_list() == [4]
    assert stored.rest(2) is stored
    assert stored.rest(3) is None
