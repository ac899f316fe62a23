"""The command with which Spark's launcher runs Java, remembered: the launcher is another Java, and two shells.

    first starts    spark-submit -> launcher -> Java, whose command is noted
    later starts    Java

What the launcher's answer depends on is in the name of the note; where that cannot be seen, nothing is noted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

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
