"""A disk that can lose its power: it knows what has been synced, and makes folders as they may be after a cut.

    folder          as programs see it                     cut: what was not synced is there, or not, or in part
    +-- synced      content of files when they were synced
    +-- synced      names in folders when they were synced

SQLite syncs by itself, in C, where it cannot be observed: its files are assumed to be on disk, as they are with
``synchronous=FULL``. A file that was moved is in its old place or in its new one, never in none.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from threading import RLock

import pytest


class RecordedDisk:
    """Records what is synced below a folder.

    Parameters
    ----------
    folder
        Where programs work. What is there already is on disk.
    instant
        Called before and after each sync of a path, in any thread: what is seen then may be taken back.
    without
        Names of folders in it that are not compared after a cut.
    """

    def __init__(
        self,
        folder: Path,
        instant: Callable[[Path], None] = lambda _: None,
        *,
        without: frozenset[str] = frozenset(),
    ) -> None:
        self.folder = folder
        self._without = without
        self._instant = instant
        self._lock = RLock()
        self._open: dict[int, int] = {}
        """Descriptors of what was synced: while it is open, nothing else gets its number."""
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        for path in [folder, *folder.rglob("*")]:
            self.note(path)

    def record(self, patch: pytest.MonkeyPatch) -> None:
        """Record all that is synced from now on, instead of syncing it."""
        patch.setattr(os, "fsync", self._fsync)

    def cut(self, into: Path, dice: random.Random | None) -> None:
        """Make a folder as it may be after a power cut in this moment; without dice, all that may be lost is lost."""
        with self._lock:
            _Cut(self._content, self._names, self._without, dice).make(self.folder, into)

    def close(self) -> None:
        """Let go of all files."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _fsync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not path.is_relative_to(self.folder):
            return
        self._instant(path)
        with self._lock:
            self.note(path)
        self._instant(path)

    def note(self, path: str | Path) -> None:
        """Note that a file, or the names in a folder, are on disk as they are now."""
        try:
            descriptor = os.open(path, os.O_RDONLY)
            status = os.fstat(descriptor)
            if status.st_ino in self._open:
                os.close(descriptor)
            else:
                self._open[status.st_ino] = descriptor
            if stat.S_ISDIR(status.st_mode):
                self._names[status.st_ino] = _names_in(path)
            else:
                self._content[status.st_ino] = os.pread(self._open[status.st_ino], status.st_size, 0)
        except FileNotFoundError:
            return  # removed meanwhile


class _Cut:
    def __init__(
        self,
        content: dict[int, bytes],
        names: dict[int, dict[str, int]],
        without: frozenset[str],
        dice: random.Random | None,
    ) -> None:
        self._content = content
        self._names = names
        self._without = without
        self._dice = dice
        self._decided: dict[int, bool] = {}
        self._left: dict[int, Path] = {}

    def make(self, folder: Path, into: Path) -> None:
        into.mkdir(parents=True)
        now, synced = _names_in(folder), self._names.get(folder.stat().st_ino, {})
        for name in sorted({*now, *synced} - self._without):
            number = self._number_after(name, now.get(name), synced.get(name))
            if number is None:
                continue
            path, after = folder / name, into / name
            if number == now.get(name) and path.is_dir():
                self.make(path, after)
            elif number == now.get(name):
                self._write(path, number, after)
            else:
                self._restore(number, after)

    def _restore(self, number: int, after: Path) -> None:
        """Make again what was removed, and the removal not synced."""
        if number in self._names:
            after.mkdir()
            for name, inner in self._names[number].items():
                self._restore(inner, after / name)
        elif number in self._content:
            after.write_bytes(self._content[number])

    def _number_after(self, name: str, now: int | None, synced: int | None) -> int | None:
        if now == synced or ".sqlite" in name:
            return now
        # What was put in the place of another decides for both; so does what was moved, in both places.
        is_done = self._is_done(now if now is not None else synced)
        return now if is_done else synced

    def _is_done(self, number: int | None) -> bool:
        assert number is not None
        if number not in self._decided:
            self._decided[number] = self._dice is not None and self._dice.random() < 0.5
        return self._decided[number]

    def _write(self, path: Path, number: int, after: Path) -> None:
        if number in self._left:  # one file with two names
            after.hardlink_to(self._left[number])
            return
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        synced = self._content.get(number)
        if ".sqlite" not in path.name and content != synced:
            content = _left(content, synced, self._dice)
        after.write_bytes(content)
        os.utime(after, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        self._left[number] = after


def _left(content: bytes, synced: bytes | None, dice: random.Random | None) -> bytes:
    """Return what may be left of content that was not synced."""
    if dice is None:
        return synced or b""
    if synced is not None:
        return dice.choice([synced, content])
    part = content[: dice.randrange(len(content) + 1)]
    lines = content.splitlines(keepends=True)
    some = b"".join(lines[: dice.randrange(len(lines) + 1)])
    return dice.choice([b"", part, part + bytes(len(content) - len(part)), some, content])


def _names_in(folder: str | Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}
