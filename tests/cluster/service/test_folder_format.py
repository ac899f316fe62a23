"""Data folders of other versions: gone on with, upgraded, or refused as they are, with the way out."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from cluster.errors import StorageError
from cluster.physical.plan_files import PlanFiles
from cluster.service.data_folder.format import (
    FORMAT,
    MARKER,
    Course,
    FolderFormatError,
    Found,
    Marked,
    decide,
    look,
    settle,
)
from cluster.service.registry.registry import Registry
from cluster.service.server import ClusterServer
from cluster.service.settings import ClusterSettings

FOLDER = Path("data")


def marker(number: int) -> bytes:
    return msgspec.json.encode(Marked(number, "9.9"))


@pytest.mark.parametrize(("found", "course"), [
    (Found(), Course.BEGIN),
    (Found(single_query=True), Course.BEGIN),  # nobody knows what its log was for
    (Found(registry=True), Course.UPGRADE),
    (Found(marker(1), registry=True), Course.UPGRADE),
    (Found(marker(FORMAT)), Course.GO_ON),
    (Found(marker(FORMAT), registry=True), Course.GO_ON),
    (Found(b'{"format": 4, "written_by": "0.1", "since": "a later version"}'), Course.GO_ON),
])  # fmt: skip
def test_what_can_be_read_is_used(found: Found, course: Course) -> None:
    assert decide(FOLDER, found) is course


@pytest.mark.parametrize(("found", "reason", "hint"), [
    (Found(marker(FORMAT + 1), registry=True), "has format 5, written by fjord 9.9; this program, fjord ",
     "run that version or a later one, or choose another --data"),
    (Found(registry=True, single_query=True), "has format 0, of a version that ran all queries in one of Spark",
     "run the cluster with that version"),
    (Found(marker(0)), "has format 0", "run the cluster with that version"),
    (Found(marker(-1)), "has format -1", "run the cluster with that version"),
    (Found(b""), "does not say which format it has", "restore format.json"),
    (Found(b"\xff"), "does not say which format it has", "restore format.json"),
    (Found(b'{"format": "2"}'), "does not say which format it has", "restore format.json"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused_with_the_way_out(found: Found, reason: str, hint: str) -> None:
    with pytest.raises(FolderFormatError) as refused:
        decide(FOLDER, found)
    assert refused.value.message.startswith(f"the data folder data {reason}")
    assert "reads formats 1 to 4" in refused.value.message
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(hint)
    assert refused.value.hint.endswith("nothing in it was changed")


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", ["newer", "one query", "damaged"])
def test_a_refused_folder_stays_as_it_is(tmp_path: Path, kind: str) -> None:
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


def test_a_folder_is_marked_once_and_for_all_versions_to_come(tmp_path: Path) -> None:
    assert decide(tmp_path, look(tmp_path)) is Course.BEGIN
    settle(tmp_path)
    assert msgspec.json.decode((tmp_path / MARKER).read_bytes(), type=Marked).format == FORMAT
    assert decide(tmp_path, look(tmp_path)) is Course.GO_ON
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]


def test_two_spark_queries_are_no_single_one(tmp_path: Path) -> None:
    (tmp_path / "registry.sqlite").touch()
    for host in ("stateful", "stateless"):
        log = tmp_path / "checkpoint-1234" / host / "offsets"
        log.mkdir(parents=True)
        (log / "7").write_text("v1")
    assert decide(tmp_path, look(tmp_path)) is Course.UPGRADE


def test_a_version_without_markers_refuses_what_today_s_has_upgraded(tmp_path: Path) -> None:
    Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans")).close()
    with sqlite3.connect(tmp_path / "registry.sqlite") as database:
        assert database.execute("PRAGMA user_version").fetchone() > (3,)


def test_a_plan_that_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans")).close()
    with sqlite3.connect(tmp_path / "registry.sqlite") as database:
        database.execute("UPDATE plans SET plan = ?", (b'{"type":"Plan","epoch":1,"queries":[{"node":{"type":"X"}}]}',))
    with pytest.raises(StorageError, match=r"the plan in the registry of .* cannot be read"):
        Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
