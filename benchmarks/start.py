"""What a cluster costs until it is ready, and idle: seconds, processor time, and memory by process.

Starts a broker and a cluster as separate processes in a new data folder, as a user would, and waits until a new query
no longer waits for Spark. Memory is the proportional set size (PSS): pages that processes share are counted once.
Java maps an archive of its classes once a cluster has run for some minutes; before, starts take half as long again. So
that archive is written first; with --quick, `classes_archived` says whether there is one.

    python benchmarks/start.py [--quick] [--json] [--rounds 3] [--idle 10]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from archived_classes import classes_are_archived

from cluster.demo.parts import Children, Parts
from protocols.event_log import configure_logging

RESULTS = Path(__file__).parent / "results"
GIBIBYTE, MEBIBYTE = 1024**3, 1024**2
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a cluster, and its processor time with that of its children that have ended."""

    name: str
    pss_bytes: int
    processor_s: float


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a cluster."""

    ready_s: float
    processor_s: float
    idle: tuple[Process, ...]

    @property
    def pss_gib(self) -> float:
        """Memory of all its processes."""
        return sum(each.pss_bytes for each in self.idle) / GIBIBYTE


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="start once")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--idle", type=float, default=10.0, help="seconds from ready to the look at memory")
    options = arguments.parse_args()
    if options.quick:
        options.rounds = 1
    configure_logging("warning")
    archived = classes_are_archived(quick=options.quick)
    starts = [started(options.idle) for _ in range(options.rounds)]
    report = described(starts) | {"classes_archived": archived}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "start.json").write_text(json.dumps(report, indent=2) + "\n")
    plot(starts[-1].idle, RESULTS / "start.png")
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        if name != "processes":
            print(f"{name:28} {value}")
    for each in report["processes"]:
        print(f"  {each['pss_mib']:7.1f} MiB {each['processor_s']:6.2f} s  {each['name']}")
    print(f"written: {RESULTS / 'start.json'}, {RESULTS / 'start.png'}")


def started(idle_s: float) -> Start:
    """Start a cluster in a new folder; return what that cost."""
    with tempfile.TemporaryDirectory(prefix="fjord-start-") as folder, Children(Path(folder) / "logs") as children:
        parts = Parts.on_free_ports(children, Path(folder))
        parts.start_broker()
        began = time.monotonic()
        cluster = parts.start_cluster()
        ready_s = time.monotonic() - began
        parent = psutil.Process(cluster.process.pid)
        used = sum(each.processor_s for each in looked_at(parent))
        time.sleep(idle_s)
        return Start(ready_s, used, looked_at(parent))


def looked_at(parent: psutil.Process) -> tuple[Process, ...]:
    """Return a process and all that it has started, the largest first."""
    found = []
    for each in (parent, *parent.children(recursive=True)):
        try:
            times, memory = each.cpu_times(), each.memory_full_info()
            used = times.user + times.system + times.children_user + times.children_system
            found.append(Process(name_of(each), memory.pss, used))
        except psutil.NoSuchProcess:
            continue
    return tuple(sorted(found, key=lambda each: -each.pss_bytes))


def name_of(process: psutil.Process) -> str:
    """Return what a process runs: its program, or the module that Python runs.

    A fork has the command line of the process that it was forked from, and a name of its own.
    """
    line = process.cmdline()
    if line and process.name() not in Path(line[0]).resolve().name:
        return f"fork: {process.name()}"
    if "-m" in line:
        return " ".join(line[line.index("-m") + 1 :][:3])[:LONGEST_NAME]
    return Path(line[0]).name if line else process.name()


def described(starts: Sequence[Start]) -> dict[str, Any]:
    """Return the report: medians, spreads, and the processes of the last start."""
    ready = [each.ready_s for each in starts]
    processor = [each.processor_s for each in starts]
    pss = [each.pss_gib for each in starts]
    return {
        "ready_s": round(statistics.median(ready), 1),
        "ready_s_spread": round(max(ready) - min(ready), 1),
        "ready_processor_s": round(statistics.median(processor), 1),
        "ready_processor_s_spread": round(max(processor) - min(processor), 1),
        "idle_pss_gib": round(statistics.median(pss), 2),
        "idle_pss_gib_spread": round(max(pss) - min(pss), 2),
        "rounds": len(starts),
        "processes": [
            {
                "name": each.name,
                "pss_mib": round(each.pss_bytes / MEBIBYTE, 1),
                "processor_s": round(each.processor_s, 2),
            }
            for each in starts[-1].idle
        ],
    }


def plot(processes: Sequence[Process], path: Path) -> None:
    """Draw the memory of each process."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(9, 4))
    places = range(len(processes))
    axes.barh(list(places), [each.pss_bytes / MEBIBYTE for each in processes])
    axes.set_yticks(list(places), [each.name for each in processes], fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="proportional set size, idle (MiB)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
