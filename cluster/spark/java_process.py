"""The Java that Spark runs in: started early, by the command that Spark's launcher would run, remembered.

**The command with which Spark's launcher runs Java, remembered: the launcher is another Java, and two shells.**

    first starts    spark-submit -> launcher -> Java, whose command is noted
    later starts    Java

What the launcher's answer depends on is in the name of the note; where that cannot be seen, nothing is noted.

PySpark itself starts Java and waits for it. But it also talks to a Java that has been started before, if variables say
where that is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from protocols.child_process import child_environment

MAIN: Final = "org.apache.spark.deploy.SparkSubmit"
OF_FOLDERS: Final = frozenset({"spark.local.dir", "spark.sql.warehouse.dir", "spark.executorEnv.PYTHONPATH"})
"""Settings that the launcher only hands on, and that differ between data folders."""
READ: Final = ("SPARK_", "HADOOP_", "YARN_", "JAVA_", "JDK_", "_JAVA_")
"""Beginnings of the variables that the launcher, its shells or Java read."""
SET: Final = ("SPARK_", "PYTHON")
"""Beginnings of those that its shells set for Java."""
UNUSED_SECONDS: Final = 30 * 24 * 3600.0
"""Notes that no start has used for so long are removed."""
_PROCESSES: Final = Path("/proc")


class Launch(msgspec.Struct, frozen=True):
    """How Java is run: its command up to the class, and variables that it has besides."""

    command: tuple[str, ...]
    variables: dict[str, str]


@dataclass(frozen=True, slots=True)
class LaunchNote:
    """Where the command is noted.

    Parameters
    ----------
    file
        The file; it may not exist yet.
    """

    file: Path

    @classmethod
    def of(
        cls, archive: Path, spark_home: Path, options: Mapping[str, str], variables: Mapping[str, str]
    ) -> LaunchNote | None:
        """Return the note for a start, or None if the launcher reads files of the user's.

        Parameters
        ----------
        archive
            Of Java's classes; its name distinguishes versions of Java and Spark, with all jars.
        spark_home
            The folder of Spark.
        options
            Its settings.
        variables
            The environment.
        """
        if "SPARK_CONF_DIR" in variables or (spark_home / "conf").exists():
            return None
        found = [archive.name]
        found += sorted(f"{name}={value}" for name, value in options.items() if name not in OF_FOLDERS)
        found += sorted(f"{name}={value}" for name, value in variables.items() if name.startswith(READ))
        name = hashlib.sha256("\0".join(found).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return cls(archive.with_name(f"launch-{name}.json"))

    def read(self) -> Launch | None:
        """Return how Java is run; None if that is not known."""
        try:
            launch = msgspec.json.decode(self.file.read_bytes(), type=Launch)
            os.utime(self.file)  # it is in use
        except (OSError, msgspec.DecodeError):
            return None
        return launch if launch.command and Path(launch.command[0]).exists() else None

    def write(self, process: int, variables: Mapping[str, str]) -> None:
        """Note how a Java runs, unless that is noted, or cannot be seen.

        Parameters
        ----------
        process
            Its number.
        variables
            The environment in which the launcher was started.
        """
        with contextlib.suppress(OSError, ValueError):
            if self.file.exists():
                return
            words = _words(_PROCESSES / str(process) / "cmdline")
            seen = dict(each.split("=", 1) for each in _words(_PROCESSES / str(process) / "environ"))
            more = {name: value for name, value in seen.items() if name.startswith(SET) and name not in variables}
            launch = Launch(tuple(words[: words.index(MAIN)]), more)
            with tempfile.NamedTemporaryFile(dir=self.file.parent, prefix=".launch-", delete=False) as draft:
                draft.write(msgspec.json.encode(launch))
            Path(draft.name).replace(self.file)
            for other in self.file.parent.glob("launch-*.json"):
                if time.time() - other.stat().st_mtime > UNUSED_SECONDS:
                    other.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget it."""
        with contextlib.suppress(OSError):
            self.file.unlink(missing_ok=True)


def _words(file: Path) -> list[str]:
    return file.read_bytes().decode("utf-8").removesuffix("\0").split("\0")


PROGRAM: Final = Path("bin") / "spark-submit"
SHELL: Final = "pyspark-shell"
"""What Spark calls a program that talks to it, instead of one that it runs."""
WHERE: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
PORT: Final = "PYSPARK_GATEWAY_PORT"
SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105 - the name of a variable
"""Variables by which Java and PySpark find each other."""
POLLING_SECONDS: Final = 0.01
LONGEST_START_SECONDS: Final = 180.0
"""Until Java listens. One that cannot write where it does so shows an error in its log and goes on for ever."""
_NUMBERS: Final = struct.Struct("!ii")


_SECRET = re.compile("secret|password|token", re.IGNORECASE)
"""In the names of settings whose values Spark itself hides, too."""


class JavaEndedError(OSError):
    """Java has ended, or was ended, before PySpark could talk to it."""


@dataclass(frozen=True, slots=True)
class JavaProcess:
    """A Java that starts, or waits for PySpark. It ends when its standard input does.

    Parameters
    ----------
    process
        It.
    options
        Spark's settings.
    where
        The file to which it writes where it listens, in a folder of its own.
    log_begins
        Position in its log at which it begins.
    note
        Where the command that runs it is noted.
    """

    process: subprocess.Popen[bytes]
    options: Mapping[str, str]
    where: Path
    log_begins: int
    note: LaunchNote | None = None

    @property
    def descriptor(self) -> int:
        """The descriptor of its standard input: whatever holds it keeps Java running."""
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        return self.process.stdin.fileno()

    @contextmanager
    def found(self) -> Iterator[None]:
        """Wait until Java listens; inside, PySpark finds it.

        Raises
        ------
        JavaEndedError
            If it has ended, or does not listen for long.
        """
        until = time.monotonic() + LONGEST_START_SECONDS
        try:
            while not self.where.exists():
                if self.process.poll() is not None:
                    raise JavaEndedError(f"Java has ended with code {self.process.returncode}")
                if time.monotonic() > until:
                    self.process.terminate()
                    raise JavaEndedError(f"Java does not listen after {LONGEST_START_SECONDS:.0f} seconds")
                time.sleep(POLLING_SECONDS)
            port, secret = listens_at(self.where)
        finally:
            self._remove_file()
        if self.note is not None:
            self.note.write(self.process.pid, os.environ)
        os.environ.update({PORT: str(port), SECRET: secret})
        try:
            yield
        finally:
            del os.environ[PORT], os.environ[SECRET]

    def kill_children(self) -> None:
        """Kill what it has started, on Linux: Spark's Python processes, and with them their forks and workers."""
        for listed in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread, or the process, has ended
                for child in listed.read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(child), signal.SIGKILL)

    def end(self) -> None:
        """Let it end, if it has not.

        One that is not used yet is terminated, too: it reads its input only after it has written where it listens, and
        without the folder for that it would go on for ever.
        """
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self.where.parent.exists():
            self.process.terminate()
        self._remove_file()

    def _remove_file(self) -> None:
        shutil.rmtree(self.where.parent, ignore_errors=True)


def listens_at(where: Path) -> tuple[int, str]:
    """Return the port and the secret of a Java that has written them to a file."""
    written = where.read_bytes()
    port, length = _NUMBERS.unpack_from(written)
    return port, written[_NUMBERS.size : _NUMBERS.size + length].decode()


def public(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are no secrets."""
    return {name: value for name, value in options.items() if not _SECRET.search(name)}


def start_java(
    spark_home: Path, options: Mapping[str, str], output: BinaryIO, note: LaunchNote | None = None
) -> JavaProcess:
    """Start a Java for Spark, and do not wait for it.

    Parameters
    ----------
    spark_home
        The folder of Spark.
    options
        Its settings.
    output
        The log, to which Java and its processes write.
    note
        Where the command that Spark's launcher runs is noted, or will be.
    """
    # Every user of the machine sees the command line; secrets are set once Java is connected.
    settings = [word for name, value in public(options).items() for word in ("--conf", f"{name}={value}")]
    where = Path(tempfile.mkdtemp(prefix="fjord-java-")) / "where"
    begins = output.tell()
    launch = None if note is None else note.read()
    program = [str(spark_home / PROGRAM)] if launch is None else [*launch.command, MAIN]
    process = subprocess.Popen(
        [*program, *settings, SHELL],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env={
            **child_environment(),
            **(launch.variables if launch else {}),
            WHERE: str(where),
            "SPARK_CONNECT_MODE": "0",
        },
        preexec_fn=_ignore_interrupts,  # noqa: PLW1509 - as PySpark does: Ctrl-C is for this process
    )
    return JavaProcess(process, options, where, begins, note)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
