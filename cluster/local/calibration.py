"""Measures what steps of operators cost on this machine: runs queries for each kind of operator, and fits prices.

Each second of application time is one micro-batch. Seconds of an operator are counted by its dataflow, as in a running
cluster; rows that it keeps are taken from estimates, so that the price fits them. What it costs to save a kept row is
added, as the engine writes state with each micro-batch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np
import polars as pl

from cluster.costs.estimates import Estimate, compared_by, estimates_of
from cluster.costs.prices import Price, Prices
from cluster.fjord.batch import START
from cluster.fjord.counters import Counters, Totals
from cluster.fjord.measured_nodes import logical_kind
from cluster.fjord.saved_state import pack_state
from cluster.fjord.stored_rows import RowsInMemory
from cluster.language.algebra import Node
from cluster.language.catalog import BaseStream, Catalog, StaticRelation
from cluster.language.columns import Column
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.local.memory_tables import MemoryTables, RelationRows
from cluster.local.price_workloads import LOADS, WORKLOADS, Load, written
from cluster.physical.lowering import lower
from cluster.physical.nodes import Fragment
from cluster.physical.operations import Lookup, Scan
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

KEYS = 1_000
MEASURED_BATCHES = 3
"""After windows have been filled, and one more. The quickest counts: others wait for other programs."""
VARIES = 1.5
"""By this factor at least a quantity has to vary to have a price of its own."""
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


def runs() -> int:
    """Return how many queries a calibration runs."""
    return sum(len(texts) for texts in WORKLOADS.values()) * len(LOADS)


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
    sightings: dict[str, list[Sighting]] = {}
    for kind, texts in WORKLOADS.items():
        for text, load in itertools.product(texts, LOADS):
            progress(kind)
            for found, each in _run(text, load, np.random.default_rng(seed)).items():
                sightings.setdefault(found, []).append(each)
    saving = saving_us(seed)
    priced = {kind: _with_saving(fitted(each), saving) for kind, each in sightings.items() if kind in KINDS}
    return Prices(priced, measured, machine)


def fitted(sightings: Sequence[Sighting]) -> Price:
    """Return the prices that explain sightings best, none below zero; relative errors count, so that small ones do."""
    rows = np.array([[1.0, each.rows_in, each.rows_out, each.kept, each.compared] for each in sightings])
    times = np.array([max(each.us, 1.0) for each in sightings])
    weighted = rows / times[:, None]
    # What hardly varies cannot be kept apart from the price of a batch.
    varies = [low * VARIES <= high for low, high in zip(rows.min(axis=0), rows.max(axis=0), strict=True)]
    used = [0, *(place for place in range(1, rows.shape[1]) if varies[place] and rows[:, place].any())]
    while True:
        found = np.linalg.lstsq(weighted[:, used], np.ones(len(times)), rcond=None)[0]
        if (found >= 0).all() or len(used) == 1:
            break
        del used[int(found.argmin())]
    prices = dict(zip(used, found, strict=True))
    batch, row_in, row_out, kept, compared = (round(max(float(prices.get(place, 0.0)), 0.0), 6) for place in range(5))
    return Price(batch, row_in, row_out, kept, compared)


def saving_us(seed: int, rows: int = 20_000) -> float:
    """Return what it costs to save one row of state, in microseconds."""
    frame = _tuples(rows, 0, 1, np.random.default_rng(seed))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        pack_state({"rows": frame})
        times.append(time.perf_counter() - began)
    return median(times) * 1e6 / rows


def _with_saving(price: Price, saving: float) -> Price:
    """Return a price of what keeps rows, with what it costs to save them; what keeps none is not asked to."""
    return Price(price.batch, price.row_in, price.row_out, round(price.kept + saving, 6), price.compared)


def _run(text: str, load: Load, dice: np.random.Generator) -> Mapping[str, Sighting]:
    """Return, by kind, what the operators of a query did."""
    node = rewrite(translate(written(text, load), CATALOG).node).node
    plan = Plan(1, (PlannedQuery("priced", 1, node),))
    (fragment,) = lower(plan).fragments
    places = pl.DataFrame({"k": range(KEYS), "y": dice.random(KEYS)})
    tables = MemoryTables({_PLACES.identity: [RelationRows(places)]})
    # Counters are reported once in a while: by this clock, always.
    ticks = itertools.count(0, 10)
    engine = LocalEngine(plan, tables=lambda: tables, clock=lambda: float(next(ticks)))
    # Windows are filled at once.
    ends = [load.window_s, *range(load.window_s + 1, load.window_s + 2 + MEASURED_BATCHES)]
    counted: list[Counters] = []
    for begin, end in itertools.pairwise([0, *ends]):
        arrivals = {
            name: Arrival((RowsInMemory(_tuples(load.rate, begin, end, dice)),), end * SECOND_US)
            for name in plan.streams
        }
        counted.append(engine.run(arrivals).counters)
    estimates = estimates_of(node, dict.fromkeys(STREAMS, float(load.rate)))
    measured = [_by_node(fragment, each) for each in counted[-MEASURED_BATCHES:]]
    return dict(_sightings(fragment, measured, estimates))


def _by_node(fragment: Fragment, counters: Counters) -> Counters:
    """Return counters by the nodes of a fragment: scans and lookups are counted for all fragments together."""
    shared = {
        kind: [totals for name, totals in counters.items() if name.startswith(f"{kind.__name__.lower()} ")]
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
    kinds = {each.id: logical_kind(each.operation) for each in fragment.nodes}
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
            kind,
            Sighting(
                mean(_summed(each, firsts, lambda totals: totals.rows_in or totals.rows_out) for each in counted)
                / number,
                mean(_summed(each, lasts, lambda totals: totals.rows_out) for each in counted) / number,
                sum(estimates[each].kept or 0.0 for each in logical) / number,
                sum(compared_by(each, estimates) for each in logical) / number,
                min(_summed(each, [node.id for node in own], lambda totals: totals.seconds) for each in counted)
                * SECOND_US
                / number,
            ),
        )


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
