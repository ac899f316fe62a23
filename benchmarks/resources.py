"""Sizes within ranges: what they save, how close estimates are to what is kept, and 5,000 queries in one budget.

The experiments of the thesis that ranges come from (papers/pipes_adaptation.md section 1), on the local engine, in
application time:

* a window of 60 s that becomes 30 s at 80 s and 60 s again at 150 s, of a join of similar values;
* queries of a dozen kinds: processor time and state as estimated, by prices measured just before, over what they take;
* a granularity that becomes coarser, of a count over ten minutes;
* half of the state of a join, by half the window and by dropping every other tuple at random: what is left of results;
* thousands of queries of several kinds in one budget, and a burst of more.

    python benchmarks/resources.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace as struct_replace

sys.path.insert(0, str(Path(__file__).parents[1]))

from reports import write_report
from resources_kinds import saved_bytes, settings_of_kinds
from resources_many import many_queries

from cluster.costs.prices import SHIPPED
from cluster.fjord.batch import START
from cluster.fjord.stream_scan import RowsInMemory
from cluster.fjord.upper_estimates import state_bytes
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.calibration import calibrated
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Node
from cluster.operators.size_ranges import Sizes, ranges_of
from cluster.physical.lowering import lower
from cluster.physical.migration import Migration
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.plan.sized import sized
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND = 1_000_000
FIELDS = (Field("k", FieldType.INTEGER), Field("x", FieldType.REAL))
CATALOG = Catalog.of([StreamSchema(name, FIELDS) for name in ("a", "b")])
SIMILAR = (
    "SELECT a.x, b.x AS y FROM a WINDOW(RANGE MIN 30 SECONDS, MAX 60 SECONDS) JOIN b "
    "WINDOW(RANGE MIN 30 SECONDS, MAX 60 SECONDS) ON a.x - b.x < 0.0005 AND b.x - a.x < 0.0005"
)
COUNTED = "SELECT COUNT(*) AS n FROM a WINDOW(RANGE 10 MINUTES) GRANULARITY(COARSEST 10 SECONDS, FINEST 10 MS)"
EQUAL = "SELECT a.x, b.x AS y, a.k FROM a WINDOW(RANGE {0} SECONDS) JOIN b WINDOW(RANGE {0} SECONDS) ON a.k = b.k"


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="240 queries, and prices as shipped")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    prices = SHIPPED if options.quick else calibrated(lambda _: None, machine="", measured="")
    report: dict[str, Any] = settings_of_kinds(prices, quiet=options.json)  # before the machine's speed changes
    window, curve = window_change()
    report |= window | granularity_change() | shrinking_or_dropping()
    report |= many_queries(200 if options.quick else 5_000, quiet=options.json)
    write_report(report, "resources", lambda path: plot(curve, path), as_json=options.json)


@dataclass
class Running:
    """A query on the local engine, whose sizes can be changed, a second of application time after the other."""

    node: Node
    rate: int
    keys: int = 1_000
    seed: int = 1

    def __post_init__(self) -> None:
        """Begin at the best sizes."""
        self.second, self.epoch = 0, 1
        self.query = PlannedQuery("q", 1, rewrite(sized(self.node)).node)
        self.done: int | None = None
        self.changed_at: list[float] = []
        ticks = itertools.count(0, 10)  # counters are reported once in a while: by this clock, always
        self.engine = LocalEngine(Plan(1, (self.query,)), clock=lambda: float(next(ticks)))
        self._dice = np.random.default_rng(self.seed)
        self._next: Plan | None = None
        self.plans = [self.query]
        self.busy = 0.0
        self.rows = 0

    def change(self, sizes: Sizes) -> None:
        """Change the sizes from the next second on: when the new plan is full."""
        other = rewrite(sized(self.node, sizes)).node
        migration = Migration(self.query.node, other)
        handover = migration.handover(self.second * SECOND - 1, self.query.since)
        self.done, self.epoch = handover.opens_us, self.epoch + 1
        self.changed_at.append(handover.at_us / SECOND)
        old = struct_replace(self.query, until=handover)
        self.query = PlannedQuery("q", self.epoch, other, since=handover)
        self.plans = [old, self.query]
        self._next = Plan(self.epoch, tuple(self.plans))

    def run(self) -> None:
        """Run a second."""
        if self.done is not None and self.second * SECOND >= self.done:
            self.epoch, self.done, self.plans = self.epoch + 1, None, [self.query]
            self._next = Plan(self.epoch, (self.query,))
        arrivals = {
            name: Arrival((RowsInMemory(self._tuples()),), (self.second + 1) * SECOND) for name in CATALOG_STREAMS
        }
        answered = self.engine.run(arrivals, plan=self._next)
        self._next, self.second = None, self.second + 1
        self.busy = sum(each.seconds for each in answered.counters.values())
        self.rows = answered.rows.height

    def _tuples(self) -> pl.DataFrame:
        begin, count = self.second * SECOND, self.rate
        return pl.DataFrame(
            {
                START: np.sort(self._dice.integers(begin, begin + SECOND, count)),
                DEFAULT_RATE_COLUMN: np.ones(count, bool),
                "k": self._dice.integers(0, self.keys, count),
                "x": self._dice.random(count),
            }
        )

    @property
    def state(self) -> int:
        """Bytes that are kept."""
        return kept_bytes(self.engine)

    def estimated_state(self) -> float:
        """Bytes that are estimated."""
        return state_bytes(lower(Plan(0, tuple(self.plans))), dict.fromkeys(CATALOG_STREAMS, float(self.rate)))


CATALOG_STREAMS = ("a", "b")
Curve = list[tuple[int, float, float, float]]
SHRINKS_AT, GROWS_AT, ENDS_AT = 80, 150, 230
FULL_AT = 600
"""When the window of ten minutes is full."""
HALF = 0.5


def window_change() -> tuple[dict[str, Any], Curve]:
    """Return figures of a window that changes, and per second: state, what is estimated, and seconds taken."""
    running = Running(translate(SIMILAR, CATALOG).node, rate=10)
    (window,) = ranges_of(running.node)
    curve: Curve = []
    for second in range(ENDS_AT):
        if second in (SHRINKS_AT, GROWS_AT):
            running.change({window: (30 if second == SHRINKS_AT else 60) * SECOND})
        running.run()
        curve.append((running.second, running.state, running.estimated_state(), running.busy))
    at = {second: (state, estimate) for second, state, estimate, _ in curve}
    running_busy = min(busy for second, _, _, busy in curve[-15:])
    return {
        "window_changes_at_s": running.changed_at,
        "window_60s_state": at[79][0],
        "window_60s_state_estimated_over_measured": at[79][1] / at[79][0],
        "window_both_state": max(state for second, state, _, _ in curve),
        "window_30s_state": at[149][0],
        "window_30s_state_estimated_over_measured": at[149][1] / at[149][0],
        "window_60s_again_state": at[228][0],
        "window_60s_busy": running_busy,
    }, curve


def granularity_change() -> dict[str, Any]:
    """Return figures of a count over ten minutes, finely and coarsely."""
    found: dict[str, Any] = {}
    for name, granule in (("fine", 10_000), ("coarse", 10 * SECOND)):
        running = Running(translate(COUNTED, CATALOG).node, rate=5)
        (allowed,) = ranges_of(running.node)
        running.query = PlannedQuery("q", 1, rewrite(sized(running.node, {allowed: granule})).node)
        running.plans = [running.query]
        running.engine = LocalEngine(Plan(1, (running.query,)), clock=lambda: 0.0)
        rows = 0
        for _ in range(FULL_AT + 100):
            running.run()
            rows += running.rows if running.second > FULL_AT else 0
        found[f"granularity_{name}_state"] = running.state
        found[f"granularity_{name}_state_estimated_over_measured"] = running.estimated_state() / running.state
        found[f"granularity_{name}_rows_per_second"] = rows / 100
    return found


def shrinking_or_dropping() -> dict[str, Any]:
    """Return what is left of the results of a join if its state is halved, by its window or at random."""
    rate, seconds, dice = 100, 40, np.random.default_rng(5)
    streams = {}
    for name in CATALOG_STREAMS:
        count = rate * seconds
        streams[name] = pl.DataFrame(
            {
                START: np.sort(dice.choice(seconds * SECOND, count, replace=False)),
                DEFAULT_RATE_COLUMN: np.ones(count, bool),
                "k": dice.integers(0, 50, count),
                "x": dice.random(count),
            }
        )
    kept = {name: frame.filter(pl.Series(dice.random(len(frame)) < HALF)) for name, frame in streams.items()}
    full, full_state = _joined(10, streams)
    dropped, dropped_state = _joined(10, kept)
    shrunk, shrunk_state = _joined(5, streams)
    stamps = {name: dict(zip(frame["x"], frame[START], strict=True)) for name, frame in streams.items()}
    near = {pair for pair in full if abs(stamps["a"][pair[0]] - stamps["b"][pair[1]]) < 5 * SECOND}
    return {
        "dropping_state_share": dropped_state / full_state,
        "dropping_results_share": len(dropped & full) / len(full),
        "shrinking_state_share": shrunk_state / full_state,
        "shrinking_results_share": len(shrunk) / len(full),
        "shrinking_results_missing_within_its_window": len(near - shrunk),
        "shrinking_results_beyond_its_window": len(shrunk - near),
    }


def _joined(size: int, streams: Mapping[str, pl.DataFrame]) -> tuple[set[tuple[float, float]], float]:
    """Return the pairs that a join gives, and the bytes that it keeps on average once its window is full."""
    node = rewrite(translate(EQUAL.format(size), CATALOG).node).node
    engine, found, states = LocalEngine(Plan(1, (PlannedQuery("q", 1, node),))), set(), []
    for second in range(40):
        end = (second + 1) * SECOND
        new = {name: frame.filter(pl.col(START).is_between(end - SECOND, end - 1)) for name, frame in streams.items()}
        rows = engine.run({name: Arrival((RowsInMemory(each),), end) for name, each in new.items()}).rows
        found |= {(row["x"], row["y"]) for row in map(json.loads, rows["row"])}
        states.append(kept_bytes(engine))
    return found, float(np.mean(states[len(states) // 2 :]))


def kept_bytes(engine: LocalEngine) -> int:
    """Return the bytes of the rows that an engine keeps."""
    return saved_bytes(engine.stores[0])


def plot(curve: Curve, path: Path) -> None:
    """Draw state and estimate over application time."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 3.5))
    seconds, states, estimates, _ = zip(*curve, strict=True)
    axes.plot(seconds, [each / 1024 for each in states], label="kept")
    axes.plot(seconds, [each / 1024 for each in estimates], label="estimated, full", linestyle="--")
    axes.set(xlabel="application time (s)", ylabel="state (KiB)", title="A window of 60 s, then 30 s, then 60 s")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
