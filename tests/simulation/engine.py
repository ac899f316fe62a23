"""The engine of a simulated cluster: Fjord's two hosts as Spark runs them, without Spark.

Spark's log is written as Spark writes it: the offset before a micro-batch, its commit after, and what was logged and
not committed is run again from the same offset (tests/power_cuts/micro_batches.py). Between any two of these steps the
process may be killed. What decides where a micro-batch ends, reads streams, runs operators and stores answers is the
product's own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.fjord.relation_tables import _kept as kept_tables
from cluster.physical.nodes import Host
from cluster.service.running.engine import FAILED_START, RESTART_PAUSE_SECONDS, checkpoint_of
from cluster.spark import bucket_processor, source, upstream, worker_memory
from cluster.storage import synced_files
from tests.power_cuts.micro_batches import MicroBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cluster.service.registry.registry import Registry
    from cluster.service.running.settings import ClusterSettings
    from cluster.storage.results_table import ResultsTable

MOST_ANSWERS_RETURNED = 20
"""A task with more answers writes them into a file."""
_END = object()


def forget_all() -> None:
    """Forget what modules keep of a process, as a new process does."""
    bucket_processor._kept.clear()
    kept_tables.clear()
    worker_memory.fragments_at.cache_clear()
    worker_memory._plan_files.cache_clear()
    upstream._stateless_host.cache_clear()
    synced_files._failed.clear()
    # Nothing is frozen for the garbage collection of a process that goes on with the next simulation.
    source.WORKER_MEMORY.keep = lambda _: None  # type: ignore[method-assign]


class SimulatedEngine:
    """Stands in for :class:`cluster.service.running.engine.Engine`; parameters are the same."""

    least_pause_seconds = 0.0
    """Micro-batches are at least so far apart, in all engines of this process, however short the cluster's trigger."""

    def __init__(
        self,
        settings: ClusterSettings,
        folder: Path,
        registry: Registry,
        results: ResultsTable,
        buckets: int,
        *,
        first_key: int = 0,
        java: object = None,
        lags: object = None,
        notes: object = None,
        operators: OperatorStatistics | None = None,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._registry = registry
        self._results = results
        self._buckets = buckets
        self.ready = False
        self.starts = 0
        self.restarts = 0
        self.operators = operators or OperatorStatistics()
        self.failures: list[str] = []
        self.micro_batches = 0
        self.hangs_until = 0.0
        """Until this instant of the loop no micro-batch begins."""
        self._hurried = asyncio.Event()
        self.stepped: Callable[[], None] | None = None
        """Called after each step of a micro-batch, before the next one."""

    def as_json(self) -> Mapping[str, Any]:
        """Return nothing: no API shows it."""
        return {}

    async def run(self, on_commit: Callable[[], None], ready: asyncio.Event | None = None) -> None:
        """Run micro-batches, and begin again if one fails, until cancelled."""
        while True:
            try:
                hosts = await asyncio.to_thread(self._start, on_commit)
                self.starts += 1
                self.ready = True
                if ready is not None:
                    ready.set()
                async with asyncio.TaskGroup() as tasks:
                    for host in hosts:
                        tasks.create_task(self._run(host), name="micro-batches")
            except* Exception as errors:  # noqa: BLE001 - as Spark, which ends a query with any
                self.failures.append(repr(errors.exceptions[0]))
                self._registry.troubles.note(FAILED_START, self.failures[-1])
            self.restarts += 1
            await asyncio.sleep(RESTART_PAUSE_SECONDS)

    def hurry(self) -> None:
        """Let the next micro-batches begin now."""
        self._hurried.set()
        self._hurried = asyncio.Event()

    async def keep_log_small(self) -> None:
        """Do nothing: there is no log of Spark's."""

    async def archive_classes(self) -> None:
        """Do nothing: there is no Java."""

    def stop(self) -> None:
        """Do nothing: micro-batches end with their task."""

    def _start(self, on_commit: Callable[[], None]) -> list[MicroBatches]:
        forget_all()
        checkpoint = checkpoint_of(self._folder, self._registry)
        return [
            MicroBatches(
                host,
                self._folder,
                self._results,
                f"run {self._registry.epoch} {self.starts}",
                checkpoint=checkpoint,
                rows=self._settings.max_rows,
                partitions=self._settings.partitions,
                returned=MOST_ANSWERS_RETURNED,
                on_commit=on_commit,
            )
            for host in Host
        ]

    async def _run(self, host: MicroBatches) -> None:
        while True:
            instants = host.instants()
            while await asyncio.to_thread(next, instants, _END) is not _END:
                if self.stepped is not None:
                    self.stepped()
            self.micro_batches += 1
            hangs = self.hangs_until - asyncio.get_running_loop().time()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(self._settings.trigger_seconds, self.least_pause_seconds, hangs)):
                    await self._hurried.wait()
