"""Twenty queries with a bad order of joins, on purpose, are planned anew while they run: against the best order.

Four streams are joined in a chain: a and b bring many tuples, d few. The queries join a and b first, and differ in a
condition. On the local engine: operators are measured, the choice is that of the cluster, and the queries migrate.

* `replanned_over_best`: tuples per second of processor time after they have migrated, over the most with any order, by
  brute force over all; at least 0.9.
* `before_over_best`: the same before.
* `families_over_one`: tuples per second of processor time of windows that share panes, when an odd one has been put
  into a family of its own, over those of one family (`pane_families.py`).

    python benchmarks/replanning.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import numpy as np
import pane_families
import polars as pl
from msgspec.structs import replace
from reports import write_report

from cluster.costs.choice import changes
from cluster.costs.prices import SHIPPED
from cluster.fjord.batch import START
from cluster.fjord.counters import owners_of
from cluster.fjord.measured_plans import measured_nodes, measured_pair_shares, measured_selectivities
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Node
from cluster.physical.lowering import lower
from cluster.physical.migration import Migration
from cluster.plan.alternatives import Alternative, alternatives
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.service.queries.plan_options import Figures, candidate
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.wire.streams import Field, FieldType, StreamSchema

QUERIES = 20
RATES = {"a": 60, "b": 60, "c": 30, "d": 2}
VALUES = {"k": 40, "m": 40, "n": 10}
WINDOW_S = 10
FILLED_S = 13
TEXT = (
    "SELECT a.x, b.k AS k, c.m AS m, d.x AS y FROM a WINDOW(RANGE 10 SECONDS), b WINDOW(RANGE 10 SECONDS), "
    "c WINDOW(RANGE 10 SECONDS), d WINDOW(RANGE 10 SECONDS) "
    "WHERE a.k = b.k AND b.m = c.m AND c.n = d.n AND a.x >= {low} AND a.x < {high}"
)
SECOND_US = 1_000_000
FIELDS = (*(Field(name, FieldType.INTEGER) for name in VALUES), Field("x", FieldType.REAL))
CATALOG = Catalog.of([StreamSchema(name, FIELDS) for name in RATES])


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="measure for a shorter time")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    seconds = 10 if options.quick else 40
    report = measured(seconds) | pane_families.measured(20 if options.quick else 60)
    write_report(report, "replanning", as_json=options.json)


def measured(seconds: int) -> dict[str, Any]:
    """Return the figures, each measured over so many seconds of application time."""
    plans = [alternatives(rewrite(translate(_text(number), CATALOG).node).node) for number in range(QUERIES)]
    orders = [place for place, each in enumerate(plans[0]) if all("joined as" in words for words in each.changes)]
    of_orders = {place: _seconds_of([each[place].node for each in plans], seconds) for place in orders}
    best = min(of_orders.values())
    run = _Run([each[0].node for each in plans])
    run.until(FILLED_S)
    run.statistics = OperatorStatistics(lambda: float(run.second))
    run.until(FILLED_S + 5)
    began = time.process_time()
    chosen = run.chosen(plans)
    deciding = time.process_time() - began
    run.migrate({name: plans[int(name[1:])][number - 1].node for name, number in chosen.items()})
    seconds_after = run.timed(seconds)
    tuples = sum(RATES.values()) * seconds
    return {
        "orders": len(orders),
        "queries_replanned": len(chosen),
        "best_tuples_per_s": round(tuples / best),
        "replanned_over_best": round(best / seconds_after, 3),
        "before_over_best": round(best / of_orders[0], 3),
        "worst_over_best": round(best / max(of_orders.values()), 3),
        "choice_seconds": round(deciding, 3),
    }


def _text(number: int) -> str:
    return TEXT.format(low=number / QUERIES, high=(number + 1) / QUERIES)


def _seconds_of(nodes: Sequence[Node], seconds: int) -> float:
    run = _Run(nodes)
    run.until(FILLED_S)
    return run.timed(seconds)


class _Run:
    """Queries that run, second by second."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.queries = [PlannedQuery(f"q{number}", 1, node) for number, node in enumerate(nodes)]
        self.epoch, self.second = 1, 0
        self.dice = np.random.default_rng(7)
        self.statistics = OperatorStatistics(lambda: float(self.second))
        # Counters are reported now and then; by this clock, with every micro-batch.
        ticks = itertools.count(0, 10)
        self.engine = LocalEngine(Plan(1, tuple(self.queries)), clock=lambda: float(next(ticks)))

    def step(self, plan: Plan | None = None) -> None:
        """Run a micro-batch of a second."""
        begin_us = self.second * SECOND_US
        self.second += 1
        arrivals = {
            name: Arrival((RowsInMemory(self._tuples(begin_us, rate)),), begin_us + SECOND_US)
            for name, rate in RATES.items()
        }
        self.statistics.add(self.engine.run(arrivals, plan=plan).counters)

    def _tuples(self, begin_us: int, rate: int) -> pl.DataFrame:
        stamps = np.sort(self.dice.integers(begin_us, begin_us + SECOND_US, rate))
        values = {name: self.dice.integers(0, most, rate) for name, most in VALUES.items()}
        return pl.DataFrame({START: stamps, **values, "x": self.dice.random(rate)})

    def until(self, second: int) -> None:
        """Run to a second."""
        while self.second < second:
            self.step()

    def timed(self, seconds: int) -> float:
        """Return the processor time of so many more seconds, as if each took as long as the median of them."""
        found = []
        for _ in range(seconds):
            began = time.process_time()
            self.step()
            found.append(time.process_time() - began)
        return median(found) * seconds

    def chosen(self, plans: Sequence[Sequence[Alternative]]) -> dict[str, int]:
        """Return the plans with which queries are to go on, by the figures of the seconds before."""
        physical = lower(Plan(1, tuple(self.queries)))
        self.statistics.observe(owners_of(physical))
        rates = {name: float(rate) for name, rate in RATES.items()}
        selectivities = measured_selectivities(physical, self.statistics.rates)
        shares = {}
        for query in self.queries:
            nodes = measured_nodes(query.node, physical.by_query[query.identity], self.statistics.rates)
            shares[query.name] = measured_pair_shares(query.node, nodes, rates, selectivities)
        figures = Figures(rates, selectivities, SHIPPED, shares)
        running = [RegisteredQuery(each.name, "", each.node, 1, 0) for each in self.queries]
        found = [candidate(each, plans[place], each.node, figures) for place, each in enumerate(running)]
        chosen: dict[str, int] = {}
        for change in changes([each for each in found if each is not None]):
            chosen |= change.plans
        return chosen

    def migrate(self, nodes: Mapping[str, Node]) -> None:
        """Let queries go on with other plans, all at once, and run until they have."""
        greatest_us = self.second * SECOND_US - 1
        both, after, opens_us = [], [], 0
        for query in self.queries:
            if query.name not in nodes:
                both.append(query)
                after.append(query)
                continue
            handover = Migration(query.node, nodes[query.name]).handover(greatest_us)
            following = PlannedQuery(query.name, 2, nodes[query.name], since=handover)
            both += [replace(query, until=handover), following]
            after.append(following)
            opens_us = max(opens_us, handover.opens_us)
        self.step(Plan(2, tuple(both)))
        while self.second * SECOND_US <= opens_us + WINDOW_S * SECOND_US:
            self.step()
        self.queries = after
        self.step(Plan(3, tuple(after)))


if __name__ == "__main__":
    main()
