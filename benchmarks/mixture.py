"""A live mixture of queries: how long micro-batches take in steady state, and while queries are being added.

Starts broker, cluster, proxy and motes that sample once a second, as separate processes, and adds queries of three
kinds one by one through the API: filters, aggregates over sliding windows of several sizes, and distinct counts. Every
duration is that of Spark's own progress report on a micro-batch. Memory and processor time are those of each part.
Unless it is to be quick, Java's classes are archived before, so that nothing else is done in the background, and the
proxy alone is measured afterwards, as ``mixture_proxy.py`` does.

    python benchmarks/mixture.py [--quick] [--json] [--motes 300] [--queries 100] [--seconds 90] [--replan on]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import mixture_proxy
import psutil
from archived_classes import classes_are_archived
from reports import write_report
from spark_progress import MicroBatch, micro_batches, settings_that_log_progress

from cluster.demo.parts import Child, Children, Parts, is_ready
from cluster.service.client.api_client import ApiClient
from cluster.sizing.loads import mixture
from cluster.sizing.measuring import quantile
from protocols.event_log import configure_logging

SETTLE_SECONDS = 15.0
"""Not measured: after Spark has run the last new plan motes get their programs, and windows fill."""
PLANS_SECONDS = 120.0
"""For how long Spark may be behind with new plans."""
PROXY_SECONDS = 20.0
"""For one query, and for the mixture."""
HOSTS = ("stateful", "stateless")


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="100 motes and 40 queries, measured for 12 s")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--motes", type=int, default=300)
    arguments.add_argument("--queries", type=int, default=100)
    arguments.add_argument("--seconds", type=float, default=90.0, help="in steady state")
    arguments.add_argument("--replan", choices=("on", "off"), help="whether plans are chosen by their costs")
    options = arguments.parse_args()
    if options.quick:
        options.motes, options.queries, options.seconds = 100, 40, 12.0
    configure_logging("warning")
    archived = classes_are_archived(quick=options.quick)
    with tempfile.TemporaryDirectory(prefix="fjord-mixture-") as folder:
        cluster = () if options.replan is None else ("--replan", options.replan)
        batches, report = measure(
            Path(folder), options.motes, options.queries, options.seconds, quick=options.quick, cluster=cluster
        )
    report["classes_archived"] = archived
    if not options.quick:
        report |= proxy_alone(options.motes, options.queries)
    write_report(report, "mixture", lambda path: plot(batches, path), as_json=options.json)


def measure(
    folder: Path, motes: int, queries: int, seconds: float, *, quick: bool, cluster: Sequence[str] = ()
) -> tuple[list[MicroBatch], dict[str, Any]]:
    """Run it all; return all micro-batches since the first query, and the report."""
    log = folder / "spark-settings"
    with Children(folder / "logs") as children:
        parts = Parts.on_free_ports(children, folder)
        parts.start_broker()
        started = {"cluster": parts.start_cluster(*cluster, environment=settings_that_log_progress(log))}
        started["proxy"] = parts.start_proxy("roadside")
        started["motes"] = parts.start_motes("roadside", "--motes", str(motes))
        parts.wait_for_stream("traffic", started["proxy"])
        with ApiClient(parts.api_address) as api:
            began, added_s = time.time(), add(api, mixture(queries))
            added = time.time()
            children.check()
            settle(log, SETTLE_SECONDS / 3 if quick else SETTLE_SECONDS)
            before = processor_seconds(started)
            steady = time.time()
            waited_s: list[float] = []
            while time.time() < steady + seconds:
                time.sleep(0.05)
                asked = time.perf_counter()
                is_ready(api)
                waited_s.append(time.perf_counter() - asked)
                children.check()
            used = {name: after - before[name] for name, after in processor_seconds(started).items()}
            ended = time.time()
            if not is_ready(api):
                raise SystemExit("the cluster's engine does not run any more")
            memory = memory_bytes(started)
            time.sleep(2.0)  # reports of micro-batches that began before the end
    found = [each for each in micro_batches(log) if began <= each.began < ended]
    last_plan_ran = max(until_newest(found, host) for host in HOSTS)
    adding = [each for each in found if each.began < max(added, last_plan_ran)]
    settled = [each for each in found if each.began >= steady]
    if not all(any(each.host == host for each in part) for part in (adding, settled) for host in HOSTS):
        raise SystemExit(f"no micro-batches to measure: {len(adding)} while adding, {len(settled)} afterwards")
    return found, {
        **described(settled),
        "mixture_adding_max_s": longest(adding, "stateful"),
        "mixture_adding_max_stateless_s": longest(adding, "stateless"),
        "mixture_adding_median_s": median(of(adding, "stateful")),
        "mixture_adding_behind_s": round(max(0.0, last_plan_ran - added), 3),
        "mixture_add_median_s": median(added_s),
        "mixture_add_max_s": round(max(added_s), 3),
        "mixture_api_p99_s": round(quantile(sorted(waited_s), 0.99), 4),
        "mixture_api_max_s": round(max(waited_s), 4),
        **{f"mixture_{name}_processor_share": round(value / (ended - steady), 3) for name, value in used.items()},
        **{f"mixture_{name}_mb": round(value / 1e6) for name, value in memory.items()},
        "motes": motes,
        "queries": queries,
        "seconds": seconds,
        "quick": quick,
    }


def settle(log: Path, seconds: float) -> None:
    """Wait until no new plan has been run for so long."""
    began = changed = time.time()
    newest = 0
    while time.time() < changed + seconds and time.time() < began + PLANS_SECONDS:
        time.sleep(0.5)
        epoch = max((each.epoch for each in micro_batches(log)), default=0)
        if epoch > newest:
            newest, changed = epoch, time.time()


def until_newest(batches: Sequence[MicroBatch], host: str) -> float:
    """Return when one Spark query had run its first micro-batch under the last plan that changed for it."""
    own = [each for each in batches if each.host == host]
    newest = max((each.epoch for each in own), default=0)
    return min((each.began + each.seconds for each in own if each.epoch == newest), default=0.0)


def proxy_alone(motes: int, queries: int) -> dict[str, Any]:
    """Return what a proxy does for each packet under the mixture, over what it does for one query."""
    with (
        tempfile.TemporaryDirectory(prefix="fjord-mixture-proxy-") as folder,
        Children(Path(folder) / "logs") as children,
    ):
        _, found = asyncio.run(mixture_proxy.measure(children, Path(folder), motes, queries, PROXY_SECONDS))
    return {name: value for name, value in found.items() if name.startswith("mixture_proxy_")}


def add(api: ApiClient, queries: Sequence[str]) -> list[float]:
    """Add queries one by one; return how long each took."""
    took = []
    for number, text in enumerate(queries):
        began = time.monotonic()
        api.add(text, f"mixed{number}")
        took.append(time.monotonic() - began)
    return took


def described(batches: Sequence[MicroBatch]) -> dict[str, float | int]:
    """Return the figures of steady state."""
    figures: dict[str, float | int] = {}
    for host, suffix in (("stateful", ""), ("stateless", "_stateless")):
        seconds = sorted(each.seconds for each in batches if each.host == host)
        figures[f"mixture_median{suffix}_s"] = median(seconds)
        figures[f"mixture_p90{suffix}_s"] = round(quantile(seconds, 0.90), 3)
        figures[f"mixture_p99{suffix}_s"] = round(quantile(seconds, 0.99), 3)
        figures[f"mixture_max{suffix}_s"] = round(seconds[-1], 3)
        figures[f"mixture_micro_batches{suffix}"] = len(seconds)
        own = [each for each in batches if each.host == host]
        for part in sorted({part for each in own for part in each.parts} - {"triggerExecution"}):
            figures[f"mixture_{part}{suffix}_s"] = median([each.parts.get(part, 0.0) for each in own])
    figures["mixture_state_values"] = statistics.median(each.state_rows for each in batches if each.host == "stateful")
    return figures


def of(batches: Sequence[MicroBatch], host: str) -> list[float]:
    """Return the durations of one Spark query."""
    return [each.seconds for each in batches if each.host == host]


def longest(batches: Sequence[MicroBatch], host: str) -> float:
    """Return the longest duration of one Spark query."""
    return round(max(of(batches, host)), 3)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return round(statistics.median(values), 3)


def processor_seconds(parts: dict[str, Child]) -> dict[str, float]:
    """Return the processor time of each part, with the processes that it has started; Java and Spark's apart."""
    found: dict[str, float] = {}
    for name, process in _processes(parts):
        with suppress(psutil.NoSuchProcess):  # Java starts others for an instant
            times = process.cpu_times()
            found[name] = found.get(name, 0.0) + times.user + times.system
    return found


def memory_bytes(parts: dict[str, Child]) -> dict[str, int]:
    """Return the memory of each part: what it alone has, and its share of what it shares."""
    found: dict[str, int] = {}
    for name, process in _processes(parts):
        with suppress(psutil.NoSuchProcess):
            found[name] = found.get(name, 0) + process.memory_full_info().pss
    return found


def _processes(parts: dict[str, Child]) -> list[tuple[str, psutil.Process]]:
    found = []
    for name, child in parts.items():
        parent = psutil.Process(child.process.pid)
        found.append((name, parent))
        for each in parent.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                java = each.name() == "java"
                worker = name == "cluster" and not java
                found.append(("java" if java else "workers" if worker else name, each))
    return found


def plot(batches: Sequence[MicroBatch], path: Path) -> None:
    """Draw the duration of every micro-batch over time."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(10, 4))
    first = min(each.began for each in batches)
    for host in HOSTS:
        own = [each for each in batches if each.host == host]
        axes.plot([each.began - first for each in own], [each.seconds for each in own], ".", markersize=3, label=host)
    axes.set(xlabel="seconds since the first query", ylabel="duration of a micro-batch (s)", yscale="log")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
