"""Batches that were acknowledged and are lost, or are damaged in a spool: streams go on, and the loss is counted."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from cluster.ingest.writer import StreamWriter
from cluster.storage.archived_log import LOG
from cluster.storage.stream_tables import StreamTable
from protocols.wire.batches import Ack, Batch, PackedBatch, Resumption, make_columns, pack_batch
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.running.delivery_window import (
    AckReceived,
    BatchDamaged,
    BatchSpooled,
    Connected,
    DeliveryInstruction,
    DeliveryWindow,
    Resume,
    Send,
    SendAgain,
    Skip,
    TimePassed,
)

SPEEDS = StreamSchema("speeds", (Field("speed", FieldType.REAL),))


def batch(number: int) -> PackedBatch:
    columns = make_columns(SPEEDS, [number], ["m"], [True], {"speed": [1.0]})
    return pack_batch(Batch(1, "p", "e", "speeds", number, number, True, 1, columns))


class Link:
    """A proxy's delivery window and the cluster's writer, and the messages between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.window = DeliveryWindow(in_flight=4)
        self.quarantined: list[str] = []
        self.resumed = 0
        self.loses_resumptions = 0
        self.damaged: set[int] = set()
        self._now_us = 0
        self._acks: list[Ack] = []
        self.writer = self._writer()
        self._instructions = self.window.handle(Connected(), 0)

    def restart(self, *, lost: int) -> None:
        """Start the cluster again, without the last versions of its table."""
        log = Path(self.writer.table.root, LOG)
        for commit in sorted(log.glob("*.json"), reverse=True)[:lost]:
            commit.unlink()
        self.writer = self._writer()
        self._instructions = self.window.handle(Connected(), self._now_us)

    def spool(self, *numbers: int) -> None:
        for number in numbers:
            self._instructions += self.window.handle(BatchSpooled(number), self._now_us)

    async def exchange(self, rounds: int = 10) -> None:
        """Deliver all messages, in rounds; half a second passes at the end of each."""
        for _ in range(rounds):
            while self._instructions:
                await self._carry_out(self._instructions.pop(0))
            await self.writer.commit()
            while self._acks:
                self._instructions += self.window.handle(AckReceived(self._acks.pop(0).through), self._now_us)
            self._now_us += 500_000
            self._instructions += self.window.handle(TimePassed(), self._now_us)

    def stored(self) -> list[int]:
        return sorted(pl.read_delta(self.writer.table.root)["fjord_start_us"].to_list())

    async def _carry_out(self, instruction: DeliveryInstruction) -> None:
        match instruction:
            case Send(number) | SendAgain(number) if number in self.damaged:
                self._instructions = self.window.handle(BatchDamaged(number), self._now_us)
            case Send(number) | SendAgain(number):
                self._note(self.writer.receive(batch(number)))
            case Skip(number):
                await self._carry_out(Resume(number + 1))
            case Resume(first):
                if self.loses_resumptions:
                    self.loses_resumptions -= 1
                    return
                self.resumed += 1
                self._note(self.writer.resume(Resumption(1, "p", "e", "speeds", first)))
            case _:
                pass

    def _writer(self) -> StreamWriter:
        return StreamWriter(
            StreamTable(str(self.folder / "speeds"), SPEEDS),
            acknowledge=self._acknowledge,
            quarantine=lambda kind, reason, *_: self.quarantined.append(f"{kind}: {reason}"),
            clock=lambda: self._now_us / 1e6,
        )

    async def _acknowledge(self, ack: Ack) -> None:
        self._acks.append(ack)

    def _note(self, ack: Ack | None) -> None:
        if ack is not None:
            self._acks.append(ack)


async def test_a_stream_goes_on_after_the_cluster_lost_what_it_acknowledged(tmp_path: Path) -> None:
    link = Link(tmp_path)
    for number in range(1, 6):
        link.spool(number)
        await link.exchange(1)
    link.restart(lost=2)
    link.spool(6, 7, 8)
    await link.exchange()
    assert link.stored() == [1, 2, 3, 6, 7, 8]
    assert link.window.waiting == 0
    assert link.writer.admission.counters.lost_batches == 2
    assert link.quarantined == ["lost batches: 2 batches before 6 are lost: their proxy does not have them any more"]
    link.restart(lost=0)
    link.spool(9)
    await link.exchange()
    assert link.stored() == [1, 2, 3, 6, 7, 8, 9]
    assert link.resumed == 1, "a loss is resumed from once"


async def test_a_resumption_is_sent_again_if_it_is_lost(tmp_path: Path) -> None:
    link = Link(tmp_path)
    for number in range(1, 4):
        link.spool(number)
        await link.exchange(1)
    link.restart(lost=1)
    link.loses_resumptions = 2
    link.spool(4)
    await link.exchange(40)
    assert link.stored() == [1, 2, 4]
    assert link.writer.admission.counters.lost_batches == 1


async def test_late_acknowledgements_lose_no_batch(tmp_path: Path) -> None:
    link = Link(tmp_path)
    for number in range(1, 4):
        link.spool(number)
        await link.exchange(1)
    link.spool(4)
    for _ in range(2):  # overtaken on the way, and late
        link._instructions += link.window.handle(AckReceived(1), link._now_us)
    await link.exchange()
    assert link.stored() == [1, 2, 3, 4]
    assert link.resumed == 1
    assert link.writer.admission.counters.lost_batches == 0
    assert link.quarantined == []


async def test_a_stream_goes_on_after_a_batch_that_is_damaged_in_its_spool(tmp_path: Path) -> None:
    link = Link(tmp_path)
    link.damaged = {1, 4, 5}
    link.loses_resumptions = 1
    for number in range(1, 8):
        link.spool(number)
    await link.exchange(40)
    assert link.stored() == [2, 3, 6, 7]
    assert link.window.waiting == 0
    assert link.writer.admission.counters.lost_batches == 3
    assert [line.split(":")[0] for line in link.quarantined] == ["lost batches"] * 3
