"""The file that Java, and the Python workers that it starts, write to instead of the terminal.

Java appends to the file itself: a process in between, or a thread of ours that reads a pipe, could be killed or slow,
and Java would wait for it. So a file that has grown large is copied over the older one and emptied; what Spark writes
between these two steps is lost.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from cluster.errors import ClusterError

SPARK_LOG: Final = Path("logs") / "spark.log"
"""Where it is in a cluster's data folder."""
MOST_BYTES: Final = 8 * 1024**2
QUOTED_LINES: Final = 12
_END_BYTES: Final = 64 * 1024
_UNIMPORTANT: Final = re.compile(
    r"\s*$|\s+at \S|\s+\.\.\. \d+ more|.* WARN "
    r"|[\w.$/<>]+\((Native Method|[\w.]+(:\d+)?)\)$"
    r"|WARNING: Using incubator|Using Spark's default log4j|Setting default log level|To adjust logging level"
)
"""Empty lines, places in Java's code, and what Java and Spark write at every start."""


class SparkStartError(ClusterError):
    """Spark could not be started.

    Parameters
    ----------
    reason
        Why, as far as Python knows.
    log
        The log that it wrote to; None for the terminal.
    since
        Position in the log at which this start begins.
    """

    def __init__(self, reason: str, log: SparkLog | None, since: int = 0) -> None:
        lines = [] if log is None else log.important_lines(since)
        quoted = "; its last output:\n" + "\n".join(lines) if lines else f": {reason}"
        hint = None if log is None else f"its whole output is in {log.path}"
        super().__init__(f"Spark did not start{quoted}", hint=hint)


class SparkEndedError(ClusterError):
    """The Java in which Spark runs has ended.

    Parameters
    ----------
    log
        The log that it wrote to.
    """

    def __init__(self, log: SparkLog) -> None:
        super().__init__(
            "the Java in which Spark runs has ended: it was killed, or ran out of memory",
            hint=f"start the cluster again, which goes on where it was; what Java wrote is in {log.path}",
        )


@dataclass(frozen=True, slots=True)
class SparkLog:
    """A log, and the older one beside it.

    Parameters
    ----------
    path
        The file; the older one has the same name with ``.1`` behind it.
    most_bytes
        A larger file becomes the older one.
    """

    path: Path
    most_bytes: int = MOST_BYTES

    @property
    def older(self) -> Path:
        """The file with what was written before."""
        return self.path.with_name(f"{self.path.name}.1")

    def open(self) -> BinaryIO:
        """Open the file for a process that appends to it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.open("ab")

    def rotate(self) -> None:
        """Make a file that is too large the older one."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_size <= self.most_bytes:
                return
            with contextlib.suppress(OSError):  # a full disk has no room for a copy, nor for more lines
                shutil.copyfile(self.path, self.older)
            os.truncate(self.path, 0)

    def important_lines(self, since: int = 0) -> list[str]:
        """Return the last important lines from a position on: no places in Java's code, for example."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(since if since <= size else 0, size - _END_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return [line for line in lines if not _UNIMPORTANT.match(line)][-QUOTED_LINES:]
