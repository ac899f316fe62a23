"""The power of a Spark driver is cut: the results table is that of an undisturbed run, none missing and none doubled.

``make test-power-cuts`` and ``make test-faults`` run them, not ``make test``: sequences of sixteen cuts, each on a
fresh copy of the stored day (FJORD_SPARK_CUTS, FJORD_SEED). Each sequence is printed.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.system.cut_lives import Instant, draw, finish, live_until_cut, logged
from tests.system.stored_day import Undisturbed, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

CUTS = int(os.environ.get("FJORD_SPARK_CUTS", "20"))
SEED = int(os.environ.get("FJORD_SEED", "1"))
CUTS_A_STORY = 16
"""Runs on one folder, one after the other; each answers a part of the day."""


def check(spark: SparkSession, folder: Path, undisturbed: Undisturbed) -> None:
    """Answer the rest, and compare."""
    finish(spark, folder)
    expected, found = results(undisturbed.left), results(folder)
    assert found.equals(expected), (found.join(expected, on=found.columns, how="anti"), found.height, expected.height)


@pytest.mark.parametrize("host", ["stateful", "stateless"])
def test_the_last_offset_is_lost(spark: SparkSession, tmp_path: Path, undisturbed: Undisturbed, host: str) -> None:
    shutil.copytree(undisturbed.stored, tmp_path / "disturbed")
    instant = Instant(path=f"{host}/offsets/5")
    assert live_until_cut(spark, tmp_path / "disturbed", tmp_path / "after", instant, None)
    offsets = {path.name for path in (tmp_path / "after" / "checkpoint" / host / "offsets").iterdir()}
    assert "4" in offsets
    assert "5" not in offsets
    check(spark, tmp_path / "after", undisturbed)


def sequences() -> list[tuple[int, int]]:
    """Return seeds, and the number of cuts in each sequence."""
    whole, rest = divmod(CUTS, CUTS_A_STORY)
    sizes = [CUTS_A_STORY] * whole + ([rest] if rest else [])
    return [(SEED + number, size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(("seed", "cuts"), sequences())
def test_cut_off_at_random_instants_it_answers_as_if_undisturbed(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Undisturbed,
    capsys: pytest.CaptureFixture[str],
    seed: int,
    cuts: int,
) -> None:
    began, dice, logs = time.monotonic(), random.Random(seed), list[int]()
    copies, here = 0, None
    while len(logs) < cuts:
        if here is None:
            here, copies = tmp_path / f"copy-{copies}", copies + 1
            shutil.copytree(undisturbed.stored, here)
        into = tmp_path / f"after-{len(logs) + 1}"
        if live_until_cut(spark, here, into, draw(dice, CUTS_A_STORY), random.Random(f"{seed} {len(logs)}")):
            here = into
            logs.append(logged(here))
        else:  # answered to its end: the next cuts are in another copy
            check(spark, here, undisturbed)
            here = None
    if here is not None:
        check(spark, here, undisturbed)
    with capsys.disabled():
        print(  # noqa: T201 - for make
            f"\nseed {seed}: {len(logs)} cuts in {copies} copies, {time.monotonic() - began:.0f} s; "
            f"micro-batches logged at the cuts: {' '.join(map(str, logs))}"
        )
