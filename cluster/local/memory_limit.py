"""A limit on the memory of this process, with an error before the machine runs out of memory.

How much a query keeps and makes is known only when it runs: the product of two windows has as many rows as both
multiplied. With a limit set in the operating system (``RLIMIT_AS``), Polars would end the process without a message,
and counting rows between operators comes too late if one operator makes them all. So a thread measures again and again
how much memory is in use; it can, since operators compute without Python's lock.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError
from cluster.fjord.at_work import NOW
from protocols.text.quantities import format_byte_size

EVERY_SECONDS: Final = 0.02
"""Between two measurements a process grows by some ten megabytes, not gigabytes."""
LEAST_BYTES: Final = 256 * 1024**2
"""A default limit is not lower: libraries alone take half of it."""
_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


class MemoryLimitError(ClusterError):
    """The query needs more memory than its limit.

    Parameters
    ----------
    limit_bytes
        Most memory that it may take.
    operator
        Kind of the operator that was running; None if files were being read.
    """

    def __init__(self, limit_bytes: int, operator: str | None) -> None:
        at_work = "while files were read" if operator is None else f"in operator {operator}"
        super().__init__(
            f"the query needs more memory than {format_byte_size(limit_bytes)}: {at_work}",
            hint="make its windows shorter or their steps longer, join on columns that must be equal, try it on a "
            "part of the files, or allow more with --memory",
        )
        self.limit_bytes = limit_bytes
        self.operator = operator


def default_limit(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Return half of the memory that is free, on this machine and in this container.

    Parameters
    ----------
    proc, cgroup
        Where the operating system reports it.
    """
    return max(min([_free(proc), *_allowed(cgroup)]) // 2, LEAST_BYTES)


@contextmanager
def limited_memory(
    limit_bytes: int, exceeded: Callable[[MemoryLimitError], None], *, measure: Callable[[], int] | None = None
) -> Iterator[None]:
    """Watch the memory of this process while something runs.

    Parameters
    ----------
    limit_bytes
        Most memory that it may take.
    exceeded
        Called once, in another thread, if it takes more; the process cannot go on afterwards.
    measure
        Returns how much it takes now; from the operating system unless given.
    """
    taken = measure or resident_bytes
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY_SECONDS):
            if taken() > limit_bytes:
                exceeded(MemoryLimitError(limit_bytes, NOW.operator))
                return

    watching = threading.Thread(target=watch, name="memory limit", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def resident_bytes() -> int:
    """Return how much memory this process takes or, on systems that do not report that, the most it has taken."""
    try:
        pages = int((_PROC / "self" / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def _free(proc: Path) -> int:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _allowed(cgroup: Path) -> Iterator[int]:
    """Yield the limits of a container, if it has any, by version 2 and 1 of control groups."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            yield int((cgroup / name).read_text())
        except (OSError, ValueError):  # there is none, or its value is "max"
            continue
