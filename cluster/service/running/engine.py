"""The engine: Spark and its two Spark queries, which answer all queries; started, monitored and restarted."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.fjord.counters import owners_of
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.fjord.overruns import WorkLimits
from cluster.physical.plan_files import PlanFiles
from cluster.service.running.hang_watch import HangWatch
from cluster.spark.checkpoint import newest_epochs
from cluster.spark.class_archive import until_quiet
from cluster.spark.session import SPARK_FILES, archive_classes, open_session
from cluster.spark.spark_log import SPARK_LOG, SparkEndedError, SparkLog
from cluster.spark.worker_watch import OverrunNotes
from protocols.event_log import get_logger

T = TypeVar("T")

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cluster.service.publishing.lag import LagBy
    from cluster.service.registry.registry import Registry
    from cluster.service.running.settings import ClusterSettings
    from cluster.spark.hosting import EngineState, RunningEngine
    from cluster.spark.java_process import JavaProcess
    from cluster.storage.results_table import ResultsTable

log = get_logger(__name__)

FAILED_START = "start of the Fjord"
"""A label of metrics and a key of the status: it never changes."""

RESTART_PAUSE_SECONDS = 5.0
POLL_SECONDS, START_POLL_SECONDS = 0.5, 0.1
"""Between two looks at whether the engine runs; the latter until it first does."""
ARCHIVE_SECONDS = 60.0
"""From the start until Java's classes are archived, which would slow down the start itself."""
HEAP_PER_PART = 12
"""Java's heap is so many times as large as what a fragment may send to the buckets in a part of a micro-batch."""
HEAP_PER_VALUE = 32
"""Java's heap is so many times as large as the largest value of a state: each of a few tasks has some copies of one."""
FAILURES = 2
"""A micro-batch that fails so often is run without the queries that have been dropped meanwhile."""
LOG_PAUSE_SECONDS = 1.0
"""Between two looks at how large Spark's log is."""


def notes_in(folder: Path) -> OverrunNotes:
    """Return the notes of workers in a data folder."""
    return OverrunNotes(folder / "workers")


def checkpoint_of(folder: Path, registry: Registry) -> Path:
    """Return the folder of Spark's own logs of offsets and state."""
    return folder / f"checkpoint-{registry.engine_id}"


class Engine:
    """The engine of a cluster.

    Parameters
    ----------
    settings
        How to run it.
    folder
        The data folder.
    registry
        Keeps the plans that it runs.
    results
        Where it commits answers.
    buckets, first_key
        Parts into which the state of operators is divided, and the key of the first of them in Spark.
    java
        The Java for Spark; None starts one.
    operators
        Where it is counted what operators do.
    lags
        Returns how far queries are behind; called in a thread.
    notes
        Notes of what workers could not do; by default in the data folder.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        folder: Path,
        registry: Registry,
        results: ResultsTable,
        buckets: int,
        *,
        first_key: int = 0,
        java: JavaProcess | None = None,
        operators: OperatorStatistics | None = None,
        lags: Callable[[], LagBy] = dict,
        notes: OverrunNotes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._java = java
        self._lags = lags
        self._clock = clock
        self._watch = HangWatch(max(settings.hang_seconds, 2 * settings.trigger_seconds))
        self._settings = settings
        self._folder = folder
        self._notes = notes or notes_in(folder)
        self._failures = 0
        """How often it has failed without a micro-batch that ended in between."""
        self._registry = registry
        self._results = results
        self._buckets = buckets
        self._first_key = first_key
        self._log = SparkLog(folder / SPARK_LOG)
        self._spark: SparkSession | None = None
        self._running: RunningEngine | None = None
        self._state: EngineState | None = None
        """As Java last reported it; None before the first report."""
        self._reported_at = clock()
        self._began = asyncio.Event()
        """Set once it has been ready."""
        self.starts = 0
        self.restarts = 0
        self.hangs = 0
        """How often it was restarted, or Java ended, because it did not go on."""
        self.operators = operators or OperatorStatistics()
        """What operators have done since this process began, and how fast."""

    @property
    def ready(self) -> bool:
        """True once new queries no longer have to wait for Spark to start."""
        return self._state is not None and self._state.ready

    def as_json(self) -> dict[str, Any]:
        """Return the engine's state as the API shows it."""
        state = self._state
        return {
            "running": state is not None and state.active,
            "ready": self.ready,
            "silent_seconds": None if state is None else round(self._clock() - self._reported_at, 1),
            "starts": self.starts,
            "restarts": self.restarts,
            "hangs": self.hangs,
            "micro_batches": {
                host.value: {"number": last["batchId"], "milliseconds": last["batchDuration"]}
                for host, last in ({} if state is None else state.progress).items()
            },
        }

    async def run(self, on_commit: Callable[[], None], ready: asyncio.Event | None = None) -> None:
        """Start Spark and the two queries, and restart these if they fail, until cancelled.

        Parameters
        ----------
        on_commit
            Called in one of Spark's threads when the results table has a new version.
        ready
            Set once a new query does not wait for Spark's start any more.

        Raises
        ------
        SparkEndedError
            If Java ends.
        """
        began = time.monotonic()
        self._spark = await asyncio.to_thread(
            open_session,
            self._settings.session,
            self._folder / SPARK_FILES,
            self._log,
            self._java,
        )
        log.info("Spark runs", version=self._spark.version, seconds=round(time.monotonic() - began, 1))
        with self._asking_java():
            await self._keep_running(self._spark, on_commit, ready)

    async def _keep_running(
        self, spark: SparkSession, on_commit: Callable[[], None], ready: asyncio.Event | None
    ) -> None:
        """Start the two queries, and again if they fail, until cancelled."""
        while True:
            running, reason = None, None
            try:
                running = await asyncio.to_thread(self._start, spark, on_commit)
            except Exception as error:  # Java's and Spark's, too: a full disk has many names
                if _is_of_lost_java(error):
                    raise
                reason = str(error)
                self._registry.troubles.note(FAILED_START, reason[:500])
            self._watch.started(self._clock())
            hung = ""
            while running is not None and (await self._poll(running)).active and not (hung := await self._hung()):
                if self.ready:
                    self._began.set()
                    if ready is not None:
                        ready.set()
                await asyncio.sleep(POLL_SECONDS if self._began.is_set() else START_POLL_SECONDS)
            reason = self._state.failure if running is not None and self._state is not None else reason
            self.restarts += 1
            self._failures = 1 if self._state is not None and self._state.progress else self._failures + 1
            reason = str(hung or reason)
            log.error("the engine stopped and will be started again", reason=reason[:2000], **hint_of(reason))
            if hung:
                self.hangs += 1
                if self._java is not None:  # its tasks end with the processes that they wait for
                    self._java.kill_children()
            await self._asked(self._stop_queries)
            await asyncio.sleep(RESTART_PAUSE_SECONDS)

    async def keep_log_small(self) -> None:
        """Rotate the file that Spark and Java write to, until cancelled."""
        while True:
            await asyncio.to_thread(self._log.rotate)
            await asyncio.sleep(LOG_PAUSE_SECONDS)

    async def archive_classes(self) -> None:
        """Archive the classes that Java has loaded, for later starts: after a while, and when there is little to do."""
        await self._began.wait()
        await asyncio.sleep(ARCHIVE_SECONDS)
        await until_quiet()
        if self._spark is not None:
            await archive_classes(self._spark, self._folder / SPARK_FILES)

    def stop(self) -> None:
        """Stop the queries, and Spark; if Java has ended there is nothing to stop."""
        with suppress(SparkEndedError), self._asking_java():
            self._stop_queries()
            if self._spark is not None:
                self._spark.stop()
            self._notes.forget_work()

    @contextmanager
    def _asking_java(self) -> Iterator[None]:
        """Raise a SparkEndedError in place of an error inside that comes of asking a Java that has ended."""
        try:
            yield
        except Exception as error:
            if not _is_of_lost_java(error):
                raise
            log.info("Java does not answer any more", reason=str(error))
            raise SparkEndedError(self._log) from error

    async def _poll(self, running: RunningEngine) -> EngineState:
        """Get the state from Java; ingest and API keep running while Java does not answer."""
        self._state = await self._asked(running.state)
        self._reported_at = self._clock()
        if self.operators.due:
            plan = self._registry.physical
            await asyncio.to_thread(lambda: self.operators.observe(owners_of(plan)))
        return self._state

    async def _hung(self) -> str:
        """Return, in words, what does not go on; empty if all does."""
        progress: Mapping[Any, Any] = {} if self._state is None else self._state.progress
        silent = self._watch.silent(self._clock(), {host: last["batchId"] for host, last in progress.items()})
        return self._watch.hung(silent, await asyncio.to_thread(self._lags)) if silent else ""

    async def _asked(self, ask: Callable[[], T]) -> T:
        """Return what Java answers, in a thread; one that hangs is killed, which ends the cluster."""
        asking = asyncio.ensure_future(asyncio.to_thread(ask))
        done, _ = await asyncio.wait({asking}, timeout=None if self._java is None else self._watch.patience_seconds)
        if not done and self._java is not None:
            self.hangs += 1
            log.error("Java does not answer and is killed", seconds=self._watch.patience_seconds)
            self._java.process.kill()
        return await asking

    def _start(self, spark: SparkSession, on_commit: Callable[[], None]) -> RunningEngine:
        from cluster.spark.hosting import start_engine  # noqa: PLC0415 - Spark takes a second to import
        from cluster.spark.source import SourceOptions  # noqa: PLC0415

        self._notes.make()
        crashed = self._notes.note_crashes()
        if crashed:
            log.warning("workers have ended while they computed", workers=crashed)
        self._running = start_engine(
            spark,
            options=SourceOptions(
                streams_folder=str(self._folder / "streams"),
                plans_folder=str(self._folder / "plans"),
                relations_folder=str(self._folder / "relations"),
                relation_memory_bytes=self._settings.relation_memory_bytes,
                buckets=self._buckets,
                first_key=self._first_key,
                max_partitions=spark.sparkContext.defaultParallelism,
                max_rows=self._settings.max_rows,
                history_rows=self._settings.history_rows,
                functions=self._settings.functions,
                limits=WorkLimits(
                    str(self._notes.folder),
                    self._settings.worker_memory_bytes,
                    self._settings.query_seconds,
                    self._settings.heap_bytes // HEAP_PER_VALUE,
                    self._settings.heap_bytes // HEAP_PER_PART,
                ),
                gone=self._gone(),
            ),
            checkpoint=checkpoint_of(self._folder, self._registry),
            results=self._results,
            on_commit=on_commit,
            run=uuid.uuid4().hex,
            trigger_seconds=self._settings.trigger_seconds,
            on_counters=self.operators.add,
        )
        self.starts += 1
        log.info("the engine runs", epoch=self._registry.epoch, queries=len(self._registry))
        return self._running

    def _gone(self) -> tuple[str, ...]:
        """Return what a micro-batch that has failed before leaves out: queries of its plan that have been dropped."""
        if self._failures < FAILURES and not self._notes.has_failed_again():
            return ()
        present, plans = self._registry.physical.subscribers, PlanFiles(self._folder / "plans")
        begun = filter(plans.exists, newest_epochs(checkpoint_of(self._folder, self._registry)))
        planned = {query for epoch in begun for query in plans.read(epoch).subscribers}
        return tuple(sorted(planned - present.keys()))

    def _stop_queries(self) -> None:
        if self._running is not None:
            self._running.stop()


def _is_of_lost_java(error: Exception) -> bool:
    """Return whether an error comes of asking a Java that has ended."""
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415 - Spark takes a second to import

    # An error of Java's own is a Py4JJavaError; without an answer from Java it is another Py4JError.
    return isinstance(error, ConnectionError | Py4JError) and not isinstance(error, Py4JJavaError)


def hint_of(reason: str) -> dict[str, str]:
    """Return what to do about a failure of the engine, as a value of a log line, where that is known.

    Examples
    --------
    >>> hint_of("stateful: java.lang.OutOfMemoryError: Java heap space")["hint"]
    'give Java more memory with --driver-memory, or drop queries with large windows'
    >>> hint_of("stateful: the disk is full")
    {}
    """
    if "OutOfMemoryError" not in reason:
        return {}
    return {"hint": "give Java more memory with --driver-memory, or drop queries with large windows"}
