"""Faults that are planted in the cluster, one for each promise; a cluster among scripted proxies finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.ingest import arrow_batches, batch_reception
from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.ingest.batch_reception import BatchReception, Decision
from cluster.service.publishing.publisher import InFlight, Publisher
from cluster.service.publishing.supervised_publishers import ProgressOfAll
from cluster.spark import checkpoint, offsets, source
from cluster.spark.offsets import SparkPositions
from cluster.spark.reading.live import LiveReads, PendingFiles
from cluster.storage import appending
from cluster.storage.appending import AppendedTable
from cluster.storage.results_table import ResultsTable
from tests.simulation.planted.plant import Plants, Simulation, nothing, put

if TYPE_CHECKING:
    from cluster.service.publishing.publisher import InFlight

PLANTS = Plants(Simulation.CLUSTER)


@PLANTS.planted("ack before sync", "nothing is acknowledged before its commit is on disk")
def _ack_before_sync() -> None:
    put(appending, "sync_commits", nothing)


@PLANTS.planted("no look-up of the transaction", "after an error it is looked up whether the commit was made")
def _no_look_up() -> None:
    put(AppendedTable, "made", lambda *_: False)


@PLANTS.planted("doubt counts as stored", "a commit whose outcome is unknown is not acknowledged")
def _doubt_is_success() -> None:
    put(AppendedTable, "made", lambda *_: True)


@PLANTS.planted("rejected commit not rolled back", "what was not stored is expected again")
def _not_rolled_back() -> None:
    put(StreamAdmission, "roll_back", nothing)


@PLANTS.planted("repeated batches accepted", "a batch that comes twice is stored once")
def _repeated_accepted() -> None:
    _accept(Verdict.REPEATED)


@PLANTS.planted("gaps accepted", "batches are stored in order, none is left out")
def _gaps_accepted() -> None:
    _accept(Verdict.GAP)


def _accept(refused: Verdict) -> None:
    decide = StreamAdmission.decide

    def accepting(self: StreamAdmission, proxy: str, epoch: str, sequence: int, **given: Any) -> Verdict:
        verdict = decide(self, proxy, epoch, sequence, **given)
        return Verdict.ACCEPT if verdict is refused else verdict

    put(StreamAdmission, "decide", accepting)


@PLANTS.planted("no watermark cut", "nothing is stored that is stamped before the watermark")
def _no_watermark_cut() -> None:
    admit = BatchReception._admit_rows

    def all_admitted(self: BatchReception, batch: Any, layout: Any) -> list[Decision]:
        admission = self._admission
        watermark_us, admission._watermark_us = admission._watermark_us, None
        try:
            return admit(self, batch, layout)
        finally:
            admission._watermark_us = watermark_us

    put(BatchReception, "_admit_rows", all_admitted)


@PLANTS.planted("watermark of the fastest proxy", "a stream's watermark is that of its slowest proxy")
def _fastest_watermark() -> None:
    def fastest(self: StreamAdmission) -> int:
        return max(each.position.watermark_us for each in self._proxies.values() if each.included)

    put(StreamAdmission, "_lowest", fastest)


@PLANTS.planted("micro-batch not looked up", "a micro-batch that is run again is stored once")
def _micro_batch_doubled() -> None:
    put(ResultsTable, "committed", lambda *_: False)


@PLANTS.planted("results without their transaction", "results and the number of their micro-batch are one commit")
def _results_without_transaction() -> None:
    append = AppendedTable.append

    def without(self: AppendedTable, rows: Any, transactions: Any, metadata: Any = None) -> int:
        is_results = self.root.endswith("/results")
        return append(self, rows, {} if is_results else transactions, metadata)

    put(AppendedTable, "append", without)


@PLANTS.planted("epoch applied early", "a query begins at the positions of its epoch")
def _epoch_early() -> None:
    put(offsets, "_reached", lambda *_: True)


@PLANTS.planted("offset not on disk before its results", "a micro-batch is planned again with the same end")
def _offset_not_synced() -> None:
    put(checkpoint.CheckpointFiles, "sync", nothing)


@PLANTS.planted("versions not on disk before the offset", "an offset names only versions that survive")
def _named_not_synced() -> None:
    put(appending, "sync_commits", nothing)
    put(source, "sync_named", nothing)


@PLANTS.planted("results announced before they are on disk", "what is published is on disk")
def _announced_early() -> None:
    put(AppendedTable, "version", property(lambda self: self.delta.version()))
    put(appending, "sync_commits", nothing)


@PLANTS.planted("position before the broker's acknowledgement", "the publisher's position follows what the broker has")
def _position_early() -> None:
    async def acknowledge(self: Publisher, in_flight: InFlight) -> None:
        version = self.progress.received()
        if version is not None:
            await self._note(version)
        await in_flight.popleft()

    put(Publisher, "_acknowledge", acknowledge)


@PLANTS.planted("numbers begin again", "results are numbered on after a restart")
def _numbers_begin_again() -> None:
    put(ResultsTable, "_last_sequences", lambda _: {})


@PLANTS.planted("retention without positions", "nothing is removed that a query has still to read")
def _retention_without_positions() -> None:
    put(SparkPositions, "__call__", nothing)


@PLANTS.planted("results removed before they are published", "no result is removed before it is published")
def _results_removed() -> None:
    put(ProgressOfAll, "version", nothing)


@PLANTS.planted("slices without what came before", "what waits for the watermark is read when it has passed")
def _pending_forgotten() -> None:
    put(LiveReads, "_behind", lambda self, pending, stream, version: PendingFiles(stream, version, self._tables))
    put(
        PendingFiles,
        "before",
        lambda self, until_us: [each.file for each in self._pending[: self._place(until_us)] if each.reads == 0],
    )


@PLANTS.planted("late rows not counted", "what comes too late is counted")
def _late_uncounted() -> None:
    put(batch_reception, "late_rows", lambda *arguments: arrow_batches.late_rows(*arguments).slice(0, 0))
