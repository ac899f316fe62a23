"""Data folders: other formats are used, upgraded or refused without a change; misread paths are refused."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from cluster.errors import StorageError
from cluster.physical.plan_files import PlanFiles
from cluster.service.data_folder.folder import (
    FORMAT,
    MARKER,
    Action,
    FolderContents,
    FolderFormatError,
    FolderMovedError,
    FolderPathError,
    Marker,
    check_path,
    decide_on,
    inspect,
    mark,
    open_folder,
)
from cluster.service.registry.registry import Registry
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from cluster.storage.stream_tables import StreamTable
from tests.cluster.storage.test_tables import TRAFFIC, at, rows

FOLDER = Path("data")


def marker(number: int) -> bytes:
    return msgspec.json.encode(Marker(number, "9.9"))


@pytest.mark.parametrize(("found", "action"), [
    (FolderContents(), Action.BEGIN),
    (FolderContents(single_query=True), Action.BEGIN),  # a log without a registry
    (FolderContents(registry=True), Action.UPGRADE),
    (FolderContents(marker(1), registry=True), Action.UPGRADE),
    (FolderContents(marker(FORMAT)), Action.CONTINUE),
    (FolderContents(marker(FORMAT), registry=True), Action.CONTINUE),
    (FolderContents(b'{"format": 4, "written_by": "0.1", "since": "a later version"}'), Action.CONTINUE),
])  # fmt: skip
def test_folders_of_readable_formats_are_used(found: FolderContents, action: Action) -> None:
    assert decide_on(FOLDER, found) is action


@pytest.mark.parametrize(("found", "reason", "hint"), [
    (FolderContents(marker(FORMAT + 1), registry=True), "has format 5, written by fjord 9.9; this program, fjord ",
     "run that version or a later one, or choose another --data"),
    (FolderContents(registry=True, single_query=True), "has format 0, of a version that ran all queries in one",
     "run the cluster with that version"),
    (FolderContents(marker(0)), "has format 0", "run the cluster with that version"),
    (FolderContents(marker(-1)), "has format -1", "run the cluster with that version"),
    (FolderContents(b""), "has an unknown format: format.json cannot be read", "restore format.json"),
    (FolderContents(b"\xff"), "has an unknown format: format.json cannot be read", "restore format.json"),
    (FolderContents(b'{"format": "2"}'), "has an unknown format: format.json cannot be read", "restore format.json"),
])  # fmt: skip
def test_folders_of_other_formats_are_refused_with_a_hint(found: FolderContents, reason: str, hint: str) -> None:
    with pytest.raises(FolderFormatError) as refused:
        decide_on(FOLDER, found)
    assert refused.value.message.startswith(f"the data folder data {reason}")
    assert "reads formats 1 to 4" in refused.value.message
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(hint)
    assert refused.value.hint.endswith("nothing in it was changed")


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", ["newer", "one query", "damaged"])
def test_a_refused_folder_is_not_changed(tmp_path: Path, kind: str) -> None:
    Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans")).close()
    if kind == "one query":
        log = tmp_path / "checkpoint-1234" / "offsets"
        log.mkdir(parents=True)
        (log / "7").write_text("v1")
    else:
        (tmp_path / MARKER).write_bytes(marker(FORMAT + 1) if kind == "newer" else b"")
    before = contents(tmp_path)
    with pytest.raises(FolderFormatError):
        ClusterServer(ClusterSettings(folder=tmp_path))
    assert contents(tmp_path) == before


def test_a_new_folder_gets_a_marker(tmp_path: Path) -> None:
    assert decide_on(tmp_path, inspect(tmp_path)) is Action.BEGIN
    mark(tmp_path)
    assert msgspec.json.decode((tmp_path / MARKER).read_bytes(), type=Marker).format == FORMAT
    assert decide_on(tmp_path, inspect(tmp_path)) is Action.CONTINUE
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]


def test_a_folder_with_two_spark_queries_is_upgraded(tmp_path: Path) -> None:
    (tmp_path / "registry.sqlite").touch()
    for host in ("stateful", "stateless"):
        log = tmp_path / "checkpoint-1234" / host / "offsets"
        log.mkdir(parents=True)
        (log / "7").write_text("v1")
    assert decide_on(tmp_path, inspect(tmp_path)) is Action.UPGRADE


def test_a_version_without_markers_refuses_an_upgraded_folder(tmp_path: Path) -> None:
    Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans")).close()
    with sqlite3.connect(tmp_path / "registry.sqlite") as database:
        assert database.execute("PRAGMA user_version").fetchone() > (3,)


def test_a_plan_that_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans")).close()
    with sqlite3.connect(tmp_path / "registry.sqlite") as database:
        database.execute("UPDATE plans SET plan = ?", (b'{"type":"Plan","epoch":1,"queries":[{"node":{"type":"X"}}]}',))
    with pytest.raises(StorageError, match=r"the plan in the registry of .* cannot be read"):
        Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))


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


def test_a_copied_folder_is_refused_unchanged_until_it_is_adopted(tmp_path: Path) -> None:
    original, copy = tmp_path / "a", tmp_path / "b"
    open_folder(original).close()
    shutil.copytree(original, copy)
    before = contents(copy)
    for _ in range(2):  # it is locked no more
        with pytest.raises(FolderMovedError, match=str(original)) as caught:
            ClusterServer(ClusterSettings(folder=copy))
        assert "--adopt" in str(caught.value.hint)
    assert contents(copy) == before
    ClusterServer(ClusterSettings(folder=copy, adopt=True)).close()
    ClusterServer(ClusterSettings(folder=copy)).close()
    original.rename(tmp_path / "c")
    open_folder(tmp_path / "c").close()


@pytest.mark.parametrize(
    "name",
    [
        *("lock", "registry.sqlite", "registry.sqlite-wal", MARKER, "counters-link.json", "plans/1.unfinished"),
        *("streams/x", "results/x"),
    ],
)
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    link, other = tmp_path / "d" / name, tmp_path / "other"
    link.parent.mkdir(parents=True)
    link.symlink_to(other)
    with pytest.raises(StorageError, match=f"{name} is a link to a file"):
        ClusterServer(ClusterSettings(folder=tmp_path / "d"))
    assert not other.exists()
    assert len(list((tmp_path / "d").iterdir())) == 1


def test_folders_in_a_data_folder_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "streams").symlink_to(tmp_path / "elsewhere")
    ClusterServer(ClusterSettings(folder=tmp_path / "d")).close()
