"""Functions that choose among their arguments: series in, series out."""

from __future__ import annotations

from functools import reduce

import polars as pl

from cluster.scalars.operators import COMPARED, choice
from cluster.scalars.scalar_function import Family, Result, ScalarFunction


def coalesce(*values: pl.Series) -> pl.Series:
    """Return the first value that is not NULL."""
    return reduce(lambda other, value: choice(value.is_not_null(), value, other), reversed(values))


def least(*values: pl.Series) -> pl.Series:
    """Return the least value; NULLs do not count."""
    return reduce(lambda one, other: choice(COMPARED["<="](one, other) | other.is_null(), one, other), values)


def greatest(*values: pl.Series) -> pl.Series:
    """Return the greatest value; NULLs do not count."""
    return reduce(lambda one, other: choice(COMPARED[">="](one, other) | other.is_null(), one, other), values)


def null_if(value: pl.Series, other: pl.Series) -> pl.Series:
    """Return a value, or NULL where it equals another."""
    return choice(COMPARED["="](value, other), pl.Series([None], dtype=value.dtype), value)


_SEVERAL = ("this", "expressions")
CHOICES: tuple[ScalarFunction, ...] = (
    ScalarFunction("LEAST", least, (Family.ANY,), Result.COMMON, _SEVERAL, 1, keeps_unit=True),
    ScalarFunction("GREATEST", greatest, (Family.ANY,), Result.COMMON, _SEVERAL, 1, keeps_unit=True),
    ScalarFunction(
        "COALESCE", coalesce, (Family.ANY,), Result.COMMON, _SEVERAL, 1, aliases=("IFNULL", "NVL"), keeps_unit=True
    ),
    ScalarFunction(
        "NULLIF", null_if, (Family.ANY,), Result.FIRST, ("this", "expression"), keeps_unit=True, null_if_null=False
    ),
)
