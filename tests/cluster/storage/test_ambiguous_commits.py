"""A commit that was made although it looks failed: what is sent again must not be stored again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

from cluster.errors import StorageError
from cluster.ingest.writer import StreamWriter
from cluster.storage.appending import OutcomeUnknownError
from cluster.storage.archived_log import LOG
from cluster.storage.delta_tables import COMMITS_BETWEEN_CHECKPOINTS
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamTable
from protocols.wire.batches import Ack, Batch, PackedBatch, make_columns, pack_batch
from protocols.wire.streams import Field, FieldType, StreamSchema

SPEEDS = StreamSchema("speeds", (Field("speed", FieldType.REAL),))


def batch(number: int) -> PackedBatch:
    columns = make_columns(SPEEDS, [number], ["m"], [True], {"speed": [1.0]})
    return pack_batch(Batch(1, "p", "e", "speeds", number, number, True, 1, columns))


class Sender:
    """A writer, and a proxy that sends again whatever is not acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.acknowledged = 0
        self.writer = StreamWriter(
            StreamTable(str(folder / "speeds"), SPEEDS),
            acknowledge=self._acknowledge,
            quarantine=lambda *refused: pytest.fail(str(refused)),
        )

    async def send_until(self, last: int) -> None:
        while self.acknowledged < last:
            await self.send_once()

    async def send_once(self) -> None:
        self.writer.receive(batch(self.acknowledged + 1))
        await self.writer.commit()

    def stored(self) -> list[int]:
        return sorted(pl.read_delta(self.writer.table.root)["fjord_start_us"].to_list())

    async def _acknowledge(self, ack: Ack) -> None:
        self.acknowledged = max(self.acknowledged, ack.through)


def block_checkpoint(root: str) -> Path:
    """Make the first checkpoint of a table fail, after the commit it belongs to."""
    version = COMMITS_BETWEEN_CHECKPOINTS - 1
    obstacle = Path(root, LOG, f"{version:020d}.checkpoint.parquet", "in the way")
    obstacle.mkdir(parents=True)
    return obstacle.parent


async def test_a_commit_whose_checkpoint_fails_is_stored_once(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    block_checkpoint(sender.writer.table.root)
    await sender.send_until(COMMITS_BETWEEN_CHECKPOINTS + 1)
    assert sender.stored() == list(range(1, COMMITS_BETWEEN_CHECKPOINTS + 2))


def test_results_whose_checkpoint_fails_are_stored_once(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    block_checkpoint(table.root)
    count = COMMITS_BETWEEN_CHECKPOINTS + 1
    for micro_batch in range(count):
        for _ in range(2):  # Spark runs it again if the first time failed
            try:
                table.append(answer(micro_batch), micro_batch)
            except StorageError:
                continue
    assert table.rows_after("q", 0, 1000)["sequence"].to_list() == list(range(1, count + 1))


async def test_an_error_after_the_commit_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender(tmp_path)
    await sender.send_until(1)
    fail_after_commit(monkeypatch, times=1)
    await sender.send_until(3)
    assert sender.stored() == [1, 2, 3]


def test_an_error_after_a_commit_of_results_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    fail_after_commit(monkeypatch, times=1)
    assert table.append(answer(0), 0) == 1
    assert table.append(answer(1), 1) == 2
    assert table.rows_after("q", 0, 10)["sequence"].to_list() == [1, 2]


async def test_nothing_is_taken_while_an_outcome_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender(tmp_path)
    await sender.send_until(1)
    log, away = Path(sender.writer.table.root, LOG), tmp_path / "unreadable"
    fail_after_commit(monkeypatch, times=1, then=lambda: log.rename(away))
    await sender.send_once()
    await sender.send_once()
    assert sender.acknowledged == 1, "it is not known whether it is stored"
    away.rename(log)
    await sender.send_until(3)
    assert sender.stored() == [1, 2, 3]


async def test_an_outcome_unknown_at_first_may_be_that_nothing_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(tmp_path)
    await sender.send_until(1)
    log, away = Path(sender.writer.table.root, LOG), tmp_path / "unreadable"

    def lose_commit() -> None:
        (log / f"{2:020d}.json").unlink()
        log.rename(away)

    fail_after_commit(monkeypatch, times=1, then=lose_commit)
    await sender.send_once()
    away.rename(log)
    await sender.send_until(3)
    assert sender.stored() == [1, 2, 3]


def test_results_in_doubt_are_looked_up_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    table.append(answer(0), 0)
    log, away = Path(table.root, LOG), tmp_path / "unreadable"
    fail_after_commit(monkeypatch, times=1, then=lambda: log.rename(away))
    with pytest.raises(OutcomeUnknownError):
        table.append(answer(1), 1)
    with pytest.raises(StorageError):
        table.committed(1)
    away.rename(log)
    assert table.committed(1)
    table.append(answer(1), 1)
    table.append(answer(2), 2)
    assert table.rows_after("q", 0, 10)["sequence"].to_list() == [1, 2, 3]


def test_a_failed_commit_that_left_nothing_is_an_error(tmp_path: Path) -> None:
    table = ResultsTable(str(tmp_path / "results"), "f")
    shutil.rmtree(table.root)
    Path(table.root).write_text("no folder")
    with pytest.raises(StorageError):
        table.append(answer(0), 0)


def answer(start: int) -> pl.DataFrame:
    return pl.DataFrame({"query": ["q"], "start_us": [start], "end_us": [start + 1], "kind": ["row"], "row": ["{}"]})


def fail_after_commit(monkeypatch: pytest.MonkeyPatch, *, times: int, then: Any = lambda: None) -> None:
    """Let the next commits succeed, and yet raise an error."""
    commit, left = DeltaTable.create_write_transaction, [times]

    def failing(self: DeltaTable, *arguments: Any, **keywords: Any) -> None:
        commit(self, *arguments, **keywords)
        if left[0]:
            left[0] -= 1
            then()
            raise OSError("the answer got lost")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", failing)
