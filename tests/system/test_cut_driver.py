"""The power of a Spark driver is cut: the results table is that of an undisturbed run, none missing and none doubled.

``make test`` leaves them to ``make test-power-cuts`` and ``make test-faults``, which asks for twenty cuts at random
instants (FJORD_KILLS, FJORD_SEED).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.stored_day import Undisturbed, results, start, wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

CUTS = int(os.environ.get("FJORD_KILLS", "1"))
SEED = int(os.environ.get("FJORD_SEED", "1"))
SYNCS = 300
"""A run makes more."""


def run_until_cut(folder: Path, after: Path, instant: str, seed: int) -> None:
    """Answer what is stored in one folder until the power is cut, and leave another one."""
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.system.cut_driver", str(folder), str(after), instant, str(seed)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    with driver:
        try:
            wait_for(driver, "cut")
        finally:
            os.killpg(driver.pid, signal.SIGKILL)


def check(folder: Path, undisturbed: Undisturbed) -> None:
    """Finish what was begun, and compare."""
    with start(folder) as driver:
        wait_for(driver, "done")
    expected, found = results(undisturbed.left), results(folder)
    assert found.equals(expected), (found.join(expected, on=found.columns, how="anti"), found.height, expected.height)


@pytest.mark.parametrize("host", ["stateful", "stateless"])
def test_the_last_offset_is_lost(tmp_path: Path, undisturbed: Undisturbed, host: str) -> None:
    shutil.copytree(undisturbed.stored, tmp_path / "disturbed")
    run_until_cut(tmp_path / "disturbed", tmp_path / "after", f"{host}/offsets/5", 0)
    offsets = {path.name for path in (tmp_path / "after" / "checkpoint" / host / "offsets").iterdir()}
    assert "4" in offsets
    assert "5" not in offsets
    check(tmp_path / "after", undisturbed)


def test_cut_off_at_random_instants_it_answers_as_if_undisturbed(tmp_path: Path, undisturbed: Undisturbed) -> None:
    dice = random.Random(SEED)
    before = tmp_path / "0"
    shutil.copytree(undisturbed.stored, before)
    for number in range(1, CUTS + 1):
        run_until_cut(before, tmp_path / str(number), str(dice.randrange(1, 2 + SYNCS // CUTS)), SEED + number)
        before = tmp_path / str(number)
    check(before, undisturbed)
