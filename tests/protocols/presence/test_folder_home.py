"""A folder that was copied is noticed, one that was renamed is not; both with real files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from protocols.presence.folder_home import HOME, Home, Moved, moved, settle

HERE = Home(7, "m", "/data", "gateway")


@pytest.mark.parametrize(
    ("before", "now", "by"),
    [
        (None, HERE, None),
        (HERE, HERE, None),
        (HERE, Home(7, "m", "/renamed", "container 2"), None),
        (HERE, Home(8, "m", "/data", "gateway"), "its lock file"),
        (HERE, Home(7, "n", "/data", "gateway"), "the machine"),
        (HERE, Home(8, "n", "/data", "gateway"), "its lock file"),
        (HERE, Home(7, None, "/data", "gateway"), None),
        (Home(7, None, "/data", "gateway"), HERE, None),
        (Home(7, None, "/data", "gateway"), Home(8, None, "/data", "gateway"), "its lock file"),
    ],
)
def test_lock_file_and_machine_decide(before, now, by):
    found = moved(before, now)
    assert (None if found is None else found.by) == by


class Folder:
    """A data folder with a lock file, on a machine."""

    def __init__(self, path: Path, machine: str | None = "m") -> None:
        self.path = path
        self.machine_id = path.with_name(f"{path.name}.machine-id")
        path.mkdir(exist_ok=True)
        if machine is not None:
            self.machine_id.write_text(f"{machine}\n")

    def start(self, *, adopt: bool = False) -> Moved | None:
        lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR)
        try:
            return settle(self.path, lock, adopt=adopt, machine_id=self.machine_id)
        finally:
            os.close(lock)

    @property
    def recorded(self) -> Home:
        return msgspec.json.decode((self.path / HOME).read_bytes(), type=Home)


def copied(folder: Folder, name: str, machine: str | None = "m") -> Folder:
    path = folder.path.with_name(name)
    shutil.copytree(folder.path, path)
    return Folder(path, machine)


def test_a_copy_is_refused_unchanged_until_it_is_adopted_once(tmp_path):
    original = Folder(tmp_path / "a")
    assert original.start() is None
    copy = copied(original, "b")
    before = (copy.path / HOME).read_bytes()
    found = copy.start()
    assert found is not None
    assert str(original.path) in found.described(copy.path)
    assert "--adopt" in found.hint
    assert (copy.path / HOME).read_bytes() == before
    assert copy.start(adopt=True) is None
    assert copy.start() is None
    assert original.start() is None


def test_a_folder_that_is_renamed_goes_on_and_notes_its_new_path(tmp_path):
    original = Folder(tmp_path / "a")
    original.start()
    original.path.rename(tmp_path / "b")
    renamed = Folder(tmp_path / "b")
    assert renamed.start() is None
    assert renamed.recorded.path == str(tmp_path / "b")


def test_a_disk_that_was_cloned_is_recognised_by_its_machine(tmp_path):
    folder = Folder(tmp_path / "a", "m")
    folder.start()
    folder.machine_id.write_text("another\n")
    assert folder.start() is not None


def test_a_machine_without_identity_changes_nothing_that_is_known(tmp_path):
    folder = Folder(tmp_path / "a", "m")
    folder.start()
    for unknown in ("", "uninitialized\n"):
        folder.machine_id.write_text(unknown)
        assert folder.start() is None
    folder.machine_id.unlink()
    assert folder.start() is None
    assert folder.recorded.machine == "m"


def test_a_folder_of_an_earlier_version_or_with_a_broken_record_gets_one(tmp_path):
    folder = Folder(tmp_path / "a", None)
    for broken in (None, b"", b"\xff", b'{"inode": "x"}'):
        if broken is not None:
            (folder.path / HOME).write_bytes(broken)
        assert folder.start() is None
        assert folder.recorded.inode == (folder.path / "lock").stat().st_ino


def test_a_full_disk_keeps_nobody_from_starting(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    folder = Folder(tmp_path / "a")
    assert folder.start() is None
    assert not (folder.path / HOME).exists()
