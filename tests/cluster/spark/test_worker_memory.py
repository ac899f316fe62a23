"""What a worker keeps, in a process that has little: where all tests are loaded, each collection takes long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKS = Path(__file__).parent / "worker_memory_checks.py"


def test_memory_is_set_aside() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CHECKS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


ARRAYS = """\
import resource, sys
import numpy as np
from cluster.spark.worker_memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def batch():
    arrays = [np.ones(500_000) for _ in range(12)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
found = [batch() for _ in range(6)]
print(found[-1] - found[-2])
"""


def test_memory_that_was_freed_is_not_asked_for_again() -> None:
    """Else the kernel gives each page of 12 arrays of 4 MB anew in each micro-batch."""
    faults = {
        how: int(subprocess.run([sys.executable, "-c", ARRAYS, how], capture_output=True, text=True, check=True).stdout)
        for how in ("kept", "not")
    }
    assert faults["kept"] < 100
    assert faults["not"] > 1_000
