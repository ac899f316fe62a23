"""What queries with ``KEEP`` answer, and how fast: through the local engine, from samples to rows with their quality.

`engine_memory_M_cp_0.95` is the accuracy of the rows of one window (papers/cals.md section 1.5), compared with those of
the same query without KEEP; `..._shown` is what the engine estimates itself. `kept_rows_per_second` is how many samples
a query takes in a second of processor time that keeps 10,000 of a window of an hour of 100 sensors, which has
100,000, at a coalescing probability of .95, and shows its rows every minute; `exact_rows_per_second` is without KEEP.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Iterator
from datetime import datetime

import numpy as np
import polars as pl

from cluster.fjord.batch import START
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.temporal.kept_samples import Piece
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.temporal.accuracy import quality

US = 1_000_000
HOUR = 3_600 * US
ALL = 10**12
"""Longer than any stream of one window, in microseconds."""
SENSORS, PER_HOUR, KEPT, BATCH = 100, 100_000, 10_000, 10_000
PROBABILITY = 0.95
SCHEMA = StreamSchema("a", (Field("k", FieldType.TEXT), Field("value", FieldType.INTEGER)))
ITEM = "a WINDOW(RANGE {} US SLIDE {} US) COALESCE(value BY k){}"


def through_the_engine(memories: tuple[float, ...], size: int, seeds: int, samples: int) -> dict[str, float]:
    """Return accuracies by memory, and rates."""
    report: dict[str, float] = {}
    for memory in memories:
        found = [_accuracies(size, round(memory * size), seed) for seed in range(seeds)]
        name = f"engine_memory_{memory}_cp_{PROBABILITY}"
        report[name] = round(statistics.fmean(each for each, _ in found), 3)
        report[f"{name}_shown"] = round(statistics.fmean(each for _, each in found), 3)
    report["kept_rows_per_second"] = _rate(f" KEEP {KEPT} TUPLES", samples)
    report["exact_rows_per_second"] = _rate("", samples)
    return report


def _accuracies(size: int, most: int, seed: int) -> tuple[float, float]:
    """Return how accurate the rows of one window are, and what the engine has estimated."""
    stream = _samples(size, 1, seed, US)
    exact, _ = _pieces(stream, "")
    kept, estimated = _pieces(stream, f" KEEP {most} TUPLES")
    return quality(exact, kept).accuracy, estimated


def _pieces(stream: pl.DataFrame, keep: str) -> tuple[list[Piece], float]:
    engine = _engine(f"SELECT k, value, VALID(s) AS held FROM {ITEM.format(ALL, ALL, keep)} AS s")
    answered = engine.run({"a": Arrival((RowsInMemory(stream),), ALL)})
    ended = engine.run({"a": Arrival((), 3 * ALL)})
    rows = (json.loads(each) for each in pl.concat([answered.rows, ended.rows])["row"])
    found = [Piece((row["k"],), (row["value"],), _us(row["held_start"]), _us(row["held_end"])) for row in rows]
    totals = [each for each in answered.counters.values() if each.estimated]
    estimated = sum(each.accuracies for each in totals) / sum(each.estimated for each in totals) if totals else 1.0
    return found, estimated


def _us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * US)


def _rate(keep: str, samples: int) -> float:
    """Return how many samples are taken in a second of processor time, once the window is full."""
    stream = _samples(PER_HOUR + samples, SENSORS, 1, HOUR // PER_HOUR)
    engine = _engine(f"SELECT k, value, VALID(s) AS held FROM {ITEM.format(HOUR, 60 * US, keep)} AS s")
    spent, taken = 0.0, 0
    for place, part in enumerate(_parts(stream)):
        began = time.process_time()
        engine.run({"a": Arrival((RowsInMemory(part),), int(part[START].max()) + 1)})  # type: ignore[arg-type] # a column of integers
        if place * BATCH >= PER_HOUR:
            spent, taken = spent + time.process_time() - began, taken + part.height
    return round(taken / spent)


def _parts(stream: pl.DataFrame) -> Iterator[pl.DataFrame]:
    for first in range(0, stream.height, BATCH):
        yield stream.slice(first, BATCH)


def _engine(text: str) -> LocalEngine:
    node = rewrite(translate(text, Catalog.of([SCHEMA])).node).node
    ticks = itertools.count(0, 10)  # counters are reported once in a while: by this clock, always
    return LocalEngine(Plan(1, (PlannedQuery("q", 1, node),)), clock=lambda: float(next(ticks)))


def _samples(size: int, sensors: int, seed: int, distance_us: int) -> pl.DataFrame:
    """Return a stream of section 5.3 of each sensor, in the order of stamps."""
    dice = np.random.default_rng(seed)
    stamps = np.cumsum(np.maximum(1, dice.exponential(distance_us, size))).astype(np.int64)
    keys = dice.integers(sensors, size=size)
    others, repeated = dice.integers(999, size=size).tolist(), (dice.random(size) < PROBABILITY).tolist()
    last: dict[int, int] = {}
    values: list[int] = []
    for key, other, repeats in zip(keys.tolist(), others, repeated, strict=True):
        before = last.get(key)
        if before is None:
            last[key] = other
        elif not repeats:
            last[key] = other + (other >= before)
        values.append(last[key])
    names = [f"s{key:03}" for key in keys.tolist()]
    return pl.DataFrame({START: stamps, "k": names, "value": pl.Series(values, dtype=pl.Int64)})
