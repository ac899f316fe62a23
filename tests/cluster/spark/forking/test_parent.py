"""A loaded parent forks what Spark wants to run in Python; forks last as long as their stand-ins and vice versa."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cluster.spark.forking import stand_in
from cluster.spark.forking.parent import ForkingPlace
from protocols.child_process import SECRET_VARIABLES
from tests.cluster.spark.forking.forked_modules import ROOT, SECONDS, STARTER, Starter, started

POOL = """\
import json, os, polars as pl
frame = pl.DataFrame({"key": [1, 2, 3] * 100_000}).lazy().group_by("key").len().collect()
print(json.dumps([pl.thread_pool_size(), frame.height]))
"""


def ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, though its parent may not have noticed."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended in between
        return True


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    with started(tmp_path, before="import colorsys") as made:
        yield made


def test_a_module_runs_in_a_fork_as_it_would_in_python(starter: Starter) -> None:
    found = starter.probe("one", "two words", variables={"GIVEN": "a=b"}, text="typed")
    assert (found["arguments"], found["input"], found["folder"]) == (["one", "two words"], "typed", str(starter.folder))
    assert found["variables"]["GIVEN"] == "a=b"
    assert (found["name"], found["main"]) == ("__main__", "probe")


def test_a_fork_has_what_its_parent_has_loaded_and_collects_none_of_it(starter: Starter) -> None:
    found = starter.probe()
    assert found["parent"] == starter.parent.pid
    assert found["loaded"]
    assert found["frozen"] > 1_000


def test_neither_the_parent_nor_a_fork_has_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRET_VARIABLES:
        monkeypatch.setenv(name, "hidden!")
    monkeypatch.setenv("KEPT", "shown")
    with started(tmp_path) as made, made.sleeping() as (_, fork):
        assert made.process.pid != made.parent.pid
        for process in (made.parent, fork):
            kernel_shows = process.environ()
            assert "hidden!" not in kernel_shows.values()
            assert kernel_shows["KEPT"] == "shown"


def test_forks_at_once_get_their_own_answers(starter: Starter) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: starter.probe(str(number), text=str(number)), range(12)))
    assert [(each["arguments"], each["input"]) for each in found] == [([str(n)], str(n)) for n in range(12)]
    assert len({each["process"] for each in found}) == 12


def test_an_error_is_shown_as_python_shows_it(starter: Starter) -> None:
    (starter.folder / "faulty.py").write_text("raise KeyError('here')")
    found = starter.run("faulty")
    assert found.returncode == 1
    assert "KeyError: 'here'" in found.stderr
    assert "faulty.py" in found.stderr


def test_a_stand_in_that_is_told_to_end_ends_its_fork(starter: Starter) -> None:
    with starter.sleeping() as (stand_in, fork):
        stand_in.terminate()
        assert stand_in.wait(SECONDS) in (128 + 15, -15), "the latter if it ends before it knows its fork"
        wait_for(lambda: ended(fork))


def test_the_fork_of_a_killed_stand_in_ends(starter: Starter) -> None:
    with starter.sleeping() as (stand_in, fork):
        stand_in.kill()
        wait_for(lambda: ended(fork))
    assert starter.probe()["parent"] == starter.parent.pid


def test_a_stand_in_ends_like_its_fork(starter: Starter) -> None:
    with starter.sleeping() as (stand_in, fork):
        fork.kill()
        assert stand_in.wait(SECONDS) == 128 + 9


def test_forks_outlive_their_parent_and_others_are_python(starter: Starter) -> None:
    with starter.sleeping() as (stand_in, fork):
        starter.parent.kill()
        found = starter.probe()
        assert not found["loaded"]
        assert found["parent"] not in (starter.parent.pid, starter.process.pid)
        assert stand_in.poll() is None
        assert fork.is_running()
        fork.kill()
        assert stand_in.wait(SECONDS) == 1


def test_python_runs_while_the_parent_cannot_fork(tmp_path: Path) -> None:
    failing = (
        "import colorsys, os; real, calls = os.fork, []\n"
        "def fork():\n"
        "    calls.append(None)\n"
        "    if len(calls) == 2: raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "    return real()\n"
        "os.fork = fork"
    )
    with started(tmp_path, before=failing) as made:
        assert not made.probe()["loaded"]
        assert made.probe()["parent"] == made.parent.pid


def test_python_runs_after_the_parent_has_failed(tmp_path: Path) -> None:
    failing = (
        "import colorsys, os; real, calls = os.fork, []\n"
        "def fork():\n"
        "    calls.append(None)\n"
        "    if len(calls) == 2: raise RuntimeError\n"
        "    return real()\n"
        "os.fork = fork"
    )
    with started(tmp_path, before=failing) as made:
        for _ in range(2):
            assert not made.probe()["loaded"]


def test_half_a_request_leaves_no_descriptor_open(starter: Starter) -> None:
    starter.probe()  # it serves
    before = starter.parent.num_fds()
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(starter.program.parent / "parent"))
        socket.send_fds(link, [b"\0\0\0\1"], [0, 1, 2])
    starter.probe()
    wait_for(lambda: starter.parent.num_fds() <= before)


def test_no_place_is_made_where_programs_may_not_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)  # as on a file system that is mounted with noexec
    assert ForkingPlace.make() is None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    assert ForkingPlace.make() is None
    assert not list(tmp_path.iterdir())


def test_what_is_no_module_runs_in_python(starter: Starter) -> None:
    command = [str(starter.program), "-c", "import sys; print(*sys.argv[1:], 'colorsys' in sys.modules)", "given"]
    assert subprocess.check_output(command, text=True) == "given False\n"


def test_the_question_for_the_version_needs_no_python() -> None:
    asked = [sys.executable, "-I", "-S", stand_in.__file__, "/no/parent", "/no/python", "-c", stand_in.VERSION_QUESTION]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    assert answer == f"{sys.version_info[0]}.{sys.version_info[1]}\n"
    assert answer == subprocess.run([sys.executable, *asked[-2:]], capture_output=True, text=True, check=True).stdout


def test_the_parent_ends_with_the_process_that_started_it_and_leaves_no_file(starter: Starter) -> None:
    with starter.sleeping():
        starter.process.kill()
        wait_for(lambda: not starter.program.parent.exists())
        wait_for(lambda: ended(starter.parent))


JAVA = """\
import subprocess, sys
with subprocess.Popen({command}, stdout=subprocess.PIPE, text=True) as stand_in:
    print(stand_in.stdout.readline(), end="", flush=True)
    sys.stdin.read()
"""
"""What starts a stand-in; it says which worker runs then."""


@contextmanager
def busy_worker(starter: Starter) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """Run what never looks up, from a process in place of Java; yield that, and the daemon with its worker."""
    with subprocess.Popen(
        [sys.executable, "-c", JAVA.format(command=starter.command("forking"))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=starter.folder,
        env={**os.environ, "PYTHONPATH": str(starter.folder)},
    ) as java:  # fmt: skip
        assert java.stdout is not None
        worker = psutil.Process(int(java.stdout.readline()))
        daemon = worker.parent()
        assert daemon is not None
        try:
            yield java, [daemon, worker]
        finally:
            for each in (java, worker, daemon):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()


@pytest.mark.parametrize("parent_killed", [False, True])
def test_busy_workers_end_with_java(starter: Starter, *, parent_killed: bool) -> None:
    with busy_worker(starter) as (java, busy):
        if parent_killed:
            starter.parent.kill()
        java.kill()
        wait_for(lambda: all(ended(each) for each in busy))


def test_busy_workers_end_with_the_process_that_started_the_parent(starter: Starter) -> None:
    with busy_worker(starter) as (java, busy):
        starter.process.kill()
        wait_for(lambda: all(ended(each) for each in busy))
        java.kill()


def test_a_busy_worker_ends_with_its_daemon(starter: Starter) -> None:
    with busy_worker(starter) as (_, (daemon, worker)):
        daemon.kill()
        wait_for(lambda: ended(worker))


def test_a_request_that_is_none_harms_no_other(starter: Starter) -> None:
    for sent in (b"", b"\xff\xff\xff\xff", b"\0\0\0\1"):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(starter.program.parent / "parent"))
            link.sendall(sent)
    assert starter.probe()["parent"] == starter.parent.pid


def test_descriptors_are_closed_in_the_parent_and_in_forks(tmp_path: Path) -> None:
    before = "import os; shared, given = os.pipe(); parts = [0]"
    (tmp_path / "opened.py").write_text("import os; print(*sorted(os.listdir('/proc/self/fd'), key=int)[:-1])")
    with started(tmp_path, before=before, arguments="closing=[shared, given]") as made:
        assert made.run("opened").stdout.split() == ["0", "1", "2"]
        assert not any("pipe" in each.path for each in made.parent.open_files())


def test_a_process_with_a_thread_is_not_forked(tmp_path: Path) -> None:
    before = "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
    ended = subprocess.run(
        [sys.executable, "-c", STARTER.format(before=before, arguments="")],
        input="", capture_output=True, text=True, timeout=SECONDS, check=True, cwd=ROOT,
    )  # fmt: skip
    assert ended.stdout.endswith(" None\n")
    assert "Spark's Python processes are not forked" in ended.stdout


def test_polars_has_as_many_threads_in_a_fork_as_its_environment_says(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    with started(tmp_path, before="import polars as pl", arguments="pl.Config.reload_env_vars") as made:
        for threads in (1, 3):
            found = made.run("pool", variables={"POLARS_MAX_THREADS": str(threads)})
            assert found.stdout == f"[{threads}, 3]\n", found.stderr
