"""Shedding that respects coalescing: accuracy against memory and coalescing probability, and the heap against the scan.

The experiments of the paper (papers/cals.md section 5), whose data and numbers are lost, on the generator of section
5.3: one window of W samples is filled, of which M are kept. Each algorithm sheds the same streams; RAND is a uniform
sample. `gain_at_95` is the accuracy of CALS over that of RAND at a coalescing probability of .95, the smallest of
memories of .2 to .5.

`heap_over_scan` is the time of the scan for a million samples, of which 100,000 are kept, over that of the heap. The
heap takes all of them; the scan, which would take days, only some with 100,000 kept, and is extrapolated: each of the
900,000 samples for which there is no room costs it what these did. `heap_over_array_scan` is the same of a scan of
columns that only scores, without keeping them up to date.

What queries make of it (``KEEP n TUPLES``) is measured through the local engine: see kept_by_queries.py.

    python benchmarks/temporal_shedding.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from kept_by_queries import through_the_engine
from quantised_log import rounded
from reports import agrees, write_report

from cluster.temporal.kept_samples import KeptSamples, Piece
from cluster.temporal.shedding import ABSOLUTE_LEX, DEFAULT, Algorithm, HeapShedder
from cluster.temporal.windows import CountWindow
from tests.cluster.temporal.accuracy import quality
from tests.cluster.temporal.best_kept import best_accuracy
from tests.cluster.temporal.shedding import DrawingShedder, ScanningShedder

US = 1_000_000
"""The mean distance of samples."""
MEMORIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
PROBABILITIES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
LENGTHS = (0, 1, 2, 3, 4, 6)
"""Shortest rows that a predicate selects, in mean distances."""
KINDS = ("rand", "rand_victim", "cals_v", "cals_i", "cals", "cals_absolute_lex")
GAIN_AT = 0.95
KEPT, ARRIVALS = 100_000, 1_000_000
LOGGED_SENSORS = 20
EACH_US = 300_000_000
"""Between two readings of the log."""

Stream = list[tuple[int, tuple[int, ...]]]


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="a coarser grid of shorter windows")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    size, seeds = (300, 4) if options.quick else (500, 10)
    memories = (0.2, 0.3, 0.4, 0.5) if options.quick else MEMORIES
    probabilities = (0.0, 0.3, 0.5, 0.7, 0.95) if options.quick else PROBABILITIES
    accuracies = {
        (memory, probability): accuracies_at(size, memory, probability, seeds)
        for memory in memories
        for probability in probabilities
    }
    report: dict[str, Any] = {"window": size, "streams": seeds}
    for (memory, probability), found in accuracies.items():
        report |= {f"memory_{memory}_cp_{probability}_{kind}": round(found[kind], 3) for kind in KINDS}
    gains = [accuracies[memory, GAIN_AT] for memory in memories if 0.2 <= memory <= 0.5]  # noqa: PLR2004 - as the doc says
    report["gain_at_95"] = round(min(each["cals"] / each["rand"] for each in gains), 2)
    report |= lengths_at(size, seeds)
    report |= against_the_best(120 if options.quick else 200, 2 if options.quick else 3)
    report |= findings(accuracies, report)
    report |= of_a_log(memories, probabilities, 4 if options.quick else LOGGED_SENSORS)
    report |= heap_against_scan()
    report |= through_the_engine((0.2, 0.3, 0.4, 0.5), size, seeds, 30_000 if options.quick else 100_000)
    write_report(report, "temporal_shedding", lambda path: plot(accuracies, report, path), as_json=options.json)


def drawn(size: int, probability: float, seed: int) -> tuple[Stream, int]:
    """Return a stream that fills one window, and the instant at which its last sample ends."""
    random = np.random.default_rng(seed)
    stamps = np.cumsum(np.maximum(1, random.exponential(US, size + 1))).astype(np.int64).tolist()
    values = [int(random.integers(1_000))]
    for repeated in random.random(size - 1) < probability:
        other = int(random.integers(999))
        values.append(values[-1] if repeated else other + (other >= values[-1]))
    return [(stamp, (value,)) for stamp, value in zip(stamps[:-1], values, strict=True)], stamps[-1]


def shedder(kind: str, size: int, most: int, seed: int) -> KeptSamples:
    """Return a new shedder."""
    window = CountWindow(size)
    draw = Random(seed).randrange  # noqa: S311 - victims, not secrets
    match kind:
        case "rand" | "rand_victim":
            return DrawingShedder(window, most, draw, uniform=kind == "rand")
        case "cals_v" | "cals_i":
            return ScanningShedder(window, most, Algorithm.CALS_V if kind == "cals_v" else Algorithm.CALS_I)
        case _:
            return HeapShedder(window, most, DEFAULT if kind == "cals" else ABSOLUTE_LEX)


def pieces_of(kind: str, stream: Stream, now: int, most: int, seed: int) -> list[Piece]:
    """Return the rows of what is kept of a stream."""
    kept = shedder(kind, len(stream), most, seed)
    for stamp, values in stream:
        kept.arrive(stamp, values)
    return kept.pieces(now)


def exact_of(stream: Stream, now: int) -> list[Piece]:
    """Return the rows of all samples."""
    return pieces_of("cals", stream, now, len(stream), 0)


def accuracies_at(size: int, memory: float, probability: float, seeds: int) -> dict[str, float]:
    """Return the mean accuracy of each algorithm."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for seed in range(seeds):
        stream, now = drawn(size, probability, seed)
        exact = exact_of(stream, now)
        for kind in KINDS:
            found[kind].append(quality(exact, pieces_of(kind, stream, now, round(memory * size), seed)).accuracy)
    return {kind: statistics.fmean(values) for kind, values in found.items()}


def lengths_at(size: int, seeds: int) -> dict[str, float]:
    """Return accuracies by the shortest row that is selected, at half the memory and a probability of .9."""
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        stream, now = drawn(size, 0.9, seed)
        exact = exact_of(stream, now)
        for kind in KINDS:
            kept = pieces_of(kind, stream, now, size // 2, seed)
            for length in LENGTHS:
                value = quality(exact, kept, lambda piece, least=length * US: piece.end - piece.start >= least).accuracy
                found.setdefault(f"length_{length}_{kind}", []).append(value)
    return {name: round(statistics.fmean(values), 3) for name, values in found.items()}


def against_the_best(size: int, seeds: int) -> dict[str, float]:
    """Return the accuracy of the best choice, known only afterwards, and of CALS beside it."""
    report = {}
    for memory, probability in ((0.3, 0.5), (0.3, 0.9), (0.5, 0.9)):
        best, cals = [], []
        for seed in range(seeds):
            stream, now = drawn(size, probability, seed)
            exact = exact_of(stream, now)
            stamps = [stamp for stamp, _ in stream] + [now]
            gaps = iter(end - start for start, end in pairwise(stamps))
            rows = [[next(gaps) for stamp, _ in stream if row.start <= stamp < row.end] for row in exact]
            most = round(memory * size)
            best.append(best_accuracy(rows, most))
            cals.append(quality(exact, pieces_of("cals", stream, now, most, seed)).accuracy)
            if cals[-1] > best[-1] + 1e-9:
                raise SystemExit(f"CALS beats the best choice: seed {seed}, memory {memory}, probability {probability}")
        report[f"best_memory_{memory}_cp_{probability}"] = round(statistics.fmean(best), 3)
        report[f"best_memory_{memory}_cp_{probability}_cals"] = round(statistics.fmean(cals), 3)
    return report


def findings(accuracies: dict[tuple[float, float], dict[str, float]], report: dict[str, Any]) -> dict[str, str]:
    """Compare with the paper's findings (papers/cals.md section 5.2), within .02 of noise."""
    noise, little = 0.02, 0.1
    memories = sorted({memory for memory, _ in accuracies})
    high = {point: found for point, found in accuracies.items() if point[1] > 0}
    best = all(found["cals"] >= max(found.values()) - noise for found in high.values())
    worst = max(found["rand"] - min(found["cals_v"], found["cals_i"]) for found in high.values())
    gains = {point: found["cals"] / found["rand"] for point, found in high.items()}
    middle = memories[len(memories) // 2]
    grows = all(
        gains[memory, probability] <= gains[memory, following] * 1.05
        for memory in memories
        for probability, following in pairwise(sorted({each for _, each in high}))
    )
    spread = {
        kind: [accuracies[middle, each][kind] for memory, each in sorted(accuracies) if memory == middle]
        for kind in ("cals_v", "cals_i")
    }
    default = [report[f"length_{length}_cals"] for length in LENGTHS]
    absolute = [report[f"length_{length}_cals_absolute_lex"] for length in LENGTHS]
    halves = [abs(accuracies[memory, 0.5]["cals_v"] - accuracies[memory, 0.5]["cals_i"]) for memory in memories]

    return {
        "finding_1_cals_best": agrees(best),
        "finding_1_rand_worst": agrees(worst <= noise),
        "finding_2_gain_grows_with_probability": agrees(grows),
        "finding_2_largest_gain": f"{max(gains.values()):.1f}",
        "finding_3_length_matters_little_default": agrees(max(default) - min(default) <= little),
        "finding_3_length_matters_little_absolute_lex": agrees(max(absolute) - min(absolute) <= little),
        "finding_4_v_and_i_close_at_cp_0.5": agrees(max(halves) <= 0.15),  # noqa: PLR2004 - close
        "finding_5_v_flat": agrees(max(spread["cals_v"]) - min(spread["cals_v"]) <= little),
        "finding_5_i_degrades": agrees(spread["cals_i"][-1] < max(spread["cals_i"]) - noise),
    }


def of_a_log(memories: tuple[float, ...], probabilities: tuple[float, ...], sensors: int) -> dict[str, Any]:
    """Return mean accuracies of days of real readings, rounded to a quantum; each sensor's day fills a window."""
    accuracies: dict[tuple[float, float], dict[str, float]] = {}
    reached = {}
    for probability in (each for each in probabilities if each > 0):
        log, reached[probability] = rounded(sensors, probability)
        of_sensors: dict[int, list[tuple[int, ...]]] = {}
        for _, sensor, value in log.tuples():
            of_sensors.setdefault(sensor, []).append((value,))
        days = [[(number * EACH_US, each) for number, each in enumerate(values)] for values in of_sensors.values()]
        for memory in memories:
            accuracies[memory, probability] = accuracies_of_days(days, memory)
    gains = {at: found["cals"] / found["rand"] for at, found in accuracies.items()}
    report: dict[str, Any] = {f"log_cp_{probability}": round(found, 3) for probability, found in reached.items()}
    for (memory, probability), found in accuracies.items():
        report |= {f"log_memory_{memory}_cp_{probability}_{kind}": round(found[kind], 3) for kind in KINDS}
    return report | {
        "log_cals_best": agrees(all(found["cals"] >= max(found.values()) - 0.02 for found in accuracies.values())),
        "log_largest_gain": round(max(gains.values()), 1),
        "log_gain_at_95": round(
            min(gain for (memory, cp), gain in gains.items() if 0.2 <= memory <= 0.5 and cp == GAIN_AT),  # noqa: PLR2004
            2,
        ),
    }


def accuracies_of_days(days: list[Stream], memory: float) -> dict[str, float]:
    """Return the mean accuracy of each algorithm over days of single sensors."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for seed, day in enumerate(days):
        now = day[-1][0] + EACH_US
        exact = exact_of(day, now)
        for kind in KINDS:
            found[kind].append(quality(exact, pieces_of(kind, day, now, round(memory * len(day)), seed)).accuracy)
    return {kind: statistics.fmean(values) for kind, values in found.items()}


def heap_against_scan(rounds: int = 8) -> dict[str, Any]:
    """Return seconds for a million samples of which 100,000 are kept, and the ratio."""
    stream, _ = drawn(ARRIVALS, 0.8, 1)
    heap = HeapShedder(CountWindow(ARRIVALS), KEPT)
    began = time.process_time()
    for stamp, values in stream:
        heap.arrive(stamp, values)
    by_heap = time.process_time() - began
    scan = ScanningShedder(CountWindow(ARRIVALS), KEPT)
    began = time.process_time()
    for stamp, values in stream[:KEPT]:
        scan.arrive(stamp, values)
    filling = time.process_time() - began
    began = time.process_time()
    dropped = [scan.arrive(stamp, values) for stamp, values in stream[KEPT : KEPT + rounds]]
    one = (time.process_time() - began) / rounds
    again = HeapShedder(CountWindow(ARRIVALS), KEPT)
    if dropped != [
        each for stamp, values in stream[: KEPT + rounds] if (each := again.arrive(stamp, values)) is not None
    ]:
        raise SystemExit("heap and scan drop other samples")
    by_scan = filling + one * (ARRIVALS - KEPT)
    columns = columns_of(scan)
    began = time.process_time()
    for _ in range(rounds):
        least_score(*columns)
    in_columns = (time.process_time() - began) / rounds
    return {
        "heap_million_s": round(by_heap, 2),
        "scan_measured_samples": rounds,
        "scan_one_sample_ms": round(one * 1e3, 1),
        "scan_million_extrapolated_s": round(by_scan),
        "heap_over_scan": round(by_scan / by_heap, 1),
        "array_scan_one_sample_ms": round(in_columns * 1e3, 2),
        "heap_over_array_scan": round(in_columns * (ARRIVALS - KEPT) / by_heap, 1),
    }


def columns_of(kept: KeptSamples) -> tuple[Any, Any, Any]:
    """Return starts, ends and values of what is kept, as columns."""
    samples = list(kept.kept.values())
    return tuple(
        np.array(column, np.int64)
        for column in zip(*((each.start, each.end, each.values[0]) for each in samples), strict=True)
    )


def least_score(starts: Any, ends: Any, values: Any) -> int:
    """Return the place of the smallest sum of delta and relative rho, of columns of one group; the last one is open."""
    linked = (ends[:-1] == starts[1:]) & (values[:-1] == values[1:])
    begins = np.append([True], ~linked)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(starts)) - 1
    lengths = np.repeat(ends[last] - starts[first], last - first + 1)
    inside = np.append([False], linked) & np.append(linked, [False])
    scores = inside[:-1] + (ends[:-1] - starts[:-1]) / lengths[:-1]
    return int(scores.argmin())


def plot(accuracies: dict[tuple[float, float], dict[str, float]], report: dict[str, Any], path: Path) -> None:
    """Draw accuracy over the coalescing probability, over memory, and over the shortest row selected."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    memories = sorted({memory for memory, _ in accuracies})
    probabilities = sorted({probability for _, probability in accuracies})
    middle = min(memories, key=lambda memory: abs(memory - 0.5))
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), sharey=True)
    for kind in KINDS:
        label = kind.replace("_", " ")
        axes[0].plot(probabilities, [accuracies[middle, each][kind] for each in probabilities], marker=".", label=label)
        axes[1].plot(memories, [accuracies[each, GAIN_AT][kind] for each in memories], marker=".", label=label)
        axes[2].plot(LENGTHS, [report[f"length_{each}_{kind}"] for each in LENGTHS], marker=".", label=label)
    axes[0].set(xlabel="coalescing probability", ylabel="accuracy", title=f"memory of {middle}")
    axes[1].set(xlabel="share of the window that is kept", title=f"coalescing probability {GAIN_AT}")
    axes[2].set(xlabel="shortest row selected, mean distances", title="memory of .5, probability .9")
    axes[0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
