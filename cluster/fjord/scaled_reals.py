"""Sums, means and quantiles of reals without overflow in intermediate results.

Reals are added as they are, and once more scaled down by a power of two. That changes none of their digits but those of
the smallest, below 1e-288: so the scaled sum counts only where the plain one has left the reals, on the way or at all.

    plain    1e308 + 1e308 - 1e308 = infinite          5e-324 + 1e-300 = 1e-300
    scaled   (5.4e288 + 5.4e288 - 5.4e288) / 2^-64     (0 + 5.4e-320) / 2^-64: other digits

Means of integers are those of exact sums. These are known twice, too: as integers of 64 bits, which wrap around, and as
scaled reals, which tell how often they have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.scalars.rounded_once import EXACT_INTEGERS

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

SCALE = 2.0**-64
"""No number of tuples is so large that values scaled by this add up to more than the largest real."""
LARGEST = sys.float_info.max


def mean_of(scaled_sum: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the mean of so many values, given their scaled sum; rounding never makes it overflow."""
    return (scaled_sum / count).clip(-LARGEST * SCALE, LARGEST * SCALE) / SCALE


def sum_of(plain: pl.Expr, scaled_sum: pl.Expr) -> pl.Expr:
    """Return a sum of reals, given both its forms."""
    return pl.when(plain.is_finite()).then(plain).otherwise(scaled_sum / SCALE)


def mean_of_reals(plain: pl.Expr, scaled_sum: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the mean of so many reals, given both forms of their sum."""
    return pl.when(plain.is_finite()).then(plain / count).otherwise(mean_of(scaled_sum, count))


def mean_of_integers(wrapped: pl.Expr, scaled_sum: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the real next to the mean of so many integers, given both forms of their sum."""

    def found(columns: Sequence[pl.Series]) -> pl.Series:
        sums, reals, counts = (each.fill_null(0).to_numpy() for each in columns)
        return pl.Series(integer_means(sums, reals, counts))

    return pl.map_batches([wrapped, scaled_sum, count], found, return_dtype=pl.Float64, is_elementwise=True)


def integer_means(wrapped: Integers, scaled_sums: Reals, counts: Integers) -> Reals:
    """Return the reals next to means of integers, NaN of none; the sums are wrapped around, and scaled.

    >>> integer_means(np.array([1, -2]), np.array([0.0, 1.0]), np.array([2, 4])).tolist()
    [0.5, 4.611686018427388e+18]
    """
    sums, divisors = wrapped.astype(np.float64), counts.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = sums / divisors
        # How often the sum has gone around: the scaled sum is that number, but for a fraction.
        around = np.rint(scaled_sums - sums * SCALE)
    rounded_twice = (np.abs(sums) >= EXACT_INTEGERS) | (around != 0)
    for place in np.flatnonzero(rounded_twice & (counts > 0)):
        found[place] = (int(wrapped[place]) + int(around[place]) * 2**64) / int(counts[place])
    return found


def different(values: pl.Expr) -> pl.Expr:
    """Return lists with each value once."""
    return values.list.unique(maintain_order=True)


def wrapped_sums(scaled_sums: pl.Series) -> pl.Series:
    """Return the integers next to scaled sums, as those of 64 bits wrap around.

    >>> wrapped_sums(pl.Series([2.0**-62, 0.5])).to_list()
    [4, -9223372036854775808]
    """
    sums = [None if each is None else int(each / SCALE) for each in scaled_sums.to_list()]
    found = [None if each is None else (each + 2**63) % 2**64 - 2**63 for each in sums]
    return pl.Series(scaled_sums.name, found, dtype=pl.Int64)


def once(values: pl.Expr) -> pl.Expr:
    """Return lists with each value once, sorted, so that their sum does not depend on how they came."""
    return different(values).list.sort()


def scaled(values: pl.Expr) -> pl.Expr:
    """Return the same, scaled."""
    return once(values).list.eval(pl.element().cast(pl.Float64) * SCALE)


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
