"""The functions of numbers: series in, series out.

What has no result is NULL (:mod:`cluster.scalars.real_values`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from cluster.scalars.operators import aligned
from cluster.scalars.real_values import Numbers, rounded_decimals, settled
from cluster.scalars.scalar_function import Family, Result, ScalarFunction
from protocols.wire.streams import FieldType

MOST_DECIMALS = 300
"""The most that ROUND takes; few reals have more."""
EARTH_RADIUS_METRES = 6_371_008.8
"""The mean radius of the earth by the International Union of Geodesy and Geophysics."""
MOST_LATITUDE, MOST_LONGITUDE = 90.0, 360.0
"""Degrees, in both directions; what is beyond is no place."""


def absolute(value: pl.Series) -> pl.Series:
    """Return a number without its sign."""
    return value if value.dtype == pl.Null else value.abs()


def sign(value: pl.Series) -> pl.Series:
    """Return -1, 0 or 1."""
    return value if value.dtype == pl.Null else value.sign().cast(pl.Int64)


def round_to(decimals: int = 0) -> Callable[[pl.Series], pl.Series]:
    """Return the function that rounds to so many decimals, a half away from zero, by what is written of a real."""
    count = min(decimals, MOST_DECIMALS)

    def rounded(value: pl.Series) -> pl.Series:
        if value.dtype != pl.Float64:
            return value
        if count == 0:
            return settled(value.round(mode="half_away_from_zero"))
        return rounded_decimals(value, count)

    return rounded


def floor(value: pl.Series) -> pl.Series:
    """Return the greatest whole number that is not greater."""
    return value.floor() if value.dtype == pl.Float64 else value


def ceil(value: pl.Series) -> pl.Series:
    """Return the least whole number that is not less."""
    return settled(value.ceil()) if value.dtype == pl.Float64 else value


def square_root(value: pl.Series) -> pl.Series:
    """Return the square root; NULL for a negative number."""
    return settled(value.cast(pl.Float64).sqrt())


def logarithm(value: pl.Series) -> pl.Series:
    """Return the natural logarithm; NULL for a number that is not positive."""
    return settled(value.cast(pl.Float64).log())


def exponential(value: pl.Series) -> pl.Series:
    """Return e to a power."""
    return settled(value.cast(pl.Float64).exp())


def power(base: pl.Series, exponent: pl.Series) -> pl.Series:
    """Return a power, a real; NULL where it does not exist."""
    base, exponent = aligned(base.cast(pl.Float64), exponent.cast(pl.Float64))
    return settled(base.pow(exponent))


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


def _real(name: str, compute: Callable[..., pl.Series], *slots: str, own: bool = False) -> ScalarFunction:
    """Return a function of numbers that gives a real, or NULL where there is none."""
    return ScalarFunction(name, compute, (_NUMBER,), FieldType.REAL, slots or ("this",), own=own, null_if_null=False)


_NUMBER = Family.NUMBER
_TWO = ("this", "expression")
NUMBER_FUNCTIONS: tuple[ScalarFunction, ...] = (
    ScalarFunction("ABS", absolute, (_NUMBER,), Result.FIRST, keeps_unit=True),
    ScalarFunction(
        "ROUND",
        round_to,
        (_NUMBER, Family.INTEGER),
        Result.FIRST,
        ("this", "decimals"),
        1,
        of_constants=True,
        keeps_unit=True,
    ),
    ScalarFunction("FLOOR", floor, (_NUMBER,), Result.FIRST, keeps_unit=True),
    ScalarFunction("CEIL", ceil, (_NUMBER,), Result.FIRST, aliases=("CEILING",), keeps_unit=True),
    ScalarFunction("SIGN", sign, (_NUMBER,), FieldType.INTEGER),
    _real("SQRT", square_root),
    ScalarFunction("POWER", power, (_NUMBER,), FieldType.REAL, _TWO, aliases=("POW",), null_if_null=False),
    _real("LN", logarithm),
    _real("EXP", exponential),
    ScalarFunction("TRUNC", truncate, (_NUMBER,), Result.FIRST, aliases=("TRUNCATE",), keeps_unit=True),
    _real("LOG10", _of_reals(np.log10), own=True),
    _real("LOG2", _of_reals(np.log2), own=True),
    ScalarFunction("PI", pi, (), FieldType.REAL, ()),
    ScalarFunction("SIN", _of_reals(np.sin), (_NUMBER,), FieldType.REAL),
    ScalarFunction("COS", _of_reals(np.cos), (_NUMBER,), FieldType.REAL),
    _real("TAN", _of_reals(np.tan)),
    _real("ASIN", _of_reals(np.arcsin)),
    _real("ACOS", _of_reals(np.arccos)),
    ScalarFunction("ATAN", _of_reals(np.arctan), (_NUMBER,), FieldType.REAL),
    ScalarFunction("ATAN2", _of_reals(np.arctan2), (_NUMBER,), FieldType.REAL, _TWO),
    ScalarFunction("RADIANS", _of_reals(np.radians), (_NUMBER,), FieldType.REAL),
    _real("DEGREES", _of_reals(np.degrees)),
    _real("COT", _of_reals(lambda angle: 1 / np.tan(angle)), own=True),
    _real("SINH", _of_reals(np.sinh)),
    _real("COSH", _of_reals(np.cosh)),
    ScalarFunction("TANH", _of_reals(np.tanh), (_NUMBER,), FieldType.REAL),
    _real("DISTANCE_METRES", metres_between, "lat1", "lon1", "lat2", "lon2", own=True),
)
