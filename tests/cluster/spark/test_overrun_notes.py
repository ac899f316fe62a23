"""Notes of overruns, and of workers that have ended, on disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.fjord.at_work import NOW, Activity
from cluster.fjord.overruns import NOTED_SECONDS, STRIKES_WITHIN_SECONDS, Overrun, OverrunKind, WorkLimits
from cluster.spark import worker_watch
from cluster.spark.worker_watch import OverrunNotes, own_bytes, watched

WORKER = """
import sys, time
from cluster.fjord.at_work import NOW
from cluster.fjord.overruns import WorkLimits
from cluster.spark.worker_watch import watched

with watched(WorkLimits(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])), "m", again=len(sys.argv) > 4) as stopped:
    if "bomb" in stopped:
        print(stopped["bomb"])
        sys.exit(0)
    NOW.begin("bomb", "Join")
    print("begun", flush=True)
    kept = []
    while True:
        kept.append(bytes(1 << 20)) if sys.argv[2] != "0" else time.sleep(0.01)
"""


@pytest.fixture
def notes(tmp_path: Path) -> OverrunNotes:
    found = OverrunNotes(tmp_path / "workers")
    found.make()
    return found


def worker(notes: OverrunNotes, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(notes.folder), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = child.communicate(timeout=120)
    return child.returncode, output


@pytest.mark.parametrize(
    ("more_bytes", "seconds", "kind"), [(300 << 20, 0.0, OverrunKind.MEMORY), (0, 0.2, OverrunKind.TIME)]
)
def test_a_worker_ends_by_its_limits_and_the_next_one_leaves_out_what_was_at_work(
    notes: OverrunNotes, more_bytes: int, seconds: float, kind: OverrunKind
) -> None:
    memory_bytes = more_bytes and own_bytes() + more_bytes
    assert ended(worker(notes, memory_bytes, seconds)) == (-signal.SIGKILL, "begun\n")
    (found,) = notes.all().get("m", [])
    assert (found.kind, found.activity) == (kind, Activity("m", "bomb", "Join", ("bomb",)))
    code, output = ended(worker(notes, memory_bytes, seconds, "again"))
    assert code == 0
    assert "and was stopped: what came in this micro-batch is missing in its answers" in output
    assert notes.all().get("m", []) == [found], "that the worker ended is no crash besides"
    assert notes.all().get("n", []) == []


def test_a_worker_that_is_killed_is_found_by_the_next_one(notes: OverrunNotes) -> None:
    for crashes in range(1, 4):
        child = worker(notes, 0, 0.0, "again")
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        notes.note_crashes()
        assert len(notes.all().get("m", [])) == crashes - 1, "it is at work"
        child.kill()
        ended(child)
        assert notes.note_crashes() == 1
        assert notes.note_crashes() == 0
        assert [each.kind for each in notes.all().get("m", [])] == [OverrunKind.CRASH] * crashes
        assert notes.has_failed_again() == (crashes > 1)
    code, output = ended(worker(notes, 0, 0.0, "again"))
    assert code == 0
    assert output.startswith("processes that computed it ended in operator Join, and was stopped")


def test_a_worker_that_was_idle_is_no_crash(notes: OverrunNotes) -> None:
    with notes.record() as (path, record):
        NOW.record_in(record)
        NOW.begin("a")
        NOW.rest()
        NOW.record_in(None)
        content = path.read_bytes()
    path.write_bytes(content)
    assert notes.note_crashes() == 0
    assert not path.exists()


def test_workers_that_were_ended_on_purpose_are_forgotten(notes: OverrunNotes) -> None:
    child = worker(notes, 0, 0.0)
    assert child.stdout is not None
    child.stdout.readline()
    child.kill()
    ended(child)
    notes.forget_work()
    assert notes.note_crashes() == 0


def test_an_error_that_has_to_do_with_no_row_counts_as_a_crash(notes: OverrunNotes) -> None:
    program = WORKER.replace('print("begun", flush=True)', "1 / 0")
    for crashes in range(1, 4):
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(notes.folder), "0", "0.0"], stderr=subprocess.PIPE, text=True
        )
        assert "ZeroDivisionError" in child.communicate(timeout=120)[1]
        notes.note_crashes()  # its process has ended, too, but at rest
        assert [each.kind for each in notes.all().get("m", [])] == [OverrunKind.CRASH] * crashes
    code, _ = ended(worker(notes, 0, 0.0))
    assert code == 0


def test_without_a_folder_nothing_is_watched() -> None:
    with watched(WorkLimits(), "m", again=True) as stopped:
        assert stopped == {}


def test_what_takes_long_is_noted_when_it_has_ended(notes: OverrunNotes) -> None:
    program = WORKER.replace("while True:", "for _ in range(100):")
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(notes.folder), "0", "0.0"], stdout=subprocess.PIPE, text=True
    )
    assert ended(child) == (0, "begun\n")
    (worked,) = notes.take_work()
    assert (worked.micro_batch, worked.process, worked.fragments) == ("m", child.pid, ("bomb",))
    assert worked.seconds >= NOTED_SECONDS
    assert notes.take_work() == []


def test_what_was_computed_stands_though_it_cannot_be_noted(notes: OverrunNotes) -> None:
    program = WORKER.replace("while True:", "for _ in range(100):") + 'print("done")\n'
    (notes.folder / "worked").rmdir()  # as on a disk that is full
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(notes.folder), "0", "0.0"], stdout=subprocess.PIPE, text=True
    )
    assert ended(child) == (0, "begun\ndone\n")


def test_old_notes_go(notes: OverrunNotes) -> None:
    overrun = Overrun(OverrunKind.TIME, Activity("m", "a", None, ("a",)), "1 s")
    notes.note(overrun)
    (path,) = (notes.folder / "overruns").iterdir()
    at = path.stat().st_mtime
    notes.forget_old(at + STRIKES_WITHIN_SECONDS)
    assert notes.all() == {"m": [overrun]}
    notes.forget_old(at + STRIKES_WITHIN_SECONDS + 1)
    assert notes.all() == {}


def test_notes_that_cannot_be_read_are_passed_over(notes: OverrunNotes) -> None:
    (notes.folder / "overruns" / "m.1.json").write_bytes(b"{")
    (notes.folder / "at-work" / "1").write_bytes(os.urandom(64))
    assert notes.all() == {}
    assert notes.note_crashes() == 0


def test_waits_for_a_core_and_pauses_do_not_count_as_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waited = [0.0], [0.0]
    monkeypatch.setattr(worker_watch.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(worker_watch, "_waited_for_cores_seconds", lambda: waited[0])
    clock = worker_watch.WorkClock()
    now[0] += worker_watch.UNREAD_SECONDS
    clock.worked_seconds()
    for passes, waits, works in [(0.05, 0.0, 0.05), (0.05, 0.02, 0.03), (0.05, 0.3, 0.0), (3600.0, 0.0, 0.1)]:
        now[0] += passes
        waited[0] += waits
        assert clock.worked_seconds() == pytest.approx(works)


def test_short_parts_read_no_waits_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    now, reads = [0.0], [0]

    def waited() -> float:
        reads[0] += 1
        return 100.0 * reads[0]

    monkeypatch.setattr(worker_watch.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(worker_watch, "_waited_for_cores_seconds", waited)
    clock = worker_watch.WorkClock()
    for _ in range(50):
        clock.begin()
        for _ in range(3):
            now[0] += 0.05
            assert clock.worked_seconds() == pytest.approx(0.05)
    assert reads == [0]
    now[0] += 0.06
    assert clock.worked_seconds() == pytest.approx(0.06), "of what was waited before the first reading nothing is known"
    now[0] += 0.05
    assert clock.worked_seconds() == 0.0
    assert reads == [2]
