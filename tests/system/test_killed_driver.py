"""The Spark driver is killed at random moments, again and again: the results table is that of an undisturbed run.

In the disturbed runs tasks write all answers of queries without state; in the undisturbed one the driver does.

One kill by default; ``make test-faults`` asks for twenty (FJORD_KILLS).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import polars as pl
import pytest

from tests.system.stored_day import (
    EARLY,
    QUERIES,
    ROWS,
    STEP_US,
    Undisturbed,
    early_rows,
    final_rows,
    results,
    start,
    wait_for,
    written_by_tasks,
)  # fmt: skip

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults]

KILLS = int(os.environ.get("FJORD_KILLS", "1"))


def assert_history(folder: Path, answers: pl.DataFrame) -> None:
    """Compare queries with history with the stored rows, and with a query that ran from the first tuple on."""
    since = 45 * ROWS * STEP_US - 3_000_000
    stored = pl.read_delta(str(folder / "streams" / "readings")).filter(pl.col("x") < 50)
    wanted = stored.filter(pl.col("fjord_start_us") >= since).select("fjord_start_us", "k", "x").sort(pl.all())
    rows = answers.filter(pl.col("query") == "q8")
    decoded = rows["row"].str.json_decode(pl.Struct({"k": pl.Int64, "x": pl.Int64})).struct.unnest()
    assert rows.select(pl.col("start_us").alias("fjord_start_us")).hstack(decoded).sort(pl.all()).equals(wanted)
    totals = [answers.filter(pl.col("query") == name).select("start_us", "end_us", "row") for name in ("q3", "q9")]
    assert totals[0].sort(pl.all()).equals(totals[1].sort(pl.all()))


def test_killed_again_and_again_it_answers_as_if_undisturbed(tmp_path: Path, undisturbed: Undisturbed) -> None:
    disturbed = tmp_path / "disturbed"
    shutil.copytree(undisturbed.stored, disturbed)
    dice = random.Random()
    killed = 0
    for _ in range(KILLS):
        with start(disturbed, returned=0) as driver:
            wait_for(driver, "running")
            time.sleep(dice.uniform(0.1, max(0.5, 0.8 * undisturbed.seconds / (KILLS + 1))))
            killed += driver.poll() is None
            os.killpg(driver.pid, signal.SIGKILL)
    with start(disturbed, returned=0) as driver:
        wait_for(driver, "done")
    assert written_by_tasks(disturbed) > 0 == written_by_tasks(undisturbed.left)
    assert not list(disturbed.glob("results/_fjord_unnumbered/*/*")), "what has got its numbers is removed"
    assert killed > 0, "every run had ended before it was killed"
    expected, found = results(undisturbed.left), results(disturbed)
    assert {EARLY, *expected["query"].unique()} == {f"q{number}" for number in range(1, len(QUERIES) + 1)}
    for folder in (undisturbed.left, disturbed):
        assert early_rows(folder).equals(final_rows(folder))
    assert_history(undisturbed.stored, expected)
    assert found.equals(expected), (found.join(expected, on=found.columns, how="anti"), found.height, expected.height)
