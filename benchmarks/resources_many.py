"""Thousands of queries with ranges in one budget: which sizes they get, and how long decisions take.

Queries of several kinds come a tenth at a time, then one by one; after that, rates of streams change. Nothing runs:
only what is decided is measured, in seconds of a processor, as decisions wait for nothing.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.progress import track

from cluster.costs.adaptation import RESERVE, Cost
from cluster.costs.prices import SHIPPED
from cluster.fjord.upper_estimates import state_bytes
from cluster.language.catalog import Catalog
from cluster.operators.size_ranges import ranges_of
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.service.catalog.planning import PlanningContext
from cluster.service.queries.size_decisions import NoRoomError, admitted, changed_sizes
from cluster.service.queries.size_plans import RangedQuery, SizeCosts, SizePlans, share_of
from protocols.wire.streams import Field, FieldType, StreamSchema

FIELDS = (Field("k", FieldType.INTEGER), Field("x", FieldType.REAL))

SOURCES = 50
ONE_BY_ONE = 20
"""So many queries come one by one, once all others run."""
DRIFT = 1.2
"""By this factor the rates of a fifth of all streams change."""


def many_queries(count: int, *, quiet: bool) -> dict[str, Any]:
    """Return how queries of several kinds fit into two fifths of what they may use, and how long decisions take."""
    dice = random.Random(3)  # noqa: S311 - queries that are drawn again
    names = [f"s{number}" for number in range(SOURCES)]
    catalog = Catalog.of([StreamSchema(name, FIELDS) for name in names])
    rates = {name: dice.uniform(2, 600) / 60 for name in names}
    costs = SizeCosts(SizePlans(PlanningContext(catalog, {}, frozenset())), rates, SHIPPED, timed=False)
    burst, began = count // 10, time.process_time()
    texts = [*itertools.islice(_texts(dice, names), count + burst + ONE_BY_ONE)]
    every = [
        RangedQuery(f"q{place}", each, ranges_of(costs.plans.ranged(each)), {}) for place, each in enumerate(texts)
    ]
    least, most = (sum(costs.of(each, each.at(end, end)).state_bytes for each in every) for end in (0.0, 1.0))
    budget = Cost((least + 0.4 * (most - least)) / (1 - RESERVE), float("inf"))
    running, refused = _Running(costs, budget), 0
    together = [every[at : at + burst] for at in range(0, count + burst, burst)]
    for new in together if quiet else track(together, "queries", transient=True):
        refused += 0 if running.add(new) else len(new)
    bursts, running.decisions = running.decisions, []
    estimated = _total(costs, running.queries).state_bytes
    for each in every[count + burst :]:
        refused += 0 if running.add([each]) else 1
    again, again_s = running.changed(costs)
    drifted = rates | {name: rate * DRIFT for name, rate in rates.items() if int(name[1:]) % 5 == 0}
    later = SizeCosts(costs.plans, drifted, SHIPPED, timed=False).with_all_of(costs)
    _, drift_s = running.changed(later)
    some = running.queries[:: max(len(running.queries) // 500, 1)]
    queries = tuple(PlannedQuery(each.name, 1, costs.plans.plan(each.kind, each.sizes)) for each in some)
    shared = state_bytes(lower(Plan(1, queries)), rates)
    alone = sum(costs.of(each, each.sizes).state_bytes for each in some)
    return {
        "queries": len(running.queries),
        "queries_budget_bytes": budget.state_bytes,
        "queries_refused": refused,
        "queries_state_over_budget": estimated / budget.state_bytes,
        "queries_mean_share": float(np.mean([_share(each) for each in running.queries])) if running.queries else 0.0,
        "queries_change_again": again,
        "queries_shared_state_over_alone": shared / alone if alone else 1.0,
        "queries_longest_decision_s": max(bursts),
        "queries_one_more_decision_s": float(np.median(running.decisions)),
        "queries_one_more_longest_s": max(running.decisions),
        "queries_next_decision_s": again_s,
        "queries_drifted_decision_s": drift_s,
        "queries_s": time.process_time() - began,
    }


class _Running:
    """Queries that run in a budget, and the seconds that each decision took.

    Parameters
    ----------
    costs
        What they take.
    budget
        What all may take.
    """

    def __init__(self, costs: SizeCosts, budget: Cost) -> None:
        self._costs = costs
        self._budget = budget
        self.queries: list[RangedQuery] = []
        self.decisions: list[float] = []

    def add(self, new: Sequence[RangedQuery]) -> bool:
        """Add queries, and change the sizes of others, which takes no time here; return whether there is room."""
        began, costs = time.process_time(), self._costs
        try:
            beside = costs.beside(_total(costs, self.queries), self.queries)
            sizes = admitted(new, self.queries, beside, self._budget).sizes
        except NoRoomError:
            return False
        finally:
            self.decisions.append(time.process_time() - began)
        self.queries = [replace(each, sizes=sizes.get(each.name, each.sizes)) for each in (*self.queries, *new)]
        return True

    def changed(self, costs: SizeCosts) -> tuple[int, float]:
        """Return how many sizes would change at these costs, and how long it takes to decide that."""
        began = time.process_time()
        beside = costs.beside(_total(costs, self.queries), self.queries)
        return len(changed_sizes(self.queries, beside, self._budget).sizes), time.process_time() - began


def _total(costs: SizeCosts, running: list[RangedQuery]) -> Cost:
    return costs.beside(Cost(), []).steady(running, {each.name: each.sizes for each in running})


def _share(query: RangedQuery) -> float:
    shares = [share_of(each)(size) for each, size in query.sizes.items()]
    return sum(shares) / len(shares)


def _texts(dice: random.Random, names: list[str]) -> Iterator[str]:
    """Yield queries: joins of two to four windows, counts at a granularity, and joins of these."""
    kinds: list[tuple[float, Callable[[], str]]] = [
        (0.3, lambda: _chain(dice, names, 2)),
        (0.2, lambda: _chain(dice, names, 3)),
        (0.2, lambda: _chain(dice, names, 4)),
        (0.3, lambda: f"SELECT MAX(k) AS m FROM {dice.choice(names)} {_window(dice)} {_granularity(dice)}"),
    ]
    while True:
        (kind,) = dice.choices([each for _, each in kinds], [weight for weight, _ in kinds])
        yield kind()


def _chain(dice: random.Random, names: list[str], count: int) -> str:
    chosen = dice.sample(names, count)
    window = _window(dice)
    joins = "".join(
        f" JOIN {name} {window} AS t{place} ON t0.k = t{place}.k" for place, name in enumerate(chosen[1:], start=1)
    )
    return f"SELECT t0.x FROM {chosen[0]} {window} AS t0{joins}"


def _window(dice: random.Random) -> str:
    least = dice.randint(1, 5)
    return f"WINDOW(RANGE MIN {least} MINUTES, MAX {least * dice.randint(2, 6)} MINUTES)"


def _granularity(dice: random.Random) -> str:
    return f"GRANULARITY(COARSEST {dice.choice((1, 2, 5, 10))} SECONDS, FINEST {dice.choice((10, 100, 200))} MS)"
