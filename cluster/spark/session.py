"""The Spark session that the engine runs in: its home, how Java writes files, and which processes may call this one.

**A home for Spark in which its Python workers find PySpark compiled.**

Spark puts an archive of PySpark's sources, `python/lib/pyspark.zip`, first on the path of each Python process that it
starts. Python caches no compiled code for an archive: each of these processes, at least seven, would compile
PySpark, which takes half a second. In a home without the archive they import the installed package.

**How Java writes files on a local disk: with no other process for each.**

To set permissions, Hadoop starts a `chmod` for every file and folder that it makes, four times in a micro-batch, unless
it finds its own native library, which PySpark does not bring. Java can set them itself. A class that does is compiled
here by the compiler that Spark has for its own code, and takes the place of Hadoop's class for local files.

**Java's calls into this process, which are let in from processes of the same user only.**

Spark's Java calls functions of Python, such as those of a sink, over a socket of the loopback device. Its library asks
for no token there: Java's side of it has none to show after Spark has named it the port. Any user of this machine
could call them. The kernel knows whose the other end of a connection is.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.spark.class_archive import ClassArchive
from cluster.spark.java import JavaRuntime, cache_folder, cached_folder, find_java, link_entries, use_java
from cluster.spark.java_process import JavaEndedError, JavaProcess, LaunchNote, public, start_java
from cluster.spark.spark_log import SparkLog, SparkStartError
from protocols.event_log import get_logger, is_logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_HOME = "SPARK_HOME"


def use_installed_pyspark() -> None:
    """Make the workers of Spark sessions that this process starts import the installed PySpark.

    A ``SPARK_HOME`` that is set stays: the PySpark there may be another one.
    """
    if SPARK_HOME not in os.environ:
        os.environ[SPARK_HOME] = str(home_without_archives(cache_folder(os.environ)))


def home_without_archives(cache: Path) -> Path:
    """Return a home for Spark that has everything of the installed one but archives of Python code.

    Parameters
    ----------
    cache
        Where it is made, unless it is there.
    """
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("PySpark is not installed: pip install pyspark", name="pyspark")
    installed = Path(package.origin).parent
    return cached_folder(
        cache,
        "spark",
        f"{installed} {version('pyspark')}",
        lambda folder: link_entries(installed, folder, without={"python"}),
    )


CLASS: Final = "fjord.LocalFiles"
SOURCE: Final = """
package fjord;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Plain());
    }

    public static class Plain extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
            } else {
                String text = permission.toString();
                Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
            }
        }
    }
}
"""

log = get_logger(__name__)


def write_local_files_quickly(session: SparkSession) -> None:
    """Let Java set permissions of local files itself, and write no file of checksums beside each.

    Parameters
    ----------
    session
        A session in which nothing runs yet.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs JAVA_HOME to be set

    java: Any = session._jvm  # noqa: SLF001 - no setting of Spark's reaches this
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    file_system = java.org.apache.hadoop.fs.FileSystem
    try:
        compiler = java.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(configuration.getClassLoader())
        compiler.cook(SOURCE)
        ours = java.org.apache.hadoop.conf.Configuration(configuration)
        ours.setClassLoader(compiler.getClassLoader())
        ours.set("fs.file.impl", CLASS)
        known = file_system.getLocal(configuration)
        known.close()  # and is forgotten: whatever asks for local files from now on is given the next one
        file_system.get(known.getUri(), ours)
    except Py4JError as error:
        log.info("Java starts a process for each file that it writes", reason=str(error))
    # Spark's default manager of checkpoints has none either.
    file_system.getLocal(configuration).setWriteChecksum(False)


TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""Where Linux lists connections, with their owners."""
MOST_READINGS: Final = 8
"""Of these tables: a line may be missing while others come and go, since the kernel writes them piece by piece."""
_MAPPED: Final = "0000000000000000FFFF0000"
"""Before an address of IPv4, as IPv6 writes it, in these tables."""
_LOCAL, _REMOTE, _OWNER = 1, 2, 7
"""Fields of a line."""


def owner_of(lines: Iterable[str], local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """Return the user of one end of a connection; None if it is not listed.

    Parameters
    ----------
    lines
        Of the tables of connections.
    local, remote
        Addresses of IPv4, and ports: that of the end, and of the other one.

    Examples
    --------
    >>> line = "0: 0100007F:9C41 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 65534 0 4711"
    >>> owner_of([line], ("127.0.0.1", 40001), ("127.0.0.1", 8080))
    65534
    """
    ends = [{_written(*end), _MAPPED + _written(*end)} for end in (local, remote)]
    for line in lines:
        fields = line.split()
        if len(fields) > _OWNER and fields[_LOCAL] in ends[0] and fields[_REMOTE] in ends[1]:
            return int(fields[_OWNER])
    return None


def _written(address: str, port: int) -> str:
    number = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    return f"{number:08X}:{port:04X}"


def is_own(connection: socket.socket) -> bool:
    """Return whether the other end of a connection over the loopback device is of this process's user.

    It is not if it is closed. This never raises: py4j would accept no further connection.
    """
    try:
        ends = connection.getpeername(), connection.getsockname()
        for _ in range(MOST_READINGS):
            lines = [line for table in TABLES if table.exists() for line in table.read_text("ascii").splitlines()]
            owner = owner_of(lines, *ends)
            if owner is not None:
                return owner == os.geteuid()
    except OSError:
        return False
    return False


class _Refused:
    """A connection that is closed instead of served."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def start(self) -> None:
        """Close it."""
        self.socket.close()

    def close(self) -> None:
        """It is closed already."""


def refuse_other_users(gateway: Any) -> None:
    """Let only processes of this user call functions of this process; before anything has been registered to be called.

    Where the kernel does not list connections (other systems than Linux), nothing is refused, and the log reports it.

    Parameters
    ----------
    gateway
        PySpark's connection to Java.
    """
    from py4j.clientserver import PythonServer  # noqa: PLC0415 - needs JAVA_HOME to be set

    if not TABLES[0].exists():
        log.warning("other users of this machine can call functions of this process", reason=f"there is no {TABLES[0]}")
        return

    times = count(1)

    class CheckedServer(PythonServer):  # type: ignore[misc]  # it has no types
        def _create_connection(self, connection: socket.socket, stream: Any) -> Any:
            if is_own(connection):
                return super()._create_connection(connection, stream)
            refused = next(times)
            if is_logged(refused):
                log.error("a connection of another user to Java's callbacks was refused", times=refused)
            stream.close()
            return _Refused(connection)

    def make_server(_: object) -> CheckedServer:
        return CheckedServer(
            gateway._gateway_client,  # noqa: SLF001 - as py4j makes its own server
            gateway.java_parameters,
            gateway.python_parameters,
            gateway.gateway_property,
        )

    gateway._create_callback_server = make_server  # noqa: SLF001 - where py4j makes its own server


ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""The default one knows no class of ours for files on a local disk."""
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
