"""A test that hangs fails with the stacks of what it waits for, and those behind it are run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIGURED = f"-c {ROOT / 'pyproject.toml'} --rootdir={ROOT} -q -p no:cacheprovider -p tests.conftest".split()
AWAITS = """
import asyncio

async def test_hangs():
    await asyncio.Event().wait()

def test_behind():
    pass
"""
LOCKED = """
import threading

def test_hangs():
    lock = threading.Lock()
    lock.acquire()
    waiting = threading.Thread(target=lock.acquire, name="waits for the lock", daemon=True)
    waiting.start()
    waiting.join()

def test_behind():
    pass
"""


def run(folder, text, *options):
    (folder / "test_it.py").write_text(text)
    arguments = [sys.executable, "-m", "pytest", *CONFIGURED, *options, "test_it.py"]
    return subprocess.run(
        arguments, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        timeout=240, # no test ends by this: it is there for the day on which the limit tried here is gone
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"), [(AWAITS, "await asyncio.Event().wait()"), (LOCKED, "waits for the lock")], ids=["await", "lock"]
)
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "with_xdist"])
def test_a_test_that_hangs_fails_and_the_next_one_is_run(tmp_path, text, shown, workers):
    found = run(tmp_path, text, "--timeout=0.5", *workers)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "1 failed, 1 passed" in found.stdout
    assert "Timeout (>0.5s)" in found.stdout
    assert shown in found.stdout + found.stderr


def test_every_test_has_a_limit_and_those_of_faults_a_longer_one(request):
    from tests.conftest import LONG_SECONDS

    assert 0 < float(request.config.getini("timeout")) <= 300
    for item in request.session.items:
        slow = item.get_closest_marker("long") or item.get_closest_marker("faults")
        limit = item.get_closest_marker("timeout")
        assert (limit is not None and limit.args == (LONG_SECONDS,)) if slow else True
