"""The experiments of papers/coalescing.md section 5 in the paper's structure, and which of its findings hold here.

Streams over a grid of probabilities to coalesce and to come out of order run through the array of the paper and through
a lazy extent. Memory is what both hold, updates are the mean of a sample in a full window, scans that of reading the
extent once. Costs are divided by the largest over the grid, as the paper's text has them at most 1.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from functools import cache, partial
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any

from coalescing_streams import ArrayExtent, Samples, drawn
from quantised_log import rounded
from reports import agrees

from cluster.temporal.cost_model import Maxima, Prices, Weights, optimal
from cluster.temporal.windows import Equal
from tests.cluster.temporal.lazy_extent import LazyExtent

LAZY_BYTES = 40
EAGER_BYTES = (24, 24, 24, 32, 32, 40)
FIGURES = {"3a": Weights(1, 1, 1), "3b": Weights(1, 50, 1), "3c": Weights(1, 100, 1), "4": Weights(0, 1, 1)}
ALL = frozenset(range(6))
NONE: frozenset[int] = frozenset()
FIRST = frozenset({0, 1, 2})
TABLES: dict[str, tuple[tuple[float, ...], tuple[float, ...], frozenset[int]]] = {
    "5_1": ((0.1,) * 6, (0.0,) * 6, NONE),
    "5_2": ((0.8,) * 6, (0.0,) * 6, ALL),
    "5_3": ((0.5,) * 3 + (0.1,) * 3, (0.0,) * 6, FIRST),
    "5_4": ((0.8,) * 3 + (0.1,) * 3, (0.0,) * 6, FIRST),
    "6_1": ((0.2,) * 6, (0.3,) * 6, NONE),
    "6_2": ((0.7,) * 6, (0.6,) * 6, ALL),
    "6_3": ((0.5,) * 6, (0.3,) * 6, ALL),
    "6_4": ((0.5,) * 6, (0.7,) * 6, NONE),
    "6_5": ((0.4,) * 3 + (0.2,) * 3, (0.6,) * 3 + (0.7,) * 3, FIRST),
    "6_6": ((0.4,) * 3 + (0.2,) * 3, (0.6, 0.8, 0.8, 0.7, 0.7, 0.7), frozenset({0})),
}
WEIGHTS = {"5": Weights(1, 1, 2), "6": Weights(0, 1, 1)}
SCANS = 7
LOGGED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LOGGED_SENSORS = 20
"""5,760 readings in a day."""


@dataclass(frozen=True)
class Cell:
    """What a stream cost both ways; nanoseconds, and runs and samples of the window at the end."""

    eager_update: float
    lazy_update: float
    eager_scan: float
    lazy_scan: float
    runs: int
    samples: int
    operations: dict[str, float]
    """The mean of each operation on the array."""

    def eager_bytes(self, row_bytes: int) -> int:
        """Return bytes of the eager extent."""
        return self.runs * row_bytes + (self.samples - self.runs) * 8


class Laboratory:
    """Measures cells of one window, each once.

    Parameters
    ----------
    window, timed
        Samples of the window, and how many are timed once it is full.
    """

    def __init__(self, window: int, timed: int) -> None:
        self.window = window
        self._timed = timed
        self.cell = cache(self._measured)

    def _measured(self, coalescing: float, disorder: float) -> Cell:
        return self.of(
            drawn(
                self.window + self._timed,
                groups=5,
                coalescing=coalescing,
                disorder=disorder,
                window=self.window,
                seed=round(100 * coalescing + 10_000 * disorder),
            )
        )

    def of(self, stream: Samples) -> Cell:
        """Return what a stream costs both ways: its samples after those that fill the window are timed."""
        array, lazy = ArrayExtent(self.window), LazyExtent()
        times: dict[str, list[int]] = {"eager": [], "lazy": []}
        clock = time.perf_counter_ns
        live: list[int] = []
        for number, (stamp, group, value) in enumerate(stream.tuples()):
            row = (group, value)
            began = clock()
            array.insert(stamp, group, value)
            inserted = clock()
            expired = array.expire()
            ended = clock()
            heappush(live, stamp)
            if len(live) > self.window:
                heappop(live)
            oldest = (live[0], ())
            lazy_began = clock()
            lazy.insert(stamp, (), row)
            lazy.expire(oldest)
            lazy_ended = clock()
            if number >= self.window:
                times["eager"].append(ended - began)
                times["lazy"].append(lazy_ended - lazy_began)
                times.setdefault(array.done, []).append(inserted - began)
                times.setdefault(expired, []).append(ended - inserted)
        scan_lazily = partial(lazy.scan, (0,), (1,), Equal())
        scans = [_taken(array.scan) for _ in range(SCANS)], [_taken(scan_lazily) for _ in range(SCANS)]
        means = {name: _trimmed(values) for name, values in times.items()}
        return Cell(
            means.pop("eager"),
            means.pop("lazy"),
            statistics.median(scans[0]),
            statistics.median(scans[1]),
            len(array.scan()),
            len(lazy),
            means,
        )


def experiments(
    laboratory: Laboratory, steps: int
) -> tuple[dict[str, Any], dict[str, dict[tuple[float, float], float]]]:
    """Return findings with whether they hold, and by figure the cost of eager less that of lazy over the grid."""
    axis = [round(step / steps, 3) for step in range(steps + 1)]
    grid = {(cp, oop): laboratory.cell(cp, oop) for cp in axis for oop in axis}
    largest = Maxima(
        laboratory.window * LAZY_BYTES,
        max(max(cell.eager_update, cell.lazy_update) for cell in grid.values()),
        max(cell.lazy_scan for cell in grid.values()),
    )
    surfaces = {
        name: {at: _difference(cell, weights, largest) for at, cell in grid.items()}
        for name, weights in FIGURES.items()
    }
    report: dict[str, Any] = {}
    shares = {name: sum(each < 0 for each in surface.values()) / len(surface) for name, surface in surfaces.items()}
    report |= {f"figure_{name}_eager_cheaper_share": round(share, 2) for name, share in shares.items()}
    report["figure_3a_eager_everywhere"] = agrees(shares["3a"] == 1)
    report["figure_3b_both_occur"] = agrees(0 < shares["3b"] < 1)
    report["figure_3c_fewer_eager"] = agrees(shares["3c"] <= shares["3b"])
    mean = statistics.fmean(abs(each) for each in surfaces["4"].values())
    report["figure_4_mean_difference"] = round(mean, 3)
    report["figure_4_nearly_equal"] = agrees(mean <= 0.2)  # noqa: PLR2004 - of costs up to 2
    report |= _curves(grid, axis)
    for name in TABLES:
        report |= _case(name, laboratory, largest)
    report |= _of_a_log(laboratory, largest)
    return report, surfaces


def _curves(grid: dict[tuple[float, float], Cell], axis: list[float]) -> dict[str, Any]:
    """Return how updates depend on the probabilities: the paper's claims about its array."""
    low, middle, high = axis[0], axis[len(axis) // 2], axis[-1]
    update = {at: cell.eager_update for at, cell in grid.items()}
    lazy = [cell.lazy_update for cell in grid.values()]
    reads = [grid[cp, low].eager_scan / grid[cp, low].runs for cp in axis]
    splits = {oop: grid[middle, oop].operations.get("split", 0.0) for oop in axis}
    return {
        "update_ns_in_order_cp_0": round(update[low, low]),
        "update_ns_in_order_cp_1": round(update[high, low]),
        "update_ns_late_cp_0": round(update[low, high]),
        "update_ns_late_cp_1": round(update[high, high]),
        "update_ns_lazy": round(statistics.median(lazy)),
        "split_ns_by_disorder": [round(each) for each in splits.values()],
        "read_ns_by_cp": [round(each) for each in reads],
        "update_rises_with_disorder": agrees(update[middle, high] > update[middle, low]),
        "update_falls_with_cp_in_order": agrees(update[high, low] < update[low, low]),
        "update_falls_with_cp_late": agrees(update[high, high] < update[low, high]),
        "update_largest_at_cp_0_late": agrees(update[low, high] >= 0.95 * max(update.values())),
        "lazy_update_independent_of_disorder": agrees(
            grid[middle, high].lazy_update < 1.25 * grid[middle, low].lazy_update
        ),
        "read_grows_with_cp": agrees(all(one <= 1.1 * other for one, other in pairwise(reads))),
    }


def _of_a_log(laboratory: Laboratory, largest: Maxima) -> dict[str, Any]:
    """Return costs of a real log, whose readings are rounded to a quantum; it comes in order."""
    found = [rounded(LOGGED_SENSORS, coalescing) for coalescing in LOGGED]
    cells = [laboratory.of(stream) for stream, _ in found]
    updates = [cell.eager_update for cell in cells]
    return {
        "log_cp": [round(coalescing, 3) for _, coalescing in found],
        "log_update_ns": [round(each) for each in updates],
        "log_update_ns_lazy": [round(cell.lazy_update) for cell in cells],
        "log_scan_us": [round(cell.eager_scan / 1e3) for cell in cells],
        "log_scan_us_lazy": [round(cell.lazy_scan / 1e3) for cell in cells],
        "log_bytes": [cell.eager_bytes(EAGER_BYTES[0]) for cell in cells],
        "log_bytes_lazy": [cell.samples * LAZY_BYTES for cell in cells],
        **{
            f"log_figure_{name}_eager_cheaper_share": sum(_difference(cell, weights, largest) < 0 for cell in cells)
            / len(cells)
            for name, weights in FIGURES.items()
        },
        "log_update_falls_with_cp": agrees(updates[-1] < updates[0]),
        "log_scan_falls_with_cp": agrees(cells[-1].eager_scan < cells[0].eager_scan),
    }


def _case(name: str, laboratory: Laboratory, largest: Maxima) -> dict[str, Any]:
    """Return the choice of a case of tables 5 and 6, and its cost beside all lazy and all eager."""
    coalescing, disorder, claimed = TABLES[name]
    weights = WEIGHTS[name[0]]
    cells = [laboratory.cell(*at) for at in zip(coalescing, disorder, strict=True)]
    found = Prices(
        tuple(_eager(cell, size, weights, largest) for cell, size in zip(cells, EAGER_BYTES, strict=True)),
        tuple(weights.cost(largest, scan=cell.lazy_scan) for cell in cells),
        _shared(cells[0], weights, largest),
    )
    chosen = optimal(found)
    return {
        f"table_{name}_eager": ",".join(str(each + 1) for each in sorted(chosen)) or "none",
        f"table_{name}_agrees": agrees(chosen == claimed),
        f"table_{name}_costs": [round(found.total(each), 3) for each in (chosen, NONE, ALL)],
    }


def _eager(cell: Cell, row_bytes: int, weights: Weights, largest: Maxima) -> float:
    memory = cell.eager_bytes(row_bytes)
    return weights.cost(largest, memory=memory, update=cell.eager_update, scan=cell.eager_scan)


def _shared(cell: Cell, weights: Weights, largest: Maxima) -> float:
    return weights.cost(largest, memory=cell.samples * LAZY_BYTES, update=cell.lazy_update)


def _difference(cell: Cell, weights: Weights, largest: Maxima) -> float:
    lazy = _shared(cell, weights, largest) + weights.cost(largest, scan=cell.lazy_scan)
    return _eager(cell, EAGER_BYTES[0], weights, largest) - lazy


def _taken(scan: Any) -> int:
    began = time.perf_counter_ns()
    scan()
    return time.perf_counter_ns() - began


def _trimmed(times: list[int]) -> float:
    """Return the mean without the longest fiftieth, which are other processes' doing."""
    return statistics.fmean(sorted(times)[: max(1, len(times) - len(times) // 50)])


def plot_surfaces(surfaces: dict[str, dict[tuple[float, float], float]], path: Path) -> None:
    """Draw where eager is cheaper (blue) and where lazy is (red), a panel for each figure of the paper."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, len(surfaces), figsize=(13, 3.6))
    for panel, (name, surface) in zip(axes, surfaces.items(), strict=True):
        probabilities = sorted({cp for cp, _ in surface})
        rows = [[surface[cp, oop] for cp in probabilities] for oop in probabilities]
        most = max(abs(each) for row in rows for each in row)
        image = panel.imshow(rows, origin="lower", extent=(0, 1, 0, 1), cmap="coolwarm", vmin=-most, vmax=most)
        panel.set(xlabel="coalescing probability", title=f"figure {name}")
        figure.colorbar(image, ax=panel, shrink=0.8)
    axes[0].set_ylabel("out of order")
    figure.suptitle("cost of eager less that of lazy")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def plot_cases(report: dict[str, Any], path: Path) -> None:
    """Draw the cases of tables 5 and 6, as the paper's figure 5: the optimal choice, all lazy and all eager."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(9, 3.6))
    costs = [report[f"table_{name}_costs"] for name in TABLES]
    for place, label in enumerate(("optimal", "all lazy", "all eager")):
        axes.bar(
            [number + 0.27 * place for number in range(len(costs))], [each[place] for each in costs], 0.27, label=label
        )
    axes.set_xticks([number + 0.27 for number in range(len(costs))], [name.replace("_", ", ") for name in TABLES])
    axes.set(xlabel="table, case", ylabel="cost, as measured")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)
