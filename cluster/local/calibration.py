"""Measures what steps of operators cost on this machine: runs queries for each kind of operator, and fits prices.

**What is run to measure what steps of operators cost: queries for each kind of operator.**

Texts differ in what the operator is given, keeps and makes, so that the parts of a price can be kept apart.

Each second of application time is one micro-batch. Processor time of an operator is counted by its dataflow, as in a
running cluster, with what it takes to save what it keeps; rows that it keeps are taken from estimates, so that the
price fits them. What a micro-batch takes besides is divided among the rows that are sent and answered.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.costs.estimates import ANSWERS, EXCHANGE, QUEUE, Estimate, compared_by, crossings_of, estimates_of
from cluster.costs.prices import Price, Prices, form_of
from cluster.expressions.nodes import Expression
from cluster.fjord.batch import START
from cluster.fjord.counters import Counters, Totals
from cluster.fjord.measured_plans import logical_kind, measured_nodes, measured_pair_shares
from cluster.fjord.operator_statistics import Rates
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import BaseStream, Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine, MemoryTables, RelationRows
from cluster.operators import Node
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Exchange, GroupedFilter, Join, Lookup, Project, Reorder, Scan, Sink
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema


@dataclass(frozen=True, slots=True)
class Load:
    """How much comes.

    Parameters
    ----------
    rate
        Tuples of each stream in a second.
    window_s
        The size of windows.
    """

    rate: int
    window_s: int


LOADS = (Load(20, 20), Load(400, 1), Load(400, 5), Load(3_000, 3))

WORKLOADS: Mapping[str, tuple[str, ...]] = {
    "Filter": ("SELECT x FROM readings WHERE x < 0.1", "SELECT x FROM readings WHERE x < 0.9 AND k < 900"),
    "Project": ("SELECT x + 1 AS y FROM readings",),
    "TimeWindow": ("SELECT DISTINCT k FROM {one}",),
    "CountWindow": (
        "SELECT x FROM readings WINDOW(ROWS 10)",
        "SELECT x FROM readings WINDOW(ROWS 1000) WHERE x < 0.5",
    ),
    "PartitionedWindow": (
        "SELECT x FROM readings WINDOW(PARTITION BY k ROWS 1)",
        "SELECT x FROM readings WINDOW(PARTITION BY k ROWS 5)",
    ),
    "Aggregate": (
        "SELECT k, AVG(x) AS m FROM {one} GROUP BY k",
        "SELECT k, MAX(x) AS m, COUNT(*) AS n FROM {one} WHERE x < 0.3 GROUP BY k",
    ),
    "TotalAggregate": (
        "SELECT COUNT(*) AS n FROM {one} WHERE x < 0.2",
        "SELECT COUNT(*) AS n, MAX(x) AS m FROM {one} GRANULARITY(200 MS)",
        "SELECT COUNT(*) AS n FROM {one} GRANULARITY(50 MS)",
    ),
    "SteppedAggregate": (
        "SELECT k, MAX(x) AS m FROM readings WINDOW(RANGE {window} SLIDE 1 SECOND) GROUP BY k",
        "SELECT k, AVG(x) AS m, COUNT(*) AS n FROM readings WINDOW(RANGE {window} SLIDE 1 SECOND) GROUP BY k",
        "SELECT SUM(x) AS s FROM readings WINDOW(RANGE {window} SLIDE 500 MS)",
    ),
    "Granularity": ("SELECT MAX(x) AS m FROM {one} GRANULARITY(500 MS)",),
    "Distinct": ("SELECT DISTINCT k FROM {one} WHERE x < 0.3", "SELECT DISTINCT k, x FROM {one}"),
    "Join": (
        "SELECT a.k, a.x, b.x AS y FROM {both} WHERE a.k = b.k",
        "SELECT a.k, b.x AS y FROM {both} WHERE a.k = b.k AND a.x < 0.2",
        "SELECT a.k, a.x, b.x AS y FROM {both} WHERE a.k = b.k AND a.x < 0.1 AND b.x < 0.5",
    ),
    "JoinOfAll": (
        "SELECT a.k, b.x AS y FROM {both} WHERE a.x < 0.05 AND b.x < 0.05 AND a.k < b.k",
        "SELECT a.k, b.x AS y FROM {both} WHERE a.x < 0.2 AND b.x < 0.1 AND a.k + 900 < b.k",
        "SELECT a.x, b.x AS y FROM {both} WHERE a.k < 50 AND b.x < 0.1 AND b.x - a.x > 0.09",
    ),
    "SemiJoin": (
        "SELECT k, x FROM {one} WHERE k IN (SELECT k FROM {other} WHERE x < 0.1)",
        "SELECT k, x FROM {one} WHERE x < 0.2 AND k IN (SELECT k FROM {other})",
    ),
    "AntiJoin": (
        "SELECT k, x FROM {one} WHERE k NOT IN (SELECT k FROM {other} WHERE x < 0.1)",
        "SELECT k, x FROM {one} WHERE x < 0.2 AND k NOT IN (SELECT k FROM {other})",
    ),
    "Union": ("SELECT k FROM {one} UNION ALL SELECT k FROM {other}",),
    "Difference": (
        "SELECT k FROM {one} EXCEPT ALL SELECT k FROM {other}",
        "SELECT k FROM {one} WHERE x < 0.2 EXCEPT ALL SELECT k FROM {other}",
    ),
    "Intersection": (
        "SELECT k FROM {one} INTERSECT ALL SELECT k FROM {other}",
        "SELECT k FROM {one} WHERE x < 0.2 INTERSECT ALL SELECT k FROM {other}",
    ),
    "Ranked": (
        "SELECT k, x FROM {one} ORDER BY x DESC, k LIMIT 10",
        "SELECT k, x FROM {one} ORDER BY x DESC, k LIMIT 100",
    ),
    "Istream": ("SELECT k FROM ISTREAM((SELECT k, COUNT(*) AS n FROM {one} GROUP BY k) AS counted)",),
    "Sequence": ("SELECT k, x - LAG(x) OVER (PARTITION BY k) AS d FROM readings",),
    "Lookup": ("SELECT r.x, p.y FROM readings r JOIN places p ON r.k = p.k",),
}
"""Texts over streams ``readings`` and ``others`` with k from 0 to 999 and x from 0 to 1, and a relation ``places``."""


def written(text: str, load: Load) -> str:
    """Return a text with windows of a load."""
    window = f"{load.window_s} SECONDS"
    one, other = (f"{stream} WINDOW(RANGE {window})" for stream in ("readings", "others"))
    both = f"readings a WINDOW(RANGE {window}), others b WINDOW(RANGE {window})"
    return text.format(window=window, one=one, other=other, both=both)


KEYS = 1_000
MEASURED_BATCHES = 12
"""After windows have been filled, and one more."""
TIMES = 2
"""So often each query runs, in turn; the quicker run counts, as a machine with other work is slower for a while."""
VARIES = 1.5
"""By this factor at least a quantity has to vary to have a price of its own."""
ROUNDS = 8
"""So often prices are found, each time with errors in relation to those found before."""
MOST_OFF = 10.0
"""By this factor a time may be off to count in full."""
KINDS = frozenset({*WORKLOADS, "Source"})
SECOND_US = 1_000_000
_FIELDS = (Field("k", FieldType.INTEGER), Field("x", FieldType.REAL))
_PLACES = StaticRelation("places", "places@1", (Column("k", FieldType.INTEGER), Column("y", FieldType.REAL)))
STREAMS = ("readings", "others")
CATALOG = Catalog.of([*(BaseStream(StreamSchema(name, _FIELDS)) for name in STREAMS), _PLACES])


@dataclass(frozen=True, slots=True)
class Sighting:
    """What operators of one kind did in a micro-batch of one second, on average.

    Parameters
    ----------
    rows_in, rows_out
        Rows that they took and made.
    kept, compared
        Rows that they were estimated to keep, and pairs that they were estimated to compare.
    us
        Microseconds that they took.
    """

    rows_in: float
    rows_out: float
    kept: float
    compared: float
    us: float


@dataclass(frozen=True, slots=True)
class Run:
    """What a query did in a micro-batch of one second, on average.

    Parameters
    ----------
    sightings
        By kind of operator.
    node, estimates
        Its plan, and what is expected of it with the shares that were measured.
    us
        Microseconds of a processor that the micro-batch took, whatever they were spent on.
    besides_us
        Those of them that no operator took, but those that send rows to buckets.
    rates, selectivities, pair_shares
        What is known: see :func:`cluster.costs.estimates.estimates_of`.
    saved
        By operator, its state in the end.
    """

    sightings: Mapping[str, Sighting]
    node: Node
    estimates: Mapping[Node, Estimate]
    us: float
    besides_us: float
    rates: Mapping[str, float]
    selectivities: Mapping[tuple[str, Expression], float]
    pair_shares: Mapping[Expression, float]
    saved: Mapping[str, bytes]


def runs() -> int:
    """Return how many queries a calibration runs."""
    return sum(len(texts) for texts in WORKLOADS.values()) * len(LOADS) * TIMES


def calibrated(progress: Callable[[str], None], *, machine: str, measured: str, seed: int = 1) -> Prices:
    """Return the prices of this machine.

    Parameters
    ----------
    progress
        Called with the kind of operator before each run.
    machine, measured
        Which machine it is, and when it is measured, for the file.
    seed
        Of the tuples.
    """
    quickest: dict[tuple[str, Load], Run] = {}
    texts = [(kind, text, load) for kind, some in WORKLOADS.items() for text, load in itertools.product(some, LOADS)]
    for kind, text, load in texts * TIMES:
        progress(kind)
        run = run_query(written(text, load), load, np.random.default_rng(seed))
        known = quickest.get((text, load))
        quickest[text, load] = run if known is None or run.us < known.us else known
    done = list(quickest.values())
    sightings: dict[str, list[Sighting]] = {}
    for each in done:
        for kind, seen in each.sightings.items():
            sightings.setdefault(kind, []).append(seen)
    priced = {kind: fitted(each) for kind, each in sightings.items() if kind in KINDS}
    return Prices({**priced, **_besides(done)}, measured, machine)


def _besides(done: Sequence[Run]) -> dict[str, Price]:
    """Return the prices of sending and answering: what micro-batches took besides their operators."""
    rows, times = [], []
    for each in done:
        crossings = crossings_of(each.node)
        answers = each.estimates[each.node].rows_per_second
        sent = [each.estimates[node].rows_per_second for node in crossings]
        if answers is not None:
            rows_sent = sum(count for count in sent if count is not None)
            rows.append([1.0, answers, max(len(crossings) - 1.0, 0.0), rows_sent, float(len(each.estimates))])
            times.append(max(each.besides_us, 1.0))
    found = nonnegative(np.array(rows), np.array(times)) if rows else [0.0] * 5
    answering, sending = Price(found[0], row_out=found[1]), Price(found[2], found[3])
    return {ANSWERS: answering, EXCHANGE: sending, QUEUE: Price(found[4])}


def priced(run: Run, prices: Prices) -> Mapping[Node, Estimate]:
    """Return what is expected of a query that has run, at other prices."""
    return estimates_of(run.node, run.rates, run.selectivities, prices=prices, pair_shares=run.pair_shares)


def nonnegative(rows: NDArray[np.float64], times: NDArray[np.float64]) -> list[float]:
    """Return what each column costs, none below zero, so that relative errors are least.

    Errors are in relation to what is found, not to the times: else runs that were quick by chance would count more.
    """
    weights = times
    for _ in range(ROUNDS):
        found = _weighted(rows, times, weights)
        weights = np.maximum(rows @ found, times / MOST_OFF)
    return [round(float(each), 6) for each in found]


def _weighted(
    rows: NDArray[np.float64], times: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    used = list(range(rows.shape[1]))
    while True:
        found = np.linalg.lstsq(rows[:, used] / weights[:, None], times / weights, rcond=None)[0]
        if (found >= 0).all() or len(used) == 1:
            break
        del used[int(found.argmin())]
    prices = np.zeros(rows.shape[1])
    prices[used] = np.maximum(found, 0.0)
    return prices


def fitted(sightings: Sequence[Sighting]) -> Price:
    """Return the prices that explain sightings best, none below zero; relative errors count, so that small ones do."""
    rows = np.array([[1.0, each.rows_in, each.rows_out, each.kept, each.compared] for each in sightings])
    times = np.array([max(each.us, 1.0) for each in sightings])
    # What hardly varies cannot be kept apart from the price of a batch.
    varies = [low * VARIES <= high for low, high in zip(rows.min(axis=0), rows.max(axis=0), strict=True)]
    used = [0, *(place for place in range(1, rows.shape[1]) if varies[place] and rows[:, place].any())]
    prices = dict(zip(used, nonnegative(rows[:, used], times), strict=True))
    return Price(*(prices.get(place, 0.0) for place in range(5)))


def run_query(text: str, load: Load, dice: np.random.Generator, batches: int = MEASURED_BATCHES) -> Run:
    """Run a query second by second until its windows are full, and some seconds more; return what it did in these.

    Parameters
    ----------
    text
        Over the streams of :data:`CATALOG`.
    load
        Its rate, and how long its windows are at most.
    dice
        Of the tuples.
    batches
        How many seconds are measured, two by two: windows of the measured queries move every two seconds at most. The
        quickest third counts: other programs only ever add time.
    """
    node = rewrite(translate(text, CATALOG).node).node
    plan = Plan(1, (PlannedQuery("priced", 1, node),))
    physical = lower(plan)
    (fragment,) = physical.fragments
    places = pl.DataFrame({"k": range(KEYS), "y": dice.random(KEYS)})
    tables = MemoryTables({_PLACES.identity: [RelationRows(places)]})
    # Counters are reported once in a while: by this clock, always.
    ticks = itertools.count(0, 10)
    engine = LocalEngine(plan, tables=lambda: tables, clock=lambda: float(next(ticks)))
    counted: list[tuple[float, Counters]] = []
    for second in range(load.window_s + 2 + batches):
        arrivals = {
            name: Arrival((RowsInMemory(_tuples(load.rate, second, second + 1, dice)),), (second + 1) * SECOND_US)
            for name in plan.streams
        }
        began = time.process_time()
        counters = engine.run(arrivals).counters
        counted.append(((time.process_time() - began) * SECOND_US, _by_node(fragment, counters)))
    pairs = [counted[at : at + 2] for at in range(len(counted) - batches, len(counted), 2)]
    quickest = sorted(pairs, key=lambda pair: sum(us for us, _ in pair))[: max(len(pairs) // 3, 1)]
    seen = [each for pair in quickest for each in pair]
    rates, measured = dict.fromkeys(STREAMS, float(load.rate)), [each for _, each in seen]

    def shown(operator: str) -> Rates:
        did = [each[operator] for each in measured if operator in each]
        return Rates(sum(each.rows_in for each in did) / len(seen), sum(each.rows_out for each in did) / len(seen))

    selectivities = _shares_passing(fragment, rates, shown)
    shares = measured_pair_shares(node, measured_nodes(node, fragment, shown), rates, selectivities)
    estimates = estimates_of(node, rates, selectivities, pair_shares=shares)
    sightings = dict(_sightings(fragment, measured, estimates))
    operators = [node.id for node in fragment.nodes if _kind(node, fragment) != EXCHANGE]
    besides = mean(us - SECOND_US * _summed(each, operators, lambda totals: totals.seconds) for us, each in seen)
    took, saved = mean(us for us, _ in seen), dict(engine.stores[0])
    return Run(sightings, node, estimates, took, besides, rates, selectivities, shares, saved)


def _shares_passing(
    fragment: Fragment, rates: Mapping[str, float], shown: Callable[[str], Rates]
) -> dict[tuple[str, Expression], float]:
    """Return, by stream and condition, the share of tuples that pass; scans leave out some of the others already."""
    found: dict[tuple[str, Expression], float] = {}
    for node in fragment.next_to_scan:
        if isinstance(node.operation, GroupedFilter):
            ((_, condition),) = fragment.conditions[node.operation.place]
            below = node
            while below.inputs:
                below = fragment.by_id[below.inputs[0]]
            assert isinstance(below.operation, Scan)  # noqa: S101 - pipelines begin there
            stream = below.operation.stream
            if condition is not None:
                found[stream, condition.expression] = shown(node.id).rows_out_per_second / rates[stream]
    return found


def _by_node(fragment: Fragment, counters: Counters) -> Counters:
    """Return counters by the nodes of a fragment: scans and lookups are counted for all fragments together."""
    shared = {
        kind: [totals for name, totals in counters.items() if name.startswith(f"{kind.kind_name().lower()} ")]
        for kind in (Scan, Lookup)
    }
    found = dict(counters)
    for kind, totals in shared.items():
        nodes = [each.id for each in fragment.nodes if isinstance(each.operation, kind)]
        found.update(zip(nodes, totals, strict=False))
    return found


def _sightings(
    fragment: Fragment, counted: Sequence[Counters], estimates: Mapping[Node, Estimate]
) -> Iterator[tuple[str, Sighting]]:
    kinds = {each.id: _kind(each, fragment) for each in fragment.nodes}
    read = {below: kinds[each.id] for each in fragment.nodes for below in each.inputs}
    for kind in sorted(set(kinds.values())):
        own = [each for each in fragment.nodes if kinds[each.id] == kind and each.id in counted[-1]]
        # Lookups next to a scan are part of its source in the plan.
        logical = [each for each in estimates if type(each).__name__ == ("Source" if kind == "Lookup" else kind)]
        if not own or not logical:
            continue
        firsts = [each.id for each in own if all(kinds[below] != kind for below in each.inputs)]
        lasts = [each.id for each in own if read.get(each.id) != kind]
        number = len(logical)
        yield (
            kind if kind == "Lookup" else form_of(logical[0]),
            Sighting(
                mean(_summed(each, firsts, lambda totals: totals.rows_in or totals.rows_out) for each in counted)
                / number,
                mean(_summed(each, lasts, lambda totals: totals.rows_out) for each in counted) / number,
                sum(estimates[each].kept or 0.0 for each in logical) / number,
                sum(compared_by(each, estimates) for each in logical) / number,
                mean(_summed(each, [node.id for node in own], lambda totals: totals.seconds) for each in counted)
                * SECOND_US
                / number,
            ),
        )


def _kind(node: OperatorNode, fragment: Fragment) -> str:
    """Return the kind whose price has the work of an operator; what sends rows to buckets is in no price of a node."""
    match node.operation:
        case Exchange() | Reorder() | Sink():
            return EXCHANGE
        case GroupedFilter() as filters if all(each is None for _, each in fragment.conditions[filters.place]):
            return "Source"
        case Project() if any(isinstance(fragment.by_id[each].operation, Join) for each in node.inputs):
            return "Join"  # what it takes of a join's pairs has not been computed before
        case operation:
            return logical_kind(operation)


def _summed(counters: Counters, operators: Sequence[str], what: Callable[[Totals], float]) -> float:
    return sum(what(counters[each]) for each in operators if each in counters)


def _tuples(rate: int, begin: int, end: int, dice: np.random.Generator) -> pl.DataFrame:
    """Return so many tuples for each of some seconds."""
    count = rate * (end - begin)
    return pl.DataFrame(
        {
            START: np.sort(dice.integers(begin * SECOND_US, end * SECOND_US, count)),
            "k": dice.integers(0, KEYS, count),
            "x": dice.random(count),
        }
    )
