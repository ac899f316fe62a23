"""Faults that are planted in the cluster, one for each promise: each is a change of the product's code at run time.

A simulation must find every one. Where the sentence of a promise stands in the docstring, the change breaks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.ingest import arrow_batches, writer
from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.ingest.writer import StreamWriter
from cluster.service.publishing.progress import ProgressOfAll
from cluster.service.publishing.publisher import InFlight, Publisher
from cluster.spark import checkpoint_files, offsets, source
from cluster.spark.positions import SparkPositions
from cluster.spark.reading.live import LiveReads, PendingFiles
from cluster.storage import appending
from cluster.storage.appending import AppendedTable
from cluster.storage.results_table import ResultsTable

if TYPE_CHECKING:
    from collections.abc import Callable


class Plant(NamedTuple):
    """A fault: its name, the promise that it breaks, and what plants it."""

    name: str
    promise: str
    plant: Callable[[], None]


PLANTS: list[Plant] = []


def planted(name: str, promise: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Note a fault."""

    def note(plant: Callable[[], None]) -> Callable[[], None]:
        PLANTS.append(Plant(name, promise, plant))
        return plant

    return note


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


@planted("ack before sync", "nothing is acknowledged before its commit is on disk")
def _ack_before_sync() -> None:
    appending.sync_commits = _nothing  # type: ignore[attr-defined]


@planted("no look-up of the transaction", "after an error it is looked up whether the commit was made")
def _no_look_up() -> None:
    AppendedTable.made = lambda *_: False  # type: ignore[method-assign]


@planted("doubt counts as stored", "a commit whose outcome is unknown is not acknowledged")
def _doubt_is_success() -> None:
    AppendedTable.made = lambda *_: True  # type: ignore[method-assign]


@planted("rejected commit not rolled back", "what was not stored is expected again")
def _not_rolled_back() -> None:
    StreamAdmission.roll_back = _nothing  # type: ignore[method-assign]


@planted("repeated batches accepted", "a batch that comes twice is stored once")
def _repeated_accepted() -> None:
    _accept(Verdict.REPEATED)


@planted("gaps accepted", "batches are stored in order, none is left out")
def _gaps_accepted() -> None:
    _accept(Verdict.GAP)


def _accept(refused: Verdict) -> None:
    decide = StreamAdmission.decide

    def accepting(self: StreamAdmission, proxy: str, epoch: str, sequence: int, **given: Any) -> Verdict:
        verdict = decide(self, proxy, epoch, sequence, **given)
        return Verdict.ACCEPT if verdict is refused else verdict

    StreamAdmission.decide = accepting  # type: ignore[method-assign, assignment]


@planted("no watermark cut", "nothing is stored that is stamped before the watermark")
def _no_watermark_cut() -> None:
    admit = StreamWriter._admit_rows

    def all_admitted(self: StreamWriter, batch: Any, layout: Any) -> None:
        watermark_us, self.admission._watermark_us = self.admission._watermark_us, None
        try:
            admit(self, batch, layout)
        finally:
            self.admission._watermark_us = watermark_us

    StreamWriter._admit_rows = all_admitted  # type: ignore[method-assign]


@planted("watermark of the fastest proxy", "a stream's watermark is that of its slowest proxy")
def _fastest_watermark() -> None:
    def fastest(self: StreamAdmission) -> int:
        return max(each.position.watermark_us for each in self._proxies.values() if each.included)

    StreamAdmission._lowest = fastest  # type: ignore[method-assign]


@planted("micro-batch not looked up", "a micro-batch that is run again is stored once")
def _micro_batch_doubled() -> None:
    ResultsTable.committed = lambda *_: False  # type: ignore[method-assign]


@planted("results without their transaction", "results and the number of their micro-batch are one commit")
def _results_without_transaction() -> None:
    append = AppendedTable.append

    def without(self: AppendedTable, rows: Any, transactions: Any, metadata: Any = None) -> int:
        is_results = self.root.endswith("/results")
        return append(self, rows, {} if is_results else transactions, metadata)

    AppendedTable.append = without  # type: ignore[method-assign]


@planted("epoch applied early", "a query begins at the positions of its epoch")
def _epoch_early() -> None:
    offsets._reached = lambda *_: True


@planted("offset not on disk before its results", "a micro-batch is planned again with the same end")
def _offset_not_synced() -> None:
    checkpoint_files.CheckpointFiles.sync = _nothing  # type: ignore[method-assign]


@planted("versions not on disk before the offset", "an offset names only versions that survive")
def _named_not_synced() -> None:
    appending.sync_commits = _nothing  # type: ignore[attr-defined]
    source.sync_named = _nothing  # type: ignore[attr-defined]


@planted("results announced before they are on disk", "what is published is on disk")
def _announced_early() -> None:
    AppendedTable.version = property(lambda self: self.delta.version())  # type: ignore[assignment, method-assign]
    appending.sync_commits = _nothing  # type: ignore[attr-defined]


@planted("position before the broker's acknowledgement", "the publisher's position follows what the broker has")
def _position_early() -> None:
    async def acknowledge(self: Publisher, in_flight: InFlight) -> None:
        version = self.progress.received()
        if version is not None:
            await self._note(version)
        await in_flight.popleft()

    Publisher._acknowledge = acknowledge  # type: ignore[method-assign]


@planted("numbers begin again", "results are numbered on after a restart")
def _numbers_begin_again() -> None:
    ResultsTable._last_sequences = lambda _: {}  # type: ignore[method-assign, assignment]


@planted("retention without positions", "nothing is removed that a query has still to read")
def _retention_without_positions() -> None:
    SparkPositions.__call__ = _nothing  # type: ignore[method-assign, assignment]


@planted("results removed before they are published", "no result is removed before it is published")
def _results_removed() -> None:
    ProgressOfAll.version = _nothing  # type: ignore[method-assign, assignment]


@planted("slices without what came before", "what waits for the watermark is read when it has passed")
def _pending_forgotten() -> None:
    LiveReads._behind = lambda self, pending, stream, version: PendingFiles(stream, version, self._tables)  # type: ignore[method-assign]
    PendingFiles.before = (
        lambda self, until_us: [  # type: ignore[method-assign]
            each.file for each in self._pending[: self._place(until_us)] if each.reads == 0
        ]
    )


@planted("late rows not counted", "what comes too late is counted")
def _late_uncounted() -> None:
    writer.late_rows = lambda *arguments: arrow_batches.late_rows(*arguments).slice(0, 0)  # type: ignore[attr-defined]
