"""The two Spark queries as one engine, without Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake.transaction import AddAction

from cluster.errors import ClusterError
from cluster.fjord.answers import HostOutput
from cluster.physical.nodes import Host
from cluster.spark import hosting
from cluster.spark.checkpoint import CheckpointFiles
from cluster.spark.envelopes import OUTPUT_SCHEMA, pack_output, written_by_task
from cluster.spark.hosting import EngineState, RunningEngine
from cluster.storage.results_table import ResultsTable
from cluster.storage.unnumbered_answers import Numbering, UnnumberedFolder
from tests.cluster.spark.answer_rows import answers

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
    """Output, of no rows unless given, that counts how often its tasks are run."""

    def __init__(self, rows: pa.Table | None = None) -> None:
        self.runs = 0
        self._rows = OUTPUT_SCHEMA.empty_table() if rows is None else rows

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        self.runs += 1
        return self._rows


def test_a_micro_batch_whose_results_are_stored_is_run_again_for_its_state(tmp_path: Path) -> None:
    results, outputs, notified = ResultsTable(str(tmp_path / "results"), "f"), Output(), list[str]()
    rows = pl.DataFrame({"query": ["q"], "start_us": [0], "end_us": [1], "kind": ["row"], "row": ["{}"]})
    results.append(rows, 4, Host.STATEFUL.value)
    version = results.version
    checkpoint = CheckpointFiles(tmp_path / "checkpoint" / "stateful")
    folder = UnnumberedFolder(results.root, "run")
    store = hosting.storing(
        Host.STATEFUL, checkpoint, results, folder, list, on_commit=lambda: notified.append("stored")
    )
    store(outputs, 4)  # type: ignore[arg-type] # as far as it is used
    assert (outputs.runs, results.version, notified) == (1, version, [])


def test_answers_that_buckets_hand_over_in_files_are_put_in_order_by_the_driver(tmp_path: Path) -> None:
    results, folders = ResultsTable(str(tmp_path), "f"), {}
    for host in Host:
        folders[host] = UnnumberedFolder(results.root, "run", host.value)
        folders[host].make()
    others = Path(folders[Host.STATELESS].path, "of-a-micro-batch-that-runs")
    others.touch()
    checkpoint = CheckpointFiles(tmp_path / "checkpoint" / "stateful")

    def write(_: Sequence[Numbering]) -> list[AddAction]:
        pytest.fail("a job of Spark's for few answers: the driver writes them")

    store = hosting.storing(Host.STATEFUL, checkpoint, results, folders[Host.STATEFUL], write, on_commit=lambda: None)
    buckets = [answers(("a", 1), ("b", 1), ("a", 4))], [answers(("a", 2))], [answers(("a", 2), ("a", 3), ("b", 5))]
    for micro_batch, pieces in enumerate([buckets, [[answers(("a", 6), ("a", 7))]]]):
        outputs = []
        for bucket, rows in enumerate(pieces):
            output = HostOutput(rows)
            packed = pack_output(output, written_by_task(output, folders[Host.STATEFUL].path, 1))
            outputs.append({"bucket": bucket, **asdict(packed)})  # type: ignore[arg-type] # there are answers
        assert sum(each["file"] is not None for each in outputs) == 2 - micro_batch
        table = pa.Table.from_pylist(outputs, OUTPUT_SCHEMA)
        store(Output(table), micro_batch)  # type: ignore[arg-type] # as far as it is used
    assert results.rows_after("a", 0, 9).select("sequence", "start_us", "row").rows() == [
        (1, 1, "0"), (2, 2, "0"), (3, 2, "0"), (4, 3, "1"), (5, 4, "2"), (6, 6, "0"), (7, 7, "1"),
    ]  # fmt: skip
    assert results.rows_after("b", 0, 9)["start_us"].to_list() == [1, 5]
    assert not list(Path(folders[Host.STATEFUL].path).iterdir()), "what has been read is removed"
    assert others.exists(), "and nothing else"


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
