"""An engine on Spark that runs again and again, each time until the power is cut, in one Java process.

    stored ──> 0 ── cut ──> 1 ── cut ──> 2 ...      each folder is what a cut left of the last one (tests/power_cuts)

A new process per run is not needed: each run has a folder of its own, and Spark and its workers keep their state by
folder and run. So only the folder changes, and a cut takes seconds less.
"""

from __future__ import annotations

import random
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Timer
from typing import TYPE_CHECKING

import pytest

from cluster.spark.hosting import RunningEngine, start_engine
from cluster.spark.source import SourceOptions
from cluster.storage.results_table import ResultsTable
from tests.power_cuts.disk import RecordedDisk
from tests.system.fjord_driver import HISTORY_ROWS, MAX_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SYNCS = 300
"""About the number of syncs in which the stored day is answered."""
IN_THE_START = 0.2
"""How many runs end while they start."""
POLLING_SECONDS = 0.02
MOST_STARTS = 20


class PowerCutError(OSError):
    """A sync after the power was cut."""


@dataclass(frozen=True, slots=True)
class Instant:
    """The instant at which the power is cut.

    Parameters
    ----------
    syncs
        When this many paths have been synced, or are about to be.
    path
        When a path with this end is about to be synced.
    later_seconds
        This much later, in the middle of other work.
    """

    syncs: int = 0
    path: str = ""
    later_seconds: float = 0.0


def draw(dice: random.Random, cuts: int) -> Instant:
    """Return an instant such that about `cuts` runs answer the whole day; half of the cuts are at no sync."""
    later = dice.choice([0.0, dice.uniform(0.0, 0.5)])
    if dice.random() < IN_THE_START:
        return Instant(dice.randrange(1, 9), later_seconds=later)
    return Instant(dice.randrange(1, 2 + 4 * SYNCS // cuts), later_seconds=later)


class _Power:
    """Cuts the power of a folder at an instant, and leaves another folder."""

    def __init__(self, folder: Path, into: Path, instant: Instant, dice: random.Random | None) -> None:
        self.is_cut = Event()
        self._into = into
        self._instant = instant
        self._dice = dice
        self._seen = 0
        self._lock = Lock()
        self.disk = RecordedDisk(folder, self._at, without=frozenset({"spark"}))

    def _at(self, path: Path) -> None:
        if self.is_cut.is_set():
            raise PowerCutError("the power is cut")
        with self._lock:
            self._seen += 1
            wanted = str(path).endswith(self._instant.path) if self._instant.path else self._seen == self._instant.syncs
            if not wanted:
                return
            if self._instant.later_seconds:
                Timer(self._instant.later_seconds, self.cut).start()
                return
        self.cut()
        raise PowerCutError("the power is cut")

    def cut(self) -> None:
        """Cut it now, once."""
        with self._lock:
            if not self.is_cut.is_set():
                self.disk.cut(self._into, self._dice)
                self.is_cut.set()


def begin(spark: SparkSession, folder: Path) -> RunningEngine:
    """Start an engine on a folder, as a new process does."""
    return start_engine(
        spark,
        options=SourceOptions(
            str(folder / "streams"), str(folder / "plans"), 4, 2, MAX_ROWS, history_rows=HISTORY_ROWS
        ),
        checkpoint=folder / "checkpoint",
        results=ResultsTable(str(folder / "results"), "driver"),
        on_commit=lambda: None,
        run=uuid.uuid4().hex,
    )


def live_until_cut(spark: SparkSession, folder: Path, into: Path, instant: Instant, dice: random.Random | None) -> bool:
    """Answer what is stored in a folder until the power is cut; return False if all was answered before."""
    power = _Power(folder, into, instant, dice)
    with pytest.MonkeyPatch.context() as patch:
        power.disk.record(patch)
        try:
            _keep_running(spark, folder, lambda fjord: power.is_cut.is_set() or _is_idle(fjord), power.is_cut)
        finally:
            was_cut = power.is_cut.is_set()
            power.is_cut.set()
            power.disk.close()
    if was_cut:
        shutil.rmtree(folder, ignore_errors=True)  # threads of this run may still write there
    return was_cut


def finish(spark: SparkSession, folder: Path) -> None:
    """Answer the rest, undisturbed."""
    _keep_running(spark, folder, _is_answered, Event())


def logged(folder: Path) -> int:
    """Return how many micro-batches of either host are logged."""
    return sum(path.name.isdigit() for path in folder.glob("checkpoint/*/offsets/*"))


def _keep_running(spark: SparkSession, folder: Path, is_over: Callable[[RunningEngine], bool], is_cut: Event) -> None:
    """Run an engine, and restart it if it fails, as the cluster does: a busy machine starts some workers too late."""
    reason: str | None = None
    for _ in range(MOST_STARTS):
        fjord = None
        try:
            fjord = begin(spark, folder)
            while fjord.active and not is_over(fjord):
                time.sleep(POLLING_SECONDS)
            if fjord.active or is_cut.is_set():
                return
            reason = fjord.failure
        except Exception as error:  # noqa: BLE001 - whatever Spark or a cut raises
            if is_cut.is_set():
                return
            reason = str(error)
        finally:
            for query in fjord.queries.values() if fjord else spark.streams.active:
                query.stop()
    raise AssertionError(reason)


def _is_answered(fjord: RunningEngine) -> bool:
    fjord.wait_until_idle()
    return True


def _is_idle(fjord: RunningEngine) -> bool:
    return all(str(query.status["message"]).startswith("Waiting for data") for query in fjord.queries.values())
