"""The values of REAL: the finite numbers of 64 bits, with one zero.

Infinities and NaN become NULL, and minus zero becomes zero, wherever they enter or arise: in a scan of a stream's table
or of a relation, in an operation of an expression, in the final value of an aggregate. So no tuple ever holds them, and
keys, joins, DISTINCT, conditions and aggregates need no check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


MINUS_ZERO = np.iinfo(np.int64).min
"""The bits of minus zero, as an integer: the least one."""


def finite(values: pl.Series) -> pl.Series:
    """Return values with NULL for every real that is infinite or NaN.

    >>> finite(pl.Series([1.5, float("inf"), None])).to_list()
    [1.5, None, None]
    """
    if values.dtype != pl.Float64 or _all_finite(values, numbers := values.to_numpy()):
        return values
    return _known(values.name, numbers)


def all_finite(values: pl.Series) -> bool:
    """Return whether all values of a column of reals are finite; NULLs are.

    >>> all_finite(pl.Series([1.5, None])), all_finite(pl.Series([float("nan")]))
    (True, False)
    """
    return _all_finite(values, values.to_numpy())


def settled(values: pl.Series) -> pl.Series:
    """Return values with NULL for every real that is infinite or NaN, and zero for minus zero.

    >>> settled(pl.Series([-0.0, float("nan"), 2.0])).to_list()
    [0.0, None, 2.0]
    """
    if values.dtype != pl.Float64 or not values.len():
        return values
    numbers = values.to_numpy()  # NULLs are NaN here
    if numbers.view(np.int64).min() > MINUS_ZERO and _all_finite(values, numbers):
        return values
    # Polars optimises an addition of zero away; NumPy adds.
    return _known(values.name, numbers + 0.0)


def settled_rows(rows: pl.DataFrame, *, but: Collection[str] = ()) -> pl.DataFrame:
    """Return rows whose reals are finite or NULL, without minus zero, except in some columns, which stay."""
    return rows.with_columns(
        settled(column) for column in rows if column.dtype == pl.Float64 and column.name not in but
    )


def settled_scan(rows: pl.LazyFrame, reals: Iterable[str]) -> pl.LazyFrame:
    """Return a lazy scan in which these columns, of reals, are normalised."""
    return rows.with_columns(
        pl.col(name).map_batches(settled, return_dtype=pl.Float64, is_elementwise=True) for name in reals
    )


def _all_finite(values: pl.Series, numbers: Numbers) -> bool:
    return int(np.count_nonzero(np.isfinite(numbers))) == values.len() - values.null_count()


def _known(name: str, numbers: Numbers) -> pl.Series:
    return pl.Series(name, np.where(np.isfinite(numbers), numbers, np.nan), pl.Float64, nan_to_null=True)
