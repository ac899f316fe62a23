"""The Spark session that the engine runs in."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.spark.cached_folders import cache_folder
from cluster.spark.callback_peers import refuse_other_users
from cluster.spark.class_archive import ClassArchive
from cluster.spark.home import SPARK_HOME, use_installed_pyspark
from cluster.spark.java import JavaRuntime, find_java, use_java
from cluster.spark.java_process import JavaEndedError, JavaProcess, public, start_java
from cluster.spark.launch_command import LaunchNote
from cluster.spark.local_files import write_local_files_quickly
from cluster.spark.spark_log import SparkLog, SparkStartError
from protocols.event_log import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""The default one knows no class of ours for files on a local disk (:mod:`cluster.spark.local_files`)."""
KEPT_MEMORY = "dirty_decay_ms:5000"
"""How long the memory manager of Polars keeps what operators have freed. The next micro-batch mostly comes within that
time; to ask the kernel for the same memory again, page by page, took a third of a worker's time."""
SPARK_FILES = "spark"
"""The folder of Spark's own files in a data folder."""
PYTHON = "PYSPARK_PYTHON"
"""The variable that says what runs Spark's Python processes."""
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms64m"
"""Java only forwards envelopes, in a small heap. The quicker of its two compilers saves seconds at the start and costs
nothing later; garbage collection with one thread leaves the processors to the operators. The heap begins small, as a
part of the machine's memory would be used before the first collection."""

SMALL_MICRO_BATCHES = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
"""A micro-batch has a few rows, with large values: writing Java for them, and compiling it, takes longer than they do.
It was done for each of a state's variables in each task, too. A count of the state's rows would read each value before
it is written."""

OF_PYSPARK = {
    "spark.serializer.objectStreamReset": "100",
    "spark.sql.artifact.isolation.enabled": "false",
}
"""Settings that PySpark adds to those of a context that it makes itself."""

REMEMBERED = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "2",
    "spark.sql.streaming.ui.enabled": "false",
}
"""What Spark remembers of the past for pages that are not served: by default a thousand micro-batches with their plans,
and a hundred thousand tasks, so that memory would grow for hours."""


log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How to run Spark.

    Parameters
    ----------
    master
        Spark's master URL; all cores of this machine unless given.
    partitions
        Shuffle partitions: how many tasks run the buckets.
    driver_memory
        Heap of the driver (in local mode, of everything on the Java side).
    extra
        Further Spark settings; they win.
    """

    master: str = "local[*]"
    partitions: int = 2
    driver_memory: str = "1g"
    extra: dict[str, str] = field(default_factory=dict)


def begin_java(
    settings: SessionSettings, local_folder: Path, log: SparkLog, runtime: JavaRuntime | None = None
) -> JavaProcess:
    """Start the Java of a session, and do not wait for it.

    Parameters
    ----------
    settings, local_folder, log
        As of the session that is opened later.
    runtime
        Which Java; None looks for one.

    Raises
    ------
    JavaMissingError
        If there is no Java.
    """
    runtime = runtime or find_java()
    options = _prepared(settings, local_folder, runtime)
    home, archive = Path(os.environ[SPARK_HOME]), class_archive(runtime, local_folder)
    # Without an archive, Java is run otherwise the next time: with it.
    note = LaunchNote.of(archive.file, home, public(options), os.environ) if archive.file.exists() else None
    with log.open() as file:
        return start_java(home, options, file, note)


def open_session(
    settings: SessionSettings, local_folder: Path, log: SparkLog | None = None, java: JavaProcess | None = None
) -> SparkSession:
    """Start Spark and return its session.

    Parameters
    ----------
    settings
        How to run it.
    local_folder
        For its own files.
    log
        What Java and its Python workers write to; None for the terminal.
    java
        The Java that :func:`begin_java` has started; None starts one.

    Raises
    ------
    JavaMissingError
        If there is no Java to run it.
    SparkStartError
        If it does not start.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs JAVA_HOME to be set
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if java is None and log is not None and SparkContext._gateway is None:  # noqa: SLF001 - whether there is one
        java = begin_java(settings, local_folder, log)
    options = _prepared(settings, local_folder) if java is None else java.options
    conf = SparkConf().setAll(list(options.items()))
    try:
        if java is not None:
            gateway = _connected(java)
            SparkContext(conf=conf, gateway=gateway, jsc=_java_context(gateway, java.options))
        session: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        if java is not None:
            java.end()
        if isinstance(error, JavaEndedError):
            class_archive(find_java(), local_folder).remove()  # Java does not start with a damaged one
            if java is not None and java.note is not None:
                java.note.remove()
        raise SparkStartError(str(error), log, 0 if java is None else java.log_begins) from error
    refuse_other_users(session.sparkContext._gateway)  # noqa: SLF001 - PySpark gives no other way to it
    session.sparkContext.setLogLevel("ERROR")
    write_local_files_quickly(session)
    return session


def _prepared(settings: SessionSettings, local_folder: Path, runtime: JavaRuntime | None = None) -> dict[str, str]:
    """Set the variables that Spark and its processes read; return Spark's settings."""
    java = runtime or find_java()
    if not settings.master.startswith("local") and "spark.authenticate.secret" not in settings.extra:
        log.warning("any program that reaches Spark can run code in it", hint="set spark.authenticate.secret")
    use_java(java)
    os.environ.setdefault(PYTHON, sys.executable)
    # Otherwise Spark looks for the machine's address on the network, and prints a warning.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    local_folder.mkdir(parents=True, exist_ok=True)
    use_installed_pyspark()
    return {
        "spark.app.name": "fjord",
        "spark.master": _repeating(settings.master),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": class_archive(java, local_folder).java_options(),
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        **_proof(settings),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **OF_PYSPARK,
        **REMEMBERED,
        "spark.local.dir": str(local_folder),
        "spark.sql.warehouse.dir": str(local_folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(settings.partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": ROCKS_DB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        "spark.sql.streaming.pollingDelay": "3ms",  # the source waits itself while nothing comes
        "spark.sql.streaming.minBatchesToRetain": "20",
        **SMALL_MICRO_BATCHES,
        "spark.python.worker.reuse": "true",
        # Over TCP each task waits 40 ms for its input: a small packet waits until the one before it is acknowledged.
        "spark.python.unix.domain.socket.enabled": "true",
        # One operator's work is small: threads would cost each Polars call more than they save.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.executorEnv._RJEM_MALLOC_CONF": KEPT_MEMORY,
        # A folder `cluster` where the cluster is started, such as its data, would hide the package of this name.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **settings.extra,
    }


_ONE_MACHINE: Final = re.compile(r"local(?:\[([0-9]+|\*)\])?")
"""Masters for which Spark draws a secret; with others it does not start without one."""
ATTEMPTS: Final = 4
"""How often a task is run before the micro-batch fails: once more than it takes to leave out a fragment over which
workers end (:data:`cluster.fjord.overruns.CRASHES`). It is Spark's own number for clusters of machines."""


def _repeating(master: str) -> str:
    """Return a master with which tasks are run again if a worker ends; on one machine that has to be asked for."""
    cores = _ONE_MACHINE.fullmatch(master)
    return f"local[{cores[1] or 1},{ATTEMPTS}]" if cores else master


def _proof(settings: SessionSettings) -> dict[str, str]:
    """Return the settings by which Spark's processes prove to each other that they belong together.

    On one machine Spark draws a secret of its own. The processes of a cluster of machines have to be given one; what
    they send each other is encrypted then, too.
    """
    if _ONE_MACHINE.fullmatch(settings.master):
        return {"spark.authenticate": "true"}
    if "spark.authenticate.secret" in settings.extra:
        return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    return {}


def class_archive(java: JavaRuntime, local_folder: Path) -> ClassArchive:
    """Return the archive of the classes that a session with these files of its own loads."""
    return ClassArchive.of(
        java.home,
        Path(os.environ[SPARK_HOME]),
        JAVA_OPTIONS,
        cache=cache_folder(os.environ),
        classes=local_folder / "classes",
    )


async def archive_classes(session: SparkSession, local_folder: Path) -> None:
    """Archive the classes that a session has loaded, for later ones."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as below

    java: Any = session._jvm  # noqa: SLF001 - Java alone knows what it was started with
    try:
        class_path = await asyncio.to_thread(java.java.lang.System.getProperty, "java.class.path")
        await class_archive(await asyncio.to_thread(find_java), local_folder).write(class_path)
    except (Py4JError, OSError) as error:
        log.info("Java's classes cannot be archived", reason=str(error))


def _connected(java: JavaProcess) -> Any:
    """Return PySpark's connection to a Java, once that listens."""
    from pyspark import java_gateway  # noqa: PLC0415 - as above

    connect: Any = java_gateway.launch_gateway  # it has no types
    with java.found():
        gateway = connect()
    gateway.proc = java.process  # as if PySpark had started it; without its standard input Java would end
    return gateway


def _java_context(gateway: Any, options: Mapping[str, str]) -> Any:
    """Return the context that Java has or makes; if it is just making it, once that is done."""
    from pyspark import SparkConf  # noqa: PLC0415 - as above

    conf: Any = SparkConf(_jvm=gateway.jvm).setAll(list(options.items()))
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate(conf._jconf)  # noqa: SLF001 - as PySpark does
    return gateway.jvm.JavaSparkContext.fromSparkContext(context)
