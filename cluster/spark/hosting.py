"""The engine in Spark: two Structured Streaming queries over the same plans, and the settings of Java they need.

**Which settings Java's threads go by, and which of Hadoop's are sent to tasks.**

A thread of Spark that runs neither a task nor a session goes by Spark's defaults. The one that serves the state of a
bucket is such a thread: whatever the session says, it writes and formats Java for each of the state's variables in each
task. And each micro-batch with state sends Hadoop's settings to its tasks, two thirds of which are about YARN and
MapReduce, which nothing here runs.

    stateless   source -> results table
    stateful    source -> shuffle by bucket -> transformWithState -> results table

Both are of fixed shape: queries of users come and go inside them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cluster.errors import ClusterError
from cluster.fjord.counters import Counters
from cluster.physical.nodes import Host
from cluster.spark.bucket_processor import DownstreamProcessor
from cluster.spark.checkpoint import CheckpointFiles, discard_truncated, discard_unstarted, relocate_checkpoint
from cluster.spark.envelopes import OUTPUT_DDL, collected_outputs
from cluster.spark.source import SOURCE_NAME, FjordSource, SourceOptions
from cluster.storage.results_table import ResultsTable, Write
from cluster.storage.unnumbered_answers import Numbering, UnnumberedFolder, write_numbered
from protocols.event_log import get_logger

CLASS: Final = "fjord.Settings"
SOURCE: Final = """
package fjord;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.runtime.AbstractFunction0;

public class Settings extends AbstractFunction0 {
    private final SQLConf otherwise;

    public Settings(SparkSession session) {
        otherwise = session.sessionState().conf();
    }

    public Object apply() {
        Option active = SparkSession$.MODULE$.getActiveSession();
        if (active.isDefined()) {
            SparkSession session = (SparkSession) active.get();
            if (!session.sparkContext().isStopped()) {
                return session.sessionState().conf();
            }
        }
        return otherwise;
    }

    public static void forget(Configuration hadoop) {
        List names = new ArrayList();
        for (Iterator entries = hadoop.iterator(); entries.hasNext();) {
            String name = (String) ((Map.Entry) entries.next()).getKey();
            if (name.startsWith("yarn.") || name.startsWith("mapreduce.")) {
                names.add(name);
            }
        }
        for (Iterator each = names.iterator(); each.hasNext();) {
            hadoop.unset((String) each.next());
        }
    }
}
"""

log = get_logger(__name__)


def use_settings_in_all_threads(session: SparkSession) -> None:
    """Let all of Java's threads go by the settings of a session, and send no settings that nothing reads.

    Parameters
    ----------
    session
        The session. Its streaming queries run already: each of them gives the threads Spark's defaults again.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs JAVA_HOME to be set

    java: Any = session._jvm  # noqa: SLF001 - no setting of Spark's reaches this
    hadoop = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    try:
        compiler = java.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(hadoop.getClassLoader())
        compiler.cook(SOURCE)
        ours = compiler.getClassLoader().loadClass(CLASS)
        (make,) = ours.getConstructors()
        java.org.apache.spark.sql.internal.SQLConf.setSQLConfGetter(
            make.newInstance(_array(session, session._jsparkSession))  # noqa: SLF001
        )
        (forget,) = (method for method in ours.getMethods() if method.getName() == "forget")
        forget.invoke(None, _array(session, hadoop))
    except Py4JError as error:
        log.info("each bucket's state takes longer to be opened", reason=str(error))


def _array(session: SparkSession, argument: Any) -> Any:
    """Return an array of Java's that holds one argument."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - PySpark has no other way to Java
    array = gateway.new_array(gateway.jvm.Object, 1)
    array[0] = argument
    return array


STOPPING_SECONDS = 3.0
"""How long a query that is stopped may go on until it is idle: Spark prints long traces of a broken micro-batch."""
POLLING_SECONDS = 0.002
CALLS_FROM_JAVA = "py4j.clientserver"
"""The logger of errors in what Java calls."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """The state of the engine, as Java has reported it.

    Parameters
    ----------
    active, ready, failure
        As in :class:`RunningEngine`.
    progress
        Spark's progress report on the last micro-batch of each query that has run one.
    """

    active: bool = False
    ready: bool = False
    failure: str | None = None
    progress: Mapping[Host, Any] = field(default_factory=dict)


class RunningEngine:
    """The two Spark queries of the engine, which run and end together.

    Parameters
    ----------
    queries
        By host.
    """

    def __init__(self, queries: Mapping[Host, StreamingQuery]) -> None:
        self.queries = queries

    @property
    def active(self) -> bool:
        """True while both run."""
        return all(query.isActive for query in self.queries.values())

    @property
    def ready(self) -> bool:
        """True once each has finished a micro-batch, or waits for one: queries no longer wait for Spark's start."""
        return self.active and all(map(_has_begun, self.queries.values()))

    @property
    def failure(self) -> str | None:
        """Why one of them has failed; None if none has."""
        failures = [f"{host.value}: {query.exception()}" for host, query in self.queries.items() if query.exception()]
        return "; ".join(failures) or None

    def progress(self) -> dict[Host, Any]:
        """Return Spark's progress report on the last micro-batch of each query that has run one."""
        found = {host: query.lastProgress for host, query in self.queries.items() if query.isActive}
        return {host: progress for host, progress in found.items() if progress is not None}

    def state(self) -> EngineState:
        """Return its state. Java may take long to answer, or never do: an event loop calls this in a thread."""
        return EngineState(self.active, self.ready, self.failure, self.progress())

    def wait_until_idle(self) -> None:
        """Wait until everything that is stored has been answered.

        Raises
        ------
        ClusterError
            If the engine fails meanwhile.
        """
        for query in self.queries.values():
            query.processAllAvailable()
        if self.failure:
            raise ClusterError(f"the engine has failed: {self.failure}")

    def stop(self) -> None:
        """Stop both, each between two micro-batches if there is time; an interrupted one is run again later."""
        for query in self.queries.values():
            until = time.monotonic() + STOPPING_SECONDS
            while query.isActive and not _waits(query) and time.monotonic() < until:
                time.sleep(POLLING_SECONDS)
            if query.isActive:
                with _interrupted():
                    query.stop()


def start_engine(
    spark: SparkSession,
    *,
    options: SourceOptions,
    checkpoint: Path,
    results: ResultsTable,
    on_commit: Callable[[], None],
    run: str,
    trigger_seconds: float = 0.0,
    on_counters: Callable[[Counters], None] | None = None,
) -> RunningEngine:
    """Start the engine.

    Parameters
    ----------
    spark
        The session.
    options
        Settings of the source; its host does not matter.
    checkpoint
        Folder of Spark's own logs of offsets and state; belongs to one results table.
    results
        Where answers are stored, once per micro-batch.
    on_commit
        Called, in one of Spark's threads, after answers have been stored.
    run
        Identity of this run; workers keep what they have built for it.
    trigger_seconds
        Least time between two micro-batches; 0 starts the next as soon as there is something to do.
    on_counters
        Called, in one of Spark's threads, with what operators did, as it becomes known.
    """
    spark.dataSource.register(FjordSource)
    running: dict[Host, StreamingQuery] = {}
    try:
        for host in Host:
            relocate_checkpoint(checkpoint / host.value)
            discard_truncated(checkpoint / host.value, partial(results.committed, writer=host.value))
            if discard_unstarted(checkpoint / host.value):
                log.warning("killed before the first micro-batch: the checkpoint is discarded", host=host)
            results.remove_uncommitted(host.value)
            files = UnnumberedFolder(results.root, run, host.value)
            files.make()
            answers = _answers(spark, msgspec.structs.replace(options, host=host, answers_folder=files.path), run)
            checkpointed = CheckpointFiles(checkpoint / host.value)
            write = partial(written_by_tasks, spark)
            store = storing(host, checkpointed, results, files, write, on_commit=on_commit, on_counters=on_counters)
            running[host] = (
                answers.writeStream.queryName(f"fjord {host.value}")
                .foreachBatch(store)
                .outputMode("append")
                .option("checkpointLocation", str(checkpoint / host.value))
                .trigger(processingTime=f"{trigger_seconds} seconds")
                .start()
            )
        use_settings_in_all_threads(spark)
    except BaseException:
        RunningEngine(running).stop()
        raise
    return RunningEngine(running)


@contextmanager
def _interrupted() -> Iterator[None]:
    """Let no error of a micro-batch that is interrupted inside be shown: Spark cancels its tasks."""
    shows = logging.getLogger(CALLS_FROM_JAVA)
    shows.addFilter(_without_error)
    try:
        yield
    finally:
        shows.removeFilter(_without_error)


def _without_error(record: logging.LogRecord) -> bool:
    return record.exc_info is None


def _has_begun(query: StreamingQuery) -> bool:
    # After a restart, a query that has nothing to do makes no progress, and Spark reports none.
    return query.lastProgress is not None or _waits(query)


def _waits(query: StreamingQuery) -> bool:
    """Return whether a query has nothing to do at the moment."""
    return str(query.status["message"]).startswith("Waiting for")


def _answers(spark: SparkSession, options: SourceOptions, run: str) -> DataFrame:
    found = spark.readStream.format(SOURCE_NAME).option("fjord", msgspec.json.encode(options).decode()).load()
    if options.host is Host.STATELESS:
        return found
    return found.groupBy("bucket").transformWithState(
        statefulProcessor=DownstreamProcessor(options, run),
        outputStructType=OUTPUT_DDL,
        outputMode="Append",
        timeMode="None",
    )


def written_by_tasks(spark: SparkSession, files: Sequence[Numbering]) -> list[AddAction]:
    """Have data files written by tasks, a task for each; return their entries in order."""
    return list(spark.sparkContext.parallelize(files, len(files)).map(write_numbered).collect())


def storing(
    host: Host,
    checkpoint: CheckpointFiles,
    results: ResultsTable,
    files: UnnumberedFolder,
    write: Write,
    *,
    on_commit: Callable[[], None],
    on_counters: Callable[[Counters], None] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return what is done with the output of each micro-batch of a host.

    Parameters
    ----------
    host
        The host.
    checkpoint
        Spark's own files.
    results
        Where answers are stored.
    files
        The folder of the host's files that tasks have written and that wait for numbers.
    write
        Writes data files of those, in tasks.
    on_commit, on_counters
        As for :func:`start_engine`.
    """

    def store(outputs: DataFrame, micro_batch: int) -> None:
        # Always run the tasks: Spark goes on only from a state that all tasks of this very run have written.
        found = collected_outputs(outputs.toArrow())
        if found.counters and on_counters is not None:
            on_counters(found.counters)
        # If it were planned again after a power cut, with another end, its results would count as stored already.
        checkpoint.sync()
        if results.committed(micro_batch, host.value):
            log.info("micro-batch is stored already", host=host, micro_batch=micro_batch)
        elif found.in_files and host is Host.STATELESS:
            results.append_parts(found.parts(), micro_batch, host.value, write)
            on_commit()
        elif (rows := found.rows()).height:
            results.append(rows, micro_batch, host.value)
            on_commit()
        if found.in_files:
            files.clear()

    return store
