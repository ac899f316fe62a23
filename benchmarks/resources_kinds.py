"""Queries of a dozen kinds on the local engine: what they take of a processor and keep, beside what is estimated.

None of them, and none of their rates and windows, is among those by which prices are measured. Streams are as estimates
assume them, with a thousand keys, and the shares of tuples and pairs that meet conditions are known, as of queries that
run in a cluster. Processor time is that of whole micro-batches: operators, buckets, answers and saved state.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from rich.progress import track

from cluster.costs.estimates import answering_us, totals_of
from cluster.costs.prices import Prices
from cluster.fjord.saved_state import unpack_state
from cluster.fjord.upper_estimates import state_bytes
from cluster.local.calibration import Load, Run, priced, run_query
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery

CLOSE = 0.2
TIMES = 3
"""So often each setting runs, in turn; the quickest run counts, since other programs only ever add time."""
_A, _B = "readings a WINDOW(RANGE {0} SECONDS)", "others b WINDOW(RANGE {1} SECONDS)"
_JOINED = f"SELECT a.k, a.x, b.x AS y FROM {_A} JOIN {_B} ON "
_ONE = "FROM readings WINDOW(RANGE {0} SECONDS"
SETTINGS: Mapping[str, tuple[str, Load]] = {
    "join_of_similar": (f"{_JOINED.format(30, 30)}a.x - b.x < 0.0005 AND b.x - a.x < 0.0005", Load(10, 30)),
    "join_wide": (f"{_JOINED.format(10, 10)}a.k = b.k", Load(1_500, 10)),
    "join_narrow": (f"{_JOINED.format(10, 10)}a.k = b.k WHERE a.x < 0.05 AND b.x < 0.2", Load(300, 10)),
    "join_of_two_windows": (f"{_JOINED.format(2, 12)}a.k = b.k", Load(200, 12)),
    "aggregate_in_steps": (
        f"SELECT k, SUM(x) AS s, COUNT(*) AS n {_ONE.format(10)} SLIDE 2 SECONDS) GROUP BY k",
        Load(800, 10),
    ),
    "aggregate_of_groups": (f"SELECT k, AVG(x) AS m {_ONE.format(7)}) GROUP BY k", Load(200, 7)),
    "count_at_a_granularity": (f"SELECT COUNT(*) AS n {_ONE.format(10)}) GRANULARITY(100 MS)", Load(300, 10)),
    "distinct": (f"SELECT DISTINCT k {_ONE.format(8)}) WHERE x < 0.6", Load(250, 8)),
    "union": (
        f"SELECT k, x {_ONE.format(6)}) UNION ALL SELECT k, x FROM others WINDOW(RANGE 6 SECONDS)",
        Load(1_000, 6),
    ),
    "filter": ("SELECT x, k FROM readings WHERE x < 0.4 AND k > 100", Load(2_000, 1)),
    "lookup": ("SELECT r.x, p.y FROM readings r JOIN places p ON r.k = p.k WHERE r.x > 0.5", Load(1_000, 1)),
    "semijoin": (
        f"SELECT k, x {_ONE.format(4)}) WHERE k IN (SELECT k FROM others WINDOW(RANGE 9 SECONDS) WHERE x < 0.3)",
        Load(150, 9),
    ),
}


def settings_of_kinds(prices: Prices, *, quiet: bool) -> dict[str, Any]:
    """Return, for each setting, what is estimated over what is measured: time as priced, and bytes of state."""
    turns = [(name, time) for time in range(TIMES) for name in SETTINGS]
    runs: dict[str, list[Run]] = {}
    for name, time in turns if quiet else track(turns, "kinds of queries", transient=True):
        runs.setdefault(name, []).append(run_query(*SETTINGS[name], np.random.default_rng(100 + time)))
    quickest = {name: min(each, key=lambda run: run.us) for name, each in runs.items()}
    busy = {name: estimated_us(each, prices) / each.us for name, each in quickest.items()}
    kept = {name: saved_bytes(each.saved) for name, each in quickest.items()}
    state = {name: estimated_bytes(quickest[name]) / size for name, size in kept.items() if size}
    return {
        **{f"busy_{name}_estimated_over_measured": each for name, each in busy.items()},
        "busy_estimated_over_measured_median": median(busy.values()),
        "busy_estimated_over_measured_worst": max(busy.values(), key=lambda each: abs(np.log(each))),
        "busy_within_20_percent": sum(abs(each - 1) <= CLOSE for each in busy.values()) / len(busy),
        **{f"state_{name}_estimated_over_measured": each for name, each in state.items()},
        "state_estimated_over_measured_least": min(state.values()),
    }


def estimated_us(run: Run, prices: Prices) -> float:
    """Return the microseconds of a processor in a second that are estimated for a query that has run."""
    estimates = priced(run, prices)
    return totals_of(estimates.values()).work_us + answering_us(run.node, estimates, prices)


def estimated_bytes(run: Run) -> float:
    """Return the bytes that a query keeps at most."""
    return state_bytes(lower(Plan(0, (PlannedQuery("q", 0, run.node),))), run.rates)


def saved_bytes(saved: Mapping[str, bytes]) -> int:
    """Return the bytes of the rows that are kept; what each operator's saved state has besides is about 800 bytes."""
    return sum(
        value.estimated_size()
        for name, each in saved.items()
        if "/" in name
        for value in unpack_state(each).values()
        if isinstance(value, pl.DataFrame)
    )
