"""The two Spark queries as one engine, without Spark."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from cluster.errors import ClusterError
from cluster.physical.nodes import Host
from cluster.spark import hosting
from cluster.spark.checkpoint_files import CheckpointFiles
from cluster.spark.envelopes import OUTPUT_SCHEMA
from cluster.spark.hosting import EngineState, RunningEngine
from cluster.storage.results_table import ResultsTable
from cluster.storage.unnumbered_answers import UnnumberedFolder

WAITING, WORKING = "Waiting for data to arrive", "Processing new data"


@dataclass
class FakeQuery:
    """Reports the messages of a test; the last one is repeated."""

    messages: list[str]
    lastProgress: dict[str, Any] | None = None  # noqa: N815 - Spark's name
    isActive: bool = True  # noqa: N815
    failed: str | None = None
    stopped_while: list[str] = field(default_factory=list)

    @property
    def status(self) -> dict[str, Any]:
        return {"message": self.messages.pop(0) if len(self.messages) > 1 else self.messages[0]}

    def exception(self) -> str | None:
        return self.failed

    def processAllAvailable(self) -> None:  # noqa: N802
        pass

    def stop(self) -> None:
        self.stopped_while.append(self.messages[0])
        self.isActive = False


def engine(one: FakeQuery, other: FakeQuery) -> RunningEngine:
    return RunningEngine({Host.STATELESS: one, Host.STATEFUL: other})  # type: ignore[dict-item] # as far as it is used


def test_it_is_ready_when_both_have_done_something_or_wait_for_it() -> None:
    done, waiting, begins = FakeQuery([WORKING], {"batchId": 0}), FakeQuery([WAITING]), FakeQuery(["Initializing"])
    assert engine(done, waiting).ready
    assert not engine(done, begins).ready
    waiting.isActive = False
    assert not engine(done, waiting).ready
    assert engine(done, waiting).progress() == {Host.STATELESS: {"batchId": 0}}
    assert engine(done, begins).state() == EngineState(True, False, None, {Host.STATELESS: {"batchId": 0}})


def test_it_stops_between_two_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, idle = FakeQuery([WORKING, WORKING, WAITING]), FakeQuery([WAITING])
    engine(busy, idle).stop()
    assert busy.stopped_while == idle.stopped_while == [WAITING]
    monkeypatch.setattr(hosting, "STOPPING_SECONDS", 0.05)
    overloaded = FakeQuery([WORKING])
    engine(overloaded, idle).stop()
    assert overloaded.stopped_while == [WORKING], "but waits for it no longer than that"
    assert idle.stopped_while == [WAITING], "what has ended is not stopped again"


def test_the_failure_names_the_query_and_the_reason() -> None:
    broken = engine(FakeQuery([WAITING]), FakeQuery([WORKING], isActive=False, failed="disk full"))
    assert not broken.active
    assert broken.failure == "stateful: disk full"
    with pytest.raises(ClusterError, match="the engine has failed: stateful: disk full"):
        broken.wait_until_idle()


class Output:
    """Output without rows that counts how often its tasks are run."""

    def __init__(self) -> None:
        self.runs = 0

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        self.runs += 1
        return OUTPUT_SCHEMA.empty_table()


def test_a_micro_batch_whose_results_are_stored_is_run_again_for_its_state(tmp_path: Path) -> None:
    results, answers, notified = ResultsTable(str(tmp_path / "results"), "f"), Output(), list[str]()
    rows = pl.DataFrame({"query": ["q"], "start_us": [0], "end_us": [1], "kind": ["row"], "row": ["{}"]})
    results.append(rows, 4, Host.STATEFUL.value)
    version = results.version
    checkpoint = CheckpointFiles(tmp_path / "checkpoint" / "stateful")
    folder = UnnumberedFolder(results.root, "run")
    store = hosting.storing(
        Host.STATEFUL, checkpoint, results, folder, list, on_commit=lambda: notified.append("stored")
    )
    store(answers, 4)  # type: ignore[arg-type] # as far as it is used
    assert (answers.runs, results.version, notified) == (1, version, [])


class Sleeping:
    """A query whose micro-batch waits for tasks."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.began = folder / "began"

        def store(_: Any, __: int) -> None:
            began = str(self.began)

            def sleep(_: int) -> int:
                Path(began).touch()
                time.sleep(60)
                return 0

            spark.sparkContext.parallelize([0], 1).map(sleep).collect()

        source = spark.readStream.format("rate").load()
        self.query = source.writeStream.foreachBatch(store).option("checkpointLocation", str(folder / "c")).start()


@pytest.mark.spark
def test_a_micro_batch_that_is_interrupted_shows_no_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hosting, "STOPPING_SECONDS", 0.0)
    sleeping = Sleeping(spark, tmp_path)
    until = time.monotonic() + 120
    while not sleeping.began.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    RunningEngine({Host.STATELESS: sleeping.query}).stop()
    assert not sleeping.query.isActive
    assert [each.name for each in caplog.records if each.name.startswith("py4j")] == []
    logging.getLogger(hosting.CALLS_FROM_JAVA).error("later", exc_info=(ValueError, ValueError("x"), None))
    assert caplog.records[-1].message == "later", "errors of other micro-batches are shown"
