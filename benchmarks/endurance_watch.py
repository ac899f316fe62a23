"""Memory, processor time, disk, rows and lag of the parts of benchmarks/endurance.py while they run."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from cluster.demo.parts import Child
from cluster.service.client.api_client import ApiClient, ApiUnreachableError
from cluster.sizing.measuring import bytes_below

MEBIBYTE = 1024**2
MEMORY_OF = ("broker", "proxy", "cluster", "jvm", "workers")
DISK_OF = ("proxy", "streams", "results", "checkpoint")


class Watch:
    """Measures the parts.

    Parameters
    ----------
    children
        By name: broker, proxy and cluster. Spark's Java and Python workers are children of the cluster.
    folder
        Of all their data.
    api
        Of the cluster.
    metrics_port
        Of the proxy.
    """

    def __init__(self, children: Mapping[str, Child], folder: Path, api: ApiClient, metrics_port: int) -> None:
        self._watched = {name: psutil.Process(child.process.pid) for name, child in children.items()}
        self._folder = folder
        self._api = api
        self._metrics = f"http://127.0.0.1:{metrics_port}/metrics"
        self._seen: dict[int, psutil.Process] = {}
        self._began = time.monotonic()

    def look(self, *, disk: bool) -> dict[str, Any]:
        """Return the present figures; sizes in MiB.

        Parameters
        ----------
        disk
            Whether to measure the disk, too, which takes longer.
        """
        found: dict[str, Any] = {"at_s": round(time.monotonic() - self._began, 1)}
        found |= self._processes()
        found |= self._rows()
        if disk:
            found |= {f"{name}_disk_mib": size for name, size in self._disk().items()}
        return found

    def _processes(self) -> dict[str, float]:
        memory, used = dict.fromkeys(MEMORY_OF, 0), dict.fromkeys(MEMORY_OF, 0.0)
        workers = 0
        for name, root in self._watched.items():
            for process in (root, *root.children(recursive=True)):
                known = self._seen.setdefault(process.pid, process)
                try:
                    kind = _kind(name, known, is_root=process.pid == root.pid)
                    memory[kind] += known.memory_info().rss
                    times = known.cpu_times()
                    used[kind] += times.user + times.system
                except psutil.NoSuchProcess:
                    self._seen.pop(process.pid, None)
                    continue
                workers += kind == "workers"
        return {
            **{f"{name}_mib": round(size / MEBIBYTE, 1) for name, size in memory.items()},
            **{f"{name}_cpu_s": round(seconds, 1) for name, seconds in used.items()},
            "worker_processes": workers,
        }

    def _rows(self) -> dict[str, Any]:
        try:
            status = self._api.status()
        except ApiUnreachableError:
            return {}
        micro_batches = status["fjord"]["micro_batches"]
        found = {
            "rows_stored": status["rows_stored"],
            "rows_late": status["rows_late"],
            "rows_published": status["rows_published"],
            "unpublished_commits": status["results"]["unpublished_commits"],
            "restarts": status["fjord"]["starts"] - 1,
            **{f"{host}_ms": last["milliseconds"] for host, last in micro_batches.items()},
            **{f"{host}_micro_batches": last["number"] for host, last in micro_batches.items()},
        }
        return found | self._spool()

    def _spool(self) -> dict[str, float]:
        try:
            with urllib.request.urlopen(self._metrics, timeout=5.0) as answer:  # noqa: S310 - our own proxy
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}
        wanted = {"fjord_proxy_spool_batches": "spool_batches", "fjord_proxy_samples_waiting": "proxy_waiting"}
        named = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {wanted[key]: float(value) for text, _, value in named if (key := text.partition("{")[0]) in wanted}

    def _disk(self) -> dict[str, float]:
        folders = (*Path(self._folder, "cluster").iterdir(), *self._folder.iterdir())
        sizes = {path.name.partition("-")[0]: size_of(path) for path in folders if path.name not in {"logs", "cluster"}}
        found = {name: sizes.get(name, 0) for name in DISK_OF} | {"total": sum(sizes.values())}
        return {name: round(size / MEBIBYTE, 1) for name, size in found.items()}


def size_of(path: Path) -> int:
    """Return how many bytes are in a file, or in all files below a folder."""
    return path.stat().st_size if path.is_file() else bytes_below(path)


def _kind(name: str, process: psutil.Process, *, is_root: bool) -> str:
    if is_root or name != "cluster":
        return name
    return "jvm" if "java" in process.name() else "workers"
