"""What processes and folders use: processor time, memory, disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import psutil

BROKER, PROXY, CLUSTER, SPARK = "broker", "proxy", "cluster", "Spark"
PARTS = (BROKER, PROXY, CLUSTER, SPARK)


class Use(msgspec.Struct, frozen=True):
    """What a part has used.

    Parameters
    ----------
    processor_seconds
        Since its start.
    memory_bytes
        Now: its proportional share of memory, so that what processes share counts once.
    busiest_seconds
        Processor time of the one process that has used most of it.
    """

    processor_seconds: float = 0.0
    memory_bytes: int = 0
    busiest_seconds: float = 0.0

    def __add__(self, other: Use) -> Use:
        """Return the use of two parts together."""
        return Use(
            self.processor_seconds + other.processor_seconds,
            self.memory_bytes + other.memory_bytes,
            max(self.busiest_seconds, other.busiest_seconds),
        )


class WatchedProcesses:
    """The processes of the parts, with their children.

    Parameters
    ----------
    roots
        By part: the number of its first process. What the cluster starts is Spark's: Java, and Python workers.
    """

    def __init__(self, roots: Mapping[str, int]) -> None:
        self._roots = {part: psutil.Process(number) for part, number in roots.items()}
        self._ended: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._seconds: dict[int, tuple[str, float]] = {}

    def use(self) -> dict[str, Use]:
        """Return what each part has used; processor time of processes that have ended counts on."""
        found = dict.fromkeys(PARTS, Use())
        alive: dict[int, tuple[str, float]] = {}
        for part, process in self._all():
            try:
                times = process.cpu_times()
                memory = process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            seconds = times.user + times.system
            alive[process.pid] = part, seconds
            found[part] += Use(seconds, memory, seconds)
        for number, (part, seconds) in self._seconds.items():
            if number not in alive:
                self._ended[part] += seconds
        self._seconds = alive
        return {part: each + Use(self._ended[part]) for part, each in found.items()}

    def _all(self) -> Iterator[tuple[str, psutil.Process]]:
        for part, root in self._roots.items():
            yield part, root
            try:
                children = root.children(recursive=True)
            except psutil.NoSuchProcess:
                continue
            for child in children:
                yield (SPARK if part == CLUSTER else part), child


def bytes_below(folder: Path) -> int:
    """Return how many bytes are in all files below a folder; files that vanish meanwhile count nothing."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(Path(root, name)).st_size
            except FileNotFoundError:
                continue
    return size
