"""The functions of numbers: trigonometry, logarithms and distances on the earth; series in, series out.

They are computed by NumPy, in reals; what has no result is NULL (:mod:`cluster.fjord.real_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from cluster.fjord.real_values import Numbers, settled

EARTH_RADIUS_METRES = 6_371_008.8
"""The mean radius of the earth by the International Union of Geodesy and Geophysics."""
MOST_LATITUDE, MOST_LONGITUDE = 90.0, 360.0
"""Degrees, in both directions; what is beyond is no place."""


def truncate(value: pl.Series) -> pl.Series:
    """Return a number without its fraction."""
    return _of_reals(np.trunc)(value) if value.dtype == pl.Float64 else value


def pi() -> pl.Series:
    """Return the real next to pi."""
    return pl.Series([np.pi])


def metres_between(lat1: pl.Series, lon1: pl.Series, lat2: pl.Series, lon2: pl.Series) -> pl.Series:
    """Return the length of the great circle between two places in degrees, on a sphere; NULL for what is no place."""
    return _of_reals(_metres)(lat1, lon1, lat2, lon2)


def _metres(lat1: Numbers, lon1: Numbers, lat2: Numbers, lon2: Numbers) -> Numbers:
    on_earth = (np.abs(lat1) <= MOST_LATITUDE) & (np.abs(lat2) <= MOST_LATITUDE)
    on_earth = on_earth & (np.abs(lon1) <= MOST_LONGITUDE) & (np.abs(lon2) <= MOST_LONGITUDE)
    north, east = np.sin(np.radians(lat2 - lat1) / 2), np.sin(np.radians(lon2 - lon1) / 2)
    haversine = north**2 + np.cos(np.radians(lat1)) * np.cos(np.radians(lat2)) * east**2
    # The arc tangent of two: the arc sine alone would be inexact for places that are opposite to each other.
    angle = 2 * np.arctan2(np.sqrt(haversine), np.sqrt(np.maximum(1 - haversine, 0)))
    return np.where(on_earth, EARTH_RADIUS_METRES * angle, np.nan)


def _of_reals(function: Callable[..., Numbers]) -> Callable[..., pl.Series]:
    """Return a function of arrays as one of series: NULLs are NaN in arrays, and so is what has no result."""

    def found(*values: pl.Series) -> pl.Series:
        with np.errstate(all="ignore"):
            return settled(pl.Series(function(*(value.cast(pl.Float64).to_numpy() for value in values))))

    return found


NUMBER_FUNCTIONS: Mapping[str, Callable[..., pl.Series]] = {
    "SIN": _of_reals(np.sin),
    "COS": _of_reals(np.cos),
    "TAN": _of_reals(np.tan),
    "COT": _of_reals(lambda angle: 1 / np.tan(angle)),
    "SINH": _of_reals(np.sinh),
    "COSH": _of_reals(np.cosh),
    "TANH": _of_reals(np.tanh),
    "ASIN": _of_reals(np.arcsin),
    "ACOS": _of_reals(np.arccos),
    "ATAN": _of_reals(np.arctan),
    "ATAN2": _of_reals(np.arctan2),
    "RADIANS": _of_reals(np.radians),
    "DEGREES": _of_reals(np.degrees),
    "LOG10": _of_reals(np.log10),
    "LOG2": _of_reals(np.log2),
    "TRUNC": truncate,
    "PI": pi,
    "DISTANCE_METRES": metres_between,
}
"""By name."""
