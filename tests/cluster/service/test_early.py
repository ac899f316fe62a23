"""What a cluster loads starts no thread, so that Spark's Python processes can be forked from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

EARLY = """\
import os, sys, psutil
from cluster.service.running.early import fork, forking_place, load
place = forking_place(sys.argv[1])
if place is not None:
    load()
    fork(place)
    assert os.environ["PYSPARK_PYTHON"] == str(place.program)
print([each.name() for each in psutil.Process().children()], "cluster.service.server" in sys.modules)
"""


@pytest.mark.parametrize(
    ("master", "variables", "printed"),
    [
        ("local[2]", {}, "['fjord-parent'] True\n"),
        ("spark://127.0.0.1:7077", {}, "[] False\n"),  # other machines have no parent
        ("local[2]", {"PYSPARK_PYTHON": "/elsewhere/python"}, "[] False\n"),
    ],
)
def test_processes_are_forked_where_spark_runs_on_this_machine(
    master: str, variables: dict[str, str], printed: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EARLY, master],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT, env={"PATH": "/usr/bin:/bin", **variables},
    )  # fmt: skip
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", printed)
