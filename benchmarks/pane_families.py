"""A part of `replanning.py`: twenty windows of 5 s panes beside an odd one, with one family of panes and with two.

On the local engine, with the choice of the cluster: it decides which windows leave, by what operators have done.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
import polars as pl

from cluster.costs.prices import SHIPPED
from cluster.fjord.batch import START
from cluster.fjord.counters import owners_of
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Node
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.pane_query import with_family
from cluster.plan.rewrite import rewrite
from cluster.service.queries.pane_options import family_moves, pane_users
from cluster.service.queries.plan_options import Figures
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.wire.streams import Field, FieldType, StreamSchema

RATE, KEYS = 1_000, 500
WINDOWS = ((60, 5), (125, 20), (305, 60), (185, 30))
CONDITIONS = ("", " WHERE x < 0.8", " WHERE x < 0.5", " WHERE x >= 0.5", " WHERE x >= 0.9")
ODD = (61, 7)
LONGEST_S = 366
SECOND_US = 1_000_000
CATALOG = Catalog.of([StreamSchema("t", (Field("k", FieldType.INTEGER), Field("x", FieldType.REAL)))])


def measured(seconds: int) -> dict[str, float]:
    """Return the figures, measured over so many seconds of application time."""
    windows = [(*window, condition) for window in WINDOWS for condition in CONDITIONS]
    nodes = [_node(*each) for each in (*windows, (*ODD, ""))]
    began = time.process_time()
    moved, deciding = _chosen(nodes)
    one_s, two_s = _seconds_of(nodes, seconds), _seconds_of(moved, seconds)
    return {
        "families": len(lower(_plan(moved)).fragments),
        "families_over_one": round(one_s / two_s, 3),
        "one_family_tuples_per_s": round(RATE * seconds / one_s),
        "family_choice_seconds": round(deciding, 4),
        "family_seconds": round(time.process_time() - began, 1),
    }


def _node(size_s: int, slide_s: int, condition: str) -> Node:
    text = f"SELECT k, AVG(x) AS m FROM t WINDOW(RANGE {size_s} SECONDS SLIDE {slide_s} SECONDS){condition} GROUP BY k"
    return rewrite(translate(text, CATALOG).node).node


def _plan(nodes: Sequence[Node]) -> Plan:
    return Plan(1, tuple(PlannedQuery(f"q{place}", 1, node) for place, node in enumerate(nodes)))


def _arriving(dice: np.random.Generator, begin: int, end: int) -> Mapping[str, Arrival]:
    """Return the tuples from one second on, up to another."""
    count = RATE * (end - begin)
    stamps = np.sort(dice.integers(begin * SECOND_US, end * SECOND_US, count))
    tuples = pl.DataFrame({START: stamps, "k": dice.integers(0, KEYS, count), "x": dice.random(count)})
    return {"t": Arrival((RowsInMemory(tuples),), end * SECOND_US)}


def _seconds_of(nodes: Sequence[Node], seconds: int) -> float:
    """Return the processor time of so many seconds: those of the slides, of which some are dear, each as the mean."""
    dice = np.random.default_rng(3)
    engine = LocalEngine(_plan(nodes))
    engine.run(_arriving(dice, 0, LONGEST_S))
    rounds = []
    for first in range(LONGEST_S, LONGEST_S + 2 * seconds, seconds):
        began = time.process_time()
        for second in range(first, first + seconds):
            engine.run(_arriving(dice, second, second + 1))
        rounds.append(time.process_time() - began)
    return median(rounds)


def _chosen(nodes: Sequence[Node]) -> tuple[list[Node], float]:
    """Return the plans with which queries are to go on, and how long that took."""
    plan = _plan(nodes)
    physical, dice, ticks = lower(plan), np.random.default_rng(5), itertools.count(0, 10)
    clock = [0.0]
    statistics = OperatorStatistics(lambda: clock[0])
    engine = LocalEngine(plan, clock=lambda: float(next(ticks)))
    for second in range(8):
        statistics.add(engine.run(_arriving(dice, second, second + 1)).counters)
        clock[0] += 1
    statistics.observe(owners_of(physical))
    running = [RegisteredQuery(each.name, "", each.node, 1, 0) for each in plan.queries]
    began = time.process_time()
    figures = Figures({"t": float(RATE)}, {}, SHIPPED)
    (users,) = pane_users(running, physical, figures, statistics.rates, lambda _: True).values()
    families = {name: to for move in family_moves(users, figures, 4) for name, to in move.families.items()}
    deciding = time.process_time() - began
    assert math.isclose(users.keys, KEYS, rel_tol=0.5), users.keys  # noqa: S101 - a benchmark of what is seen
    found = [
        with_family(node, families[f"q{place}"]) if f"q{place}" in families else node
        for place, node in enumerate(nodes)
    ]
    return found, deciding
