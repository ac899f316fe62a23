"""Overruns of Spark's workers as files, which the next worker and the cluster read.

overruns/<number>.json                   an overrun
at-work/<process>                        what a worker computes; it is locked for as long as the worker lives
worked/<number>.json                     what a fragment has taken of a part of a micro-batch, if that was much
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Final

import msgspec

from cluster.fjord.at_work import RECORD_BYTES, read_record
from cluster.fjord.overruns import STRIKES_WITHIN_SECONDS, Overrun, OverrunKind
from cluster.fjord.work_shares import Worked

KEPT_SECONDS: Final = STRIKES_WITHIN_SECONDS
"""Older notes count for nothing."""


@dataclass(frozen=True, slots=True)
class OverrunNotes:
    """Notes of overruns.

    Parameters
    ----------
    folder
        Where they are.
    """

    folder: Path

    def make(self) -> None:
        """Make the folders."""
        for each in (self._notes, self._at_work, self._worked):
            each.mkdir(parents=True, exist_ok=True)

    @property
    def _notes(self) -> Path:
        return self.folder / "overruns"

    @property
    def _at_work(self) -> Path:
        return self.folder / "at-work"

    @property
    def _worked(self) -> Path:
        return self.folder / "worked"

    def note_work(self, worked: Worked) -> None:
        """Write what a fragment has taken."""
        self._write(worked, self._worked)

    def take_work(self) -> list[Worked]:
        """Return what fragments have taken, and remove the notes of it."""
        found = []
        for path in self._worked.glob("*.json"):
            with suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Worked))
            path.unlink(missing_ok=True)
        return found

    def changed(self) -> int:
        """Return a number that changes with the notes."""
        return _changed(self._notes)

    def work_changed(self) -> int:
        """Return a number that changes with what fragments have taken."""
        return _changed(self._worked)

    def note(self, overrun: Overrun) -> None:
        """Write an overrun."""
        self._write(overrun, self._notes)

    def _write(self, note: Overrun | Worked, folder: Path) -> None:
        """Write a note; it is there as a whole, or not at all. It need not outlive a power cut, so it is not synced."""
        name = uuid.uuid4().hex
        written = self.folder / f"{name}.new"
        written.write_bytes(msgspec.json.encode(note))
        written.rename(folder / f"{name}.json")

    def all(self) -> dict[str, list[Overrun]]:
        """Return all overruns by micro-batch, the oldest first."""
        read: list[tuple[int, Overrun]] = []
        for path in self._notes.glob("*.json"):
            with suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
                read.append((path.stat().st_mtime_ns, msgspec.json.decode(path.read_bytes(), type=Overrun)))
        found: dict[str, list[Overrun]] = {}
        for _, each in sorted(read, key=lambda one: one[0]):
            found.setdefault(each.activity.micro_batch, []).append(each)
        return found

    def note_crashes(self) -> int:
        """Note over what workers have ended that left no note themselves; return how many did."""
        found = 0
        for path in self._at_work.glob("*"):
            with suppress(OSError), path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # it is at work
                if not path.exists():
                    continue  # another process has just noted it
                activity = read_record(file.read())
                if activity is not None and activity.owner is not None:
                    self.note(Overrun(OverrunKind.CRASH, activity))
                    found += 1
                path.unlink()
        return found

    def forget_work(self) -> None:
        """Forget what ended workers computed: they were ended on purpose."""
        for path in self._at_work.glob("*"):
            path.unlink(missing_ok=True)

    def has_failed_again(self) -> bool:
        """Return whether workers have ended twice over the same micro-batch."""
        found = self.all().values()
        return any(sum(each.kind is OverrunKind.CRASH for each in overruns) > 1 for overruns in found)

    def forget_old(self, now_seconds: float) -> None:
        """Remove notes that count for nothing any more, at a time in seconds since 1970."""
        for path in self._notes.glob("*.json"):
            with suppress(OSError):
                if now_seconds - path.stat().st_mtime > KEPT_SECONDS:
                    path.unlink()

    @contextmanager
    def record(self) -> Iterator[tuple[Path, mmap]]:
        """Yield a file, and its content as memory that outlives this process; it is locked until then."""
        path = self._at_work / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        with path.open("x+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.truncate(RECORD_BYTES)
            with mmap(file.fileno(), RECORD_BYTES) as record:
                yield path, record


class NotedOverruns:
    """Which fragments have overrun a limit lately, read again when there are other notes.

    Parameters
    ----------
    folder
        Where the notes are; empty for nowhere.
    """

    def __init__(self, folder: str) -> None:
        self._notes = OverrunNotes(Path(folder)) if folder else None
        self._changed = 0
        self._found: frozenset[str] = frozenset()

    def fragments(self) -> frozenset[str]:
        """Return their identities."""
        if self._notes is not None and (changed := self._notes.changed()) != self._changed:
            self._changed = changed
            overruns = (each for found in self._notes.all().values() for each in found)
            self._found = frozenset(name for each in overruns for name in each.activity.fragments)
        return self._found


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
