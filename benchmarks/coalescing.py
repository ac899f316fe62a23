"""Coalescing of windows: batches of columns against the paper's procedure for one sample at a time.

Three ways keep the extent of a window coalesced: one sample at a time in one array, which is searched from its end (the
paper's structure and procedure, corrected); one at a time with runs of each group that are found by halving, and late
samples and duplicates looked for; whole batches. All three have to end with the same runs. `coalesce_over_loop` is the
time of the paper's procedure for a sample over that of batches of 10,000, `coalesce_over_halving` that of the second
way. Each is a median over streams in order and with 30 % of samples late, and windows of 1,000 and 10,000 samples;
`..._worst` is the smallest.

It also runs the experiments of the paper (coalescing_experiments.py), and compares choices of eager and lazy extents in
random settings with all eager and all lazy (coalescing_choices.py): `choice_worst_over_better`, at most 1.05. So it
does with the operators of queries on the local engine (coalescing_operators.py), in settings that were thought of,
`operators_chosen_over_better_worst`, and in random ones, `operators_choice_worst_over_better`.

    python benchmarks/coalescing.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

# In Spark's workers operators use one thread each.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from coalescing_choices import random_outcomes
from coalescing_experiments import Laboratory, experiments, plot_cases, plot_surfaces
from coalescing_operators import SETTINGS, operator_outcomes, over_engines
from coalescing_streams import ArrayExtent, Samples, drawn
from reports import RESULTS, write_report

from cluster.temporal.windows import CountWindow, Equal
from tests.cluster.temporal.admission import Admission, Verdict
from tests.cluster.temporal.batched_extent import BatchedExtent
from tests.cluster.temporal.eager_extent import EagerExtent

WINDOWS = (1_000, 10_000)
DISORDERS = (0.0, 0.3)
BATCHES = (1_000, 10_000)
COALESCING = 0.8
GROUPS = 5
ROUNDS = 3

Run = tuple[int, int, int, int]


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer samples")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    report = over_loops(30_000 if options.quick else 200_000)
    report |= random_outcomes(12 if options.quick else 100)
    report |= over_engines(SETTINGS[:3] if options.quick else SETTINGS)
    report |= operator_outcomes(6 if options.quick else 100)
    laboratory = Laboratory(200, 600) if options.quick else Laboratory(1_000, 199_000)
    found, surfaces = experiments(laboratory, 4 if options.quick else 10)
    report |= found
    write_report(report, "coalescing", lambda path: plot(report, path), as_json=options.json)
    plot_surfaces(surfaces, RESULTS / "coalescing_surfaces.png")
    plot_cases(report, RESULTS / "coalescing_cases.png")


def over_loops(count: int) -> dict[str, Any]:
    """Return microseconds for a sample, by way, window, disorder and size of batch, and the ratios."""
    report: dict[str, Any] = {"samples": count, "groups": GROUPS, "coalescing_probability": COALESCING}
    ratios: dict[str, list[float]] = {}
    for window, disorder in product(WINDOWS, DISORDERS):
        stream = drawn(count, groups=GROUPS, coalescing=COALESCING, disorder=disorder, window=window, seed=24)
        halving, expected = one_by_one(stream, window)
        costs = {"halving": halving, "array": median_of(stream, window, expected, in_an_array)}
        for size in BATCHES:
            costs[f"batches_of_{size}"] = median_of(stream, window, expected, partial(in_batches, size=size))
        name = f"window_{window}_late_{disorder:.0%}".replace("%", "")
        report |= {f"{name}_{way}_us": round(cost, 4) for way, cost in costs.items()}
        for size in BATCHES:
            end = "" if size == BATCHES[-1] else f"_{size}"
            batched = costs[f"batches_of_{size}"]
            ratios.setdefault(f"coalesce_over_loop{end}", []).append(costs["array"] / batched)
            ratios.setdefault(f"coalesce_over_halving{end}", []).append(costs["halving"] / batched)
    for name, found in ratios.items():
        report[name], report[f"{name}_worst"] = round(statistics.median(found), 1), round(min(found), 1)
    return report


def median_of(
    stream: Samples, window: int, expected: list[Run], way: Callable[[Samples, int], tuple[float, list[Run]]]
) -> float:
    """Return the median of several runs, which have to end as expected."""
    found = [way(stream, window) for _ in range(ROUNDS)]
    if any(runs != expected for _, runs in found):
        raise SystemExit(f"other runs: window {window}, {way}")
    return statistics.median(cost for cost, _ in found)


def one_by_one(stream: Samples, window: int) -> tuple[float, list[Run]]:
    """Return microseconds for a sample, with runs of each group by halving, and the runs at the end."""
    samples = [(stamp, (group,), (value,)) for stamp, group, value in stream.tuples()]
    admission, extent = Admission(CountWindow(window)), EagerExtent(Equal())
    began = time.process_time()
    for stamp, group, value in samples:
        if admission.admit(stamp, group) is Verdict.ACCEPTED:
            extent.insert(stamp, group, value)
            extent.expire(admission.oldest)
    seconds = time.process_time() - began
    runs = [(run.group[0], run.start, run.end, run.values[0]) for run in extent.scan()]
    return seconds / len(samples) * 1e6, sorted(runs)


def in_an_array(stream: Samples, window: int) -> tuple[float, list[Run]]:
    """Return microseconds for a sample in the paper's structure once the window is full, and the runs at the end."""
    samples = stream.tuples()
    extent = ArrayExtent(window)
    for stamp, group, value in samples[:window]:
        extent.insert(stamp, group, value)
    began = time.process_time()
    for stamp, group, value in samples[window:]:
        extent.insert(stamp, group, value)
        extent.expire()
    seconds = time.process_time() - began
    return seconds / (len(samples) - window) * 1e6, sorted(extent.scan())


def in_batches(stream: Samples, window: int, size: int) -> tuple[float, list[Run]]:
    """Return microseconds for a sample in batches of columns, and the runs at the end."""
    extent = BatchedExtent(CountWindow(window))
    began = time.process_time()
    for begin in range(0, len(stream), size):
        piece = slice(begin, begin + size)
        extent.insert(stream.stamps[piece], stream.groups[piece], stream.values[piece])
    seconds = time.process_time() - began
    columns = (each.tolist() for each in extent.runs())
    return seconds / len(stream) * 1e6, sorted(zip(*columns, strict=True))


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw microseconds for a sample by way."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    names = [key.removesuffix("_array_us") for key in report if key.endswith("_array_us")]
    ways = ("halving", "array", *(f"batches_of_{size}" for size in BATCHES))
    figure, axes = plt.subplots(figsize=(8, 4))
    for place, way in enumerate(ways):
        heights = [report[f"{name}_{way}_us"] for name in names]
        axes.bar([number + 0.2 * place for number in range(len(names))], heights, 0.2, label=way.replace("_", " "))
    labels = [name.replace("window_", "window ").replace("_late_", "\nlate % ") for name in names]
    axes.set_xticks([number + 0.3 for number in range(len(names))], labels)
    axes.set(yscale="log", ylabel="microseconds for a sample", title="keeping a window coalesced")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
