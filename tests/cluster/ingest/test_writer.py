"""The writer's shell around the admission: decisions reach the table however busy the stream is."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from cluster.errors import StorageError
from cluster.ingest import batch_reception
from cluster.ingest.writer import StreamWriter
from cluster.storage.appending import OutcomeUnknownError
from cluster.storage.stream_tables import StreamTable
from protocols.wire.batches import Batch, PackedBatch, make_columns, pack_batch
from protocols.wire.streams import Field, FieldType, StreamSchema

if TYPE_CHECKING:
    from pathlib import Path

    from protocols.wire.batches import Ack

SCHEMA = StreamSchema("speeds", (Field("speed", FieldType.REAL),))


def empty_batch(proxy: str, sequence: int, watermark_us: int) -> PackedBatch:
    return pack_batch(Batch(1, proxy, "e", "speeds", sequence, watermark_us, True, 0, ()))


async def test_a_proxy_that_is_gone_does_not_stall_a_busy_stream(tmp_path: Path) -> None:
    now, stored = 0.0, asyncio.Condition()

    async def acknowledge(_: Ack) -> None:
        async with stored:
            stored.notify_all()

    def reject(kind: str, reason: str, source: str, content: bytes) -> None:
        raise AssertionError((kind, reason, source, content))

    writer = StreamWriter(
        StreamTable(str(tmp_path / "speeds"), SCHEMA),
        acknowledge=acknowledge,
        quarantine=reject,
        commit_interval_seconds=0.0,
        gone_after=lambda: 10.0,
        clock=lambda: now,
    )
    running = asyncio.create_task(writer.run())
    writer.receive(empty_batch("gone", 1, 5))
    for sequence in range(1, 40):  # it always has work before it has waited for any
        now = float(sequence)
        writer.time_passed(["there"], counted_seconds=1.0)
        async with stored:
            writer.receive(empty_batch("there", sequence, 100 * sequence))
            await stored.wait_for(lambda sequence=sequence: writer.admission.stored("there", "e") == sequence)
    assert writer.table.position().watermark_us == 3900
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


SAMPLES = 1_000


def samples(sequence: int) -> PackedBatch:
    stamps = [sequence * SAMPLES + number for number in range(SAMPLES)]
    columns = make_columns(SCHEMA, stamps, ["m"] * SAMPLES, [True] * SAMPLES, {"speed": [1.0] * SAMPLES})
    return pack_batch(Batch(1, "p", "e", "speeds", sequence, stamps[0], True, SAMPLES, columns))


async def test_waiting_batches_are_bounded_and_the_others_stay_with_their_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, acknowledged = 100_000, [0]
    monkeypatch.setattr(batch_reception, "MAX_WAITING_BYTES", limit)

    async def acknowledge(ack: Ack) -> None:
        acknowledged.append(ack.through)

    writer = StreamWriter(
        StreamTable(str(tmp_path / "speeds"), SCHEMA),
        acknowledge=acknowledge,
        quarantine=lambda *rejected: pytest.fail(str(rejected)),
    )
    rounds = 0
    while acknowledged[-1] < 40:  # a proxy that goes back to the first batch that is not acknowledged
        for sequence in range(acknowledged[-1] + 1, 41):
            writer.receive(samples(sequence))
            assert writer.waiting_bytes < limit + 50 * SAMPLES, "more waits than the limit and one batch"
        await writer.commit()
        rounds += 1
    assert rounds > 5
    assert writer.admission.counters.deferred > 0
    assert writer.table.rows_stored(writer.table.version) == 40 * SAMPLES


@pytest.mark.parametrize("turns", range(5))
async def test_a_writer_ends_when_it_is_cancelled_just_as_work_comes(tmp_path: Path, turns: int) -> None:
    async def acknowledge(_: Ack) -> None:
        pass

    writer = StreamWriter(
        StreamTable(str(tmp_path / "speeds"), SCHEMA),
        acknowledge=acknowledge,
        quarantine=lambda *rejected: pytest.fail(str(rejected)),
    )
    running = asyncio.create_task(writer.run())
    await asyncio.sleep(0)
    writer.receive(empty_batch("p", 1, 5))
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=5.0)
    running.cancel()
    assert done, "it goes on as if it had not been cancelled"


async def test_many_batches_behind_a_gap_are_answered_twice_an_interval(tmp_path: Path) -> None:
    now, answers = 0.0, []

    async def acknowledge(ack: Ack) -> None:
        answers.append(ack)

    writer = StreamWriter(
        StreamTable(str(tmp_path / "speeds"), SCHEMA),
        acknowledge=acknowledge,
        quarantine=lambda *rejected: pytest.fail(str(rejected)),
        commit_interval_seconds=0.1,
        clock=lambda: now,
    )
    for interval in range(1, 4):
        now = 0.1 * interval
        for sequence in range(2, 300):  # the first is missing
            found = [writer.receive(empty_batch(proxy, sequence, 5)) for proxy in ("p", "q")]
            answers += [ack for ack in found if ack is not None]
        found = [(ack.proxy, ack.through) for ack in answers]
        assert found == [("p", 0), ("q", 0)] * 2 * interval, "a proxy goes back when it has read it twice"


async def test_a_proxy_first_heard_while_a_commit_is_in_doubt_is_asked_when_storage_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledged: list[tuple[str, int]] = []
    asked = asyncio.Event()

    async def acknowledge(ack: Ack) -> None:
        acknowledged.append((ack.proxy, ack.through))
        asked.set()

    writer = StreamWriter(
        StreamTable(str(tmp_path / "speeds"), SCHEMA),
        acknowledge=acknowledge,
        quarantine=lambda *_: None,
        commit_interval_seconds=0.0,
    )
    writer.receive(samples(1))
    with monkeypatch.context() as patch:
        patch.setattr(StreamTable, "append", Mock(side_effect=OutcomeUnknownError("away")))
        await writer.commit()
    assert writer.receive(empty_batch("new", 1, 5)) is None
    await writer.commit()
    assert sorted(acknowledged) == [("new", 0), ("p", 0)]
    with monkeypatch.context() as patch:
        patch.setattr(StreamTable, "append", Mock(side_effect=StorageError("full")))
        writer.receive(samples(1))
        await writer.commit()
    assert len(acknowledged) == 2
    asked.clear()
    running = asyncio.create_task(writer.run())  # no batch comes: it finds out by itself
    async with asyncio.timeout(20):
        await asked.wait()
    assert acknowledged[-1] == ("p", 0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
