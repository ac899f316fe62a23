"""Tests with real processes: a parent that is killed, and a child that ends with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protocols.child_process import ending_with_this_process

PARENT = """
import subprocess, sys, time
from protocols.child_process import ending_with_this_process
child = subprocess.Popen(ending_with_this_process([sys.executable, "-c", "import time; time.sleep(60)"]))
print(child.pid, flush=True)
time.sleep(60)
"""


def is_running(process_id):
    """Whether a process lives; one that ended and waits for its parent to take notice does not."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_with_its_parent(sent):
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.send_signal(sent)
        parent.wait(10)
    deadline = time.monotonic() + 10
    while is_running(child) and time.monotonic() < deadline:
        os.sched_yield()
    assert not is_running(child)


def test_the_program_gets_its_arguments_and_gives_its_exit_code():
    program = [sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(7)", "a b", "--", "c"]
    result = subprocess.run(ending_with_this_process(program), capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (7, "['a b', '--', 'c']\n")


def test_a_missing_program_is_named():
    result = subprocess.run(ending_with_this_process(["no-such-program"]), capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (127, "cannot start no-such-program: No such file or directory\n")
