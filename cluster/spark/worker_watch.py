"""Watches what fragments take of a worker of Spark, ends it if one takes too much, and leaves a note of that.

**Overruns of Spark's workers as files, which the next worker and the cluster read.**

overruns/<number>.json                   an overrun at-work/<process>                        what a worker computes; it
is locked for as long as the worker lives worked/<number>.json                     what a fragment has taken of a part
of a micro-batch, if that was much

A worker computes in threads of libraries, which nothing can interrupt but the end of the process. Spark then runs the
task again, in another worker; that one finds the note, and leaves the fragment out (:mod:`cluster.fjord.overruns`).
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Final

import msgspec

from cluster.fjord.at_work import NOW, RECORD_BYTES, Activity, read_record
from cluster.fjord.overruns import (
    NOTED_SECONDS,
    STRIKES_WITHIN_SECONDS,
    Overrun,
    OverrunKind,
    Worked,
    WorkLimits,
    WorkMeter,
    stopped_by,
)

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


LOOK_SECONDS: Final = 0.05
"""Between two measurements a process grows by some hundred megabytes at most."""
MOST_SECONDS: Final = 2 * LOOK_SECONDS
"""A pause counts as no more: the whole machine, or this process, was stopped."""
UNREAD_SECONDS: Final = 0.2
"""For so long what threads waited for a core is not read."""
_STATM: Final = Path("/proc/self/statm")
_TASKS: Final = Path("/proc/self/task")


def own_bytes() -> int:
    """Return how much memory this process takes besides files; 0 where the system does not tell."""
    try:
        _, resident, shared, *_ = map(int, _STATM.read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def is_run_again() -> bool:
    """Return whether the task of Spark that this process runs has been begun before."""
    from pyspark import TaskContext  # noqa: PLC0415 - what watches needs nothing of Spark

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


class WorkClock:
    """Measures for how long a process has worked: without pauses, and without the time in which it waited for a core.

    Other programs, and the process being stopped, do not lengthen it. A wait for anything else counts: a function of a
    user computes in a process of its own. What its threads waited is read from a file for each of them, so at the
    beginning of a part of a micro-batch it is not: most are over before that, and far from any limit.
    """

    def __init__(self) -> None:
        self._at = self._began = time.monotonic()
        self._waited: float | None = None

    def begin(self) -> None:
        """Note that a part of a micro-batch begins."""
        self._began = time.monotonic()

    def worked_seconds(self) -> float:
        """Return the time since this was called last."""
        at = time.monotonic()
        passed, self._at = min(at - self._at, MOST_SECONDS), at
        before, self._waited = self._waited, None
        if at - self._began < UNREAD_SECONDS:
            return max(0.0, passed)
        self._waited = _waited_for_cores_seconds()
        return max(0.0, passed - max(0.0, self._waited - before)) if before is not None else max(0.0, passed)


def _waited_for_cores_seconds() -> float:
    """Return for how long threads of this process have been ready to run and did not; 0 where that is not known."""
    found = 0
    for task in _TASKS.glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # a thread has just ended
            found += int(task.read_text().split()[1])
    return found / 1e9


class WorkerWatch:
    """Watches this process while it computes a part of a micro-batch.

    Parameters
    ----------
    limits
        What fragments may take; it has a folder.
    """

    def __init__(self, limits: WorkLimits) -> None:
        self._notes = OverrunNotes(Path(limits.folder))
        self._meter = WorkMeter(limits)
        self._measuring = threading.Lock()
        self._busy = threading.Event()
        self._clock = WorkClock()
        self._known: dict[str, list[Overrun]] = {}
        self._changed = 0
        """What all notes were like when they were read last."""
        self._open = ExitStack()
        self._open.callback(NOW.record_in, None)
        self._file, record = self._open.enter_context(self._notes.record())
        NOW.record_in(record)
        threading.Thread(target=self._watch, name="worker watch", daemon=True).start()

    @contextmanager
    def watching(self, micro_batch: str, *, again: bool) -> Iterator[Mapping[str, str]]:
        """Watch while a part of a micro-batch is computed inside; parameters as of :func:`watched`.

        Yields
        ------
        Mapping
            What is not to be computed, by owner: why, in words.
        """
        with self._measuring:
            self._meter.begin()
            self._clock.begin()
        NOW.micro_batch = micro_batch
        if again:
            self._notes.note_crashes()
            self._changed = 0
        if (changed := self._notes.changed()) != self._changed:
            self._known, self._changed = self._notes.all(), changed
        stopped = stopped_by(self._known.get(micro_batch, ()))
        self._busy.set()
        try:
            yield stopped
        except Exception:
            if (activity := NOW.now()).owner is not None:
                self._notes.note(Overrun(OverrunKind.CRASH, activity))
            raise
        finally:
            self._busy.clear()
            NOW.rest()
            with self._measuring:
                heavy = self._meter.heavy(NOTED_SECONDS)
            with suppress(OSError):  # a full disk: what was computed stands
                for activity, seconds in heavy:
                    self._notes.note_work(Worked(micro_batch, os.getpid(), activity.fragments, seconds))

    def _watch(self) -> None:
        while self._busy.wait():
            with self._measuring:
                overrun = self._meter.measured(NOW.now(), self._clock.worked_seconds(), own_bytes())
            if overrun is not None and self._busy.is_set():
                with suppress(OSError):  # a full disk: it ends all the same, and counts as a crash
                    self._notes.note(overrun)
                self._file.unlink(missing_ok=True)  # the end of this process is explained
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(LOOK_SECONDS)


_watches: dict[WorkLimits, WorkerWatch] = {}
"""That of this process."""


def note_too_large(limits: WorkLimits, fragments: Mapping[str, str]) -> None:
    """Note fragments that were stopped in the micro-batch at hand as they keep too much, and why."""
    for fragment, reason in fragments.items() if limits.folder else ():
        activity = Activity(NOW.micro_batch, fragment, None, (fragment,))
        OverrunNotes(Path(limits.folder)).note(Overrun(OverrunKind.STATE, activity, reason))


@contextmanager
def watched(limits: WorkLimits, micro_batch: str, *, again: bool) -> Iterator[Mapping[str, str]]:
    """Watch this process while it computes a part of a micro-batch; as :meth:`WorkerWatch.watching`.

    Parameters
    ----------
    limits
        What fragments may take; without a folder nothing is watched.
    micro_batch
        The micro-batch.
    again
        Whether this part has been begun before: then the processes that did it are looked for.
    """
    if not limits.folder:
        yield {}
        return
    if limits not in _watches:
        _watches[limits] = WorkerWatch(limits)
    with _watches[limits].watching(micro_batch, again=again) as stopped:
        yield stopped
