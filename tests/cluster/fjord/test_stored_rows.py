"""Rows in a file are found whatever its folder is called: a name is no pattern."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cluster.fjord.batch import START
from cluster.fjord.stream_scan import RowsInFile, RowsInMemory, read_together


@pytest.mark.parametrize("name", ["plant [1]", "a*b", "a?b", "{x,y}"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    path = tmp_path / name / "rows.parquet"
    pl.DataFrame({START: [1, 2], "k": [3, 4]}).write_parquet(path)
    stored = RowsInFile(str(path))
    assert stored.columns == {START, "k"}
    assert stored.read(["k"])["k"].to_list() == [3, 4]
    assert stored.read(["k"], (2, 3))["k"].to_list() == [4]
    assert stored.rest(2) is stored
    assert stored.rest(3) is None


def test_files_are_read_together_in_their_order(tmp_path: Path) -> None:
    files = []
    for number in range(3):
        later = {"fjord_form": [None, "f"]} if number == 2 else {}
        path = tmp_path / f"{number} [1].parquet"
        pl.DataFrame({START: [number * 2, number * 2 + 1], "k": [1, 2], **later}).write_parquet(path)
        files.append(RowsInFile(str(path)))
    pieces = [files[2], RowsInMemory(pl.DataFrame({START: [9], "k": [1]})), files[0], files[1]]
    assert pl.concat(read_together(pieces, [START]))[START].to_list() == [4, 5, 9, 0, 1, 2, 3]
    some = pl.concat(read_together(pieces, [START], (1, 9), pl.col("k") == 2))
    assert some[START].to_list() == [5, 1, 3]
