"""A real log as a stream of a given probability to coalesce: speeds of a day of Los Angeles, rounded until they repeat.

The papers take a log of sensors in a laboratory that cannot be had here, and round its readings to a multiple of some
quantum, the coarser the more samples equal the one before (papers/coalescing.md section 5.2, papers/cals.md section 5).
The same is done with the readings of loop detectors that the examples have: 207 of them, one each five minutes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
from coalescing_streams import Samples

LOG = Path(__file__).parents[1] / "examples" / "traffic" / "la_loop_speeds_day.parquet"
COARSEST = 200.0
"""Miles an hour; all speeds are one value then."""
HALVINGS = 30


@cache
def readings() -> pl.DataFrame:
    """Return stamp (minutes), sensor and speed (miles an hour), in the order of stamps and sensors."""
    stamp = pl.col("time").dt.epoch("s") // 60
    return pl.read_parquet(LOG).select(stamp.alias("stamp"), "sensor", "speed").sort("stamp", "sensor")


def coalescing_probability(log: pl.DataFrame, quantum: float) -> float:
    """Return the share of readings, but for the first of each sensor, whose rounded speed is that of the one before."""
    value = (pl.col("speed") / quantum).floor()
    same = log.sort("sensor", "stamp").select((value == value.shift()).over("sensor"))
    return float(np.mean(same.to_series().drop_nulls().to_numpy()))


def quantum_for(log: pl.DataFrame, coalescing: float) -> float:
    """Return the quantum for which readings repeat with a probability, as closely as halving an interval finds it."""
    finest, coarsest = 0.0, COARSEST
    for _ in range(HALVINGS):
        middle = (finest + coarsest) / 2
        if coalescing_probability(log, middle) < coalescing:
            finest = middle
        else:
            coarsest = middle
    return coarsest


def rounded(sensors: int, coalescing: float) -> tuple[Samples, float]:
    """Return the day of the first sensors, all stamps in order and none twice, and how often readings repeat."""
    first = readings().select(pl.col("sensor").unique(maintain_order=True)).to_series().head(sensors)
    log = readings().filter(pl.col("sensor").is_in(first.to_list()))
    quantum = quantum_for(log, coalescing)
    value = (log["speed"] / quantum).floor().cast(pl.Int64).to_numpy()
    group = log["sensor"].cast(pl.Int64).to_numpy()
    return Samples(np.arange(len(value)), group, value), coalescing_probability(log, quantum)
