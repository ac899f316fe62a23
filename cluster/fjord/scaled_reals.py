"""Sums, means and quantiles of reals without overflow in intermediate results.

Reals are scaled by a power of two, which changes none of their digits, before they are added.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import polars as pl

SCALE = 2.0**-64
"""No number of tuples is so large that values scaled by this add up to more than the largest real."""
LARGEST = sys.float_info.max


def mean_of(scaled_sum: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the mean of so many values, given their scaled sum; rounding never makes it overflow."""
    return (scaled_sum / count).clip(-LARGEST * SCALE, LARGEST * SCALE) / SCALE


def different(values: pl.Expr) -> pl.Expr:
    """Return lists with each value once."""
    return values.list.unique(maintain_order=True)


def scaled(values: pl.Expr) -> pl.Expr:
    """Return lists with each value once, scaled and sorted, so that their sum does not depend on how they came."""
    return different(values).list.sort().list.eval(pl.element().cast(pl.Float64) * SCALE)


def between_values(found_in: Callable[[pl.Expr], pl.Expr]) -> Callable[[pl.Expr], pl.Expr]:
    """Return a function that interpolates between two values of each list; intermediate results may overflow."""

    def found(values: pl.Series) -> pl.Series:
        lists, name = values.to_frame(), pl.col(values.name)
        at_once = lists.select(found_in(name).cast(pl.Float64)).to_series()
        infinite = ~at_once.is_finite()
        if not infinite.any():
            return at_once
        halves = name.list.eval(pl.element().cast(pl.Float64) * 0.5)
        return lists.select(found_in(halves) * 2.0).to_series().zip_with(infinite, at_once)

    return lambda values: values.map_batches(found, return_dtype=pl.Float64, is_elementwise=True)
