"""A standalone Spark cluster with two workers on this machine gives the same answers as local mode.

Its tasks write all answers of queries without state themselves; in local mode the driver does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.standalone import WORKERS, StandaloneSpark, standalone_spark
from tests.system import waiting
from tests.system.stored_day import Undisturbed, results, start, wait_for, written_by_tasks

pytestmark = [pytest.mark.system, pytest.mark.spark]


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[StandaloneSpark]:
    """Start a master and two workers with a core each."""
    with standalone_spark(tmp_path) as spark:
        yield spark


def test_two_workers_give_the_answers_of_one_process(
    tmp_path: Path, two_workers: StandaloneSpark, undisturbed: Undisturbed
) -> None:
    spread = tmp_path / "spread"
    shutil.copytree(undisturbed.stored, spread)
    with start(spread, two_workers.address, returned=0) as driver:
        wait_for(driver, "done")
    assert results(spread).equals(results(undisturbed.left))
    assert written_by_tasks(spread) > 0 == written_by_tasks(undisturbed.left)
    workers = [log for name in WORKERS for log in (tmp_path / name).glob("app-*/*/stderr")]
    assert len({log.parents[2] for log in workers}) == 2, "both workers have run something"


@pytest.mark.faults
@pytest.mark.long
def test_workers_killed_in_turn_change_no_answer(
    tmp_path: Path, two_workers: StandaloneSpark, undisturbed: Undisturbed
) -> None:
    spread = tmp_path / "spread"
    shutil.copytree(undisturbed.stored, spread)
    with start(spread, two_workers.address, returned=0) as driver:
        wait_for(driver, "running")
        for name in WORKERS:
            _wait_for_commits(spread, 3)
            assert two_workers.executors(name) == 1
            two_workers.kill_worker(name)
            two_workers.start_worker(name)
        assert driver.poll() is None, "it had answered everything before the last kill"
        wait_for(driver, "done")
    assert results(spread).equals(results(undisturbed.left))
    assert written_by_tasks(spread) > 0 == written_by_tasks(undisturbed.left)


def _wait_for_commits(folder: Path, count: int) -> None:
    """Wait until so many more commits of answers have been made."""
    log = folder / "results" / "_delta_log"
    before = len(list(log.glob("*.json")))
    waiting.wait_for(lambda: len(list(log.glob("*.json"))) >= before + count, "no more answers are stored")
