"""A standalone Spark cluster with two workers on this machine gives the same answers as local mode."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.standalone import standalone_spark
from tests.system.stored_day import Undisturbed, results, start, wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark]


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[str]:
    """Start a master and two workers with a core each; return the master's address."""
    with standalone_spark(tmp_path) as address:
        yield address


def test_two_workers_give_the_answers_of_one_process(
    tmp_path: Path, two_workers: str, undisturbed: Undisturbed
) -> None:
    spread = tmp_path / "spread"
    shutil.copytree(undisturbed.stored, spread)
    with start(spread, two_workers) as driver:
        wait_for(driver, "done")
    assert results(spread).equals(results(undisturbed.left))
    workers = [log for name in ("worker-1", "worker-2") for log in (tmp_path / name).glob("app-*/*/stderr")]
    assert len({log.parents[2] for log in workers}) == 2, "both workers have run something"
