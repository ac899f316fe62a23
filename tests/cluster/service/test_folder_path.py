"""Tables are found again in a data folder, or the cluster refuses its path before it writes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.service.data_folder.folder import FolderPathError, check_path
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from cluster.storage.stream_tables import StreamTable
from tests.cluster.storage.test_tables import TRAFFIC, at, rows


@pytest.mark.parametrize("name", ["a%20b", "x%41y", "%2f", "a\\b", "a\nb", "a\x7fb"])
def test_a_path_that_would_be_misread_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(FolderPathError, match="in its path") as caught:
        ClusterServer(ClusterSettings(folder=tmp_path / name / "data"))
    assert caught.value.hint is not None
    assert list(tmp_path.iterdir()) == []


def test_the_target_of_a_link_is_checked(tmp_path: Path) -> None:
    (tmp_path / "x%41y").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "x%41y")
    with pytest.raises(FolderPathError):
        ClusterServer(ClusterSettings(folder=tmp_path / "link"))


@pytest.mark.parametrize("name", ["a b", "50%", "a%zz", "ä", "a#b", "a?b", "a+b", "a&b=c", "a:b", "'q'", "a*b", "[a]"])
def test_tables_in_any_other_folder_are_found_again(tmp_path: Path, name: str) -> None:
    check_path(tmp_path / name)
    root = str(tmp_path / name / "t")
    StreamTable(root, TRAFFIC).append([rows(1)], at(1), {("p", "e"): 1})
    again = StreamTable(root)
    again.append([rows(2)], at(2), {("p", "e"): 2})
    assert len(list((tmp_path / name).rglob("*.parquet"))) == 2
    assert again.last_sequence("p", "e") == 2
