"""The values of REAL, and numbers that are rounded once, though 64 bits do not hold the true one.

**The values of REAL: the finite numbers of 64 bits, with one zero.**

Infinities and NaN become NULL, and minus zero becomes zero, wherever they enter or arise: in a scan of a stream's table
or of a relation, in an operation of an expression, in the final value of an aggregate. So no tuple ever holds them, and
keys, joins, DISTINCT, conditions and aggregates need no check.

**Numbers that are rounded once: quotients, products and what texts say, though 64 bits do not hold the true ones.**

Reals of 64 bits are enough wherever the result is far from the middle between two candidates; of the others, which are
few, the true result is computed as a fraction. A real counts as the number that its bits are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

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


Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

EXACT_INTEGERS = 2**53
"""Every integer that is smaller is a real."""
ERROR = 2.0**-51
"""More than the relative error of a product or quotient of an integer and a real that was rounded twice."""
INTEGERS = 2.0**63
"""Reals from this size on are no integers of 64 bits."""


def quotients(values: pl.Series, divisor: int) -> pl.Series:
    """Return the reals next to integers divided by a positive one.

    >>> quotients(pl.Series([1_100_000, 253_402_300_799_999_999]), 1_000_000).to_list()
    [1.1, 253402300800.0]
    """
    numbers = values.fill_null(0).to_numpy()
    # Polars would multiply by the inverse of the divisor, which need not be a real; NumPy divides.
    found = numbers.astype(np.float64) / divisor
    for place in np.flatnonzero(np.abs(numbers.astype(np.float64)) >= EXACT_INTEGERS):
        found[place] = int(numbers[place]) / divisor
    return settled(_where_known(pl.Series(found), values))


def rounded_products(values: pl.Series, factors: pl.Series) -> pl.Series:
    """Return the integers next to integers times reals, of two the even one; NULL beyond 64 bits.

    >>> rounded_products(pl.Series([2**60 - 1, 5]), pl.Series([1.0, 0.5])).to_list()
    [1152921504606846975, 2]
    """
    return _rounded(values, factors, np.multiply, lambda value, factor: value * factor)


def rounded_parts(values: pl.Series, divisors: pl.Series) -> pl.Series:
    """Return the integers next to integers divided by numbers, of two the even one; NULL beyond 64 bits, and of zero.

    >>> rounded_parts(pl.Series([2**60 - 1, 5]), pl.Series([1, 2])).to_list()
    [1152921504606846975, 2]
    """
    divisors = divisors.set(divisors == 0, None)
    if divisors.dtype == pl.Float64:
        return _rounded(values, divisors, np.divide, lambda value, divisor: value / divisor)
    # The least integer has a size, too, without a sign.
    sizes, parts = (each.fill_null(1).to_numpy().view(np.uint64) for each in (values.abs(), divisors.abs()))
    whole = sizes // parts
    rest = sizes - whole * parts
    up = (rest > parts - rest) | ((rest == parts - rest) & (whole % 2 == 1))
    found = pl.Series((whole + up).view(np.int64))
    return _where_known(-found, values, divisors).zip_with(
        (values < 0) != (divisors < 0), _where_known(found, values, divisors)
    )


def integers_of_texts(texts: pl.Series, reals: pl.Series) -> pl.Series:
    """Return the integers next to the numbers that texts are, of two the even one; NULL beyond 64 bits.

    Parameters
    ----------
    texts
        The texts, without spaces around them.
    reals
        The reals next to the numbers; NULL where a text is no number, or one beyond the reals.

    >>> integers_of_texts(pl.Series(["9007199254740993.2", "2.5"]), pl.Series([9007199254740994.0, 2.5])).to_list()
    [9007199254740993, 2]
    """
    near = reals.fill_null(0.0).to_numpy()
    whole = np.rint(near)
    unsure = _unsure(near, whole)
    fits = np.abs(near) < INTEGERS
    found = pl.Series(np.where(fits, whole, 0.0).astype(np.int64)).set(pl.Series(~fits), None)
    places = np.flatnonzero(unsure & reals.is_not_null().to_numpy())
    if len(places):
        found = found.scatter(places, [nearest_integer(text) for text in texts.gather(places)])
    return _where_known(found, reals)


def rounded_decimals(values: pl.Series, decimals: int) -> pl.Series:
    """Return reals rounded to so many decimals, a half away from zero, by the digits with which they are written.

    These are the fewest that read as the real again: 2.675 is in the middle of two hundredths, though the real is not.

    >>> rounded_decimals(pl.Series([2.675, 1.005, -0.05, 2.6749999999999994]), 2).to_list()
    [2.68, 1.01, -0.05, 2.67]
    """
    numbers = values.fill_null(0.0).to_numpy()
    sizes, unit = np.abs(numbers), 10.0**decimals
    with np.errstate(over="ignore"):
        scaled = sizes * unit
        below = np.floor(scaled)
        # Both powers are reals, so that this is the real next to the middle. Decimals of 15 digits differ as reals, and
        # in the same order: a real is written as the middle, or above it, if it is not below the middle's real.
        units = below + (sizes >= (2 * below + 1) / (2 * unit))
        found = np.copysign(units / unit, numbers)
    found = np.where(scaled < _MANY_UNITS, found, numbers)
    short = decimals <= _MOST_EXACT_POWER
    for place in np.flatnonzero((scaled < _ALL_DIGITS) & ((scaled >= _MANY_UNITS) | (not short))):
        found[place] = _rounded_digits(float(numbers[place]), decimals)
    return settled(_where_known(pl.Series(found), values))


_MOST_EXACT_POWER = 22
"""No greater power of ten is a real."""
_MANY_UNITS, _ALL_DIGITS = 1e14, 1e17
"""Numbers of decimal units: so many may have a middle of more than 15 digits, and reals of so many no more decimals."""
_DIGITS = Context(prec=400, rounding=ROUND_HALF_UP)


def _rounded_digits(number: float, decimals: int) -> float:
    return float(Decimal(repr(number)).quantize(Decimal(1).scaleb(-decimals, _DIGITS), context=_DIGITS))


_NUMBER = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?)0*([0-9]*))?")
_MOST_DIGITS = 19
"""An integer of 64 bits has no more."""
_LONGEST_EXPONENT = 12
"""No text has as many digits as an exponent that is longer says."""


def nearest_integer(text: str) -> int | None:
    """Return the integer next to the number that a text is, of two the even one; None beyond 64 bits.

    It takes time proportional to the text, whatever its exponent.

    >>> [nearest_integer(each) for each in ("2.5", "-3.50", "1e-99999999999999999999", "92.e18", "922e16")]
    [2, -4, 0, None, 9220000000000000000]
    """
    parts = _NUMBER.fullmatch(text)
    if parts is None:
        return None
    sign, before, behind, direction, power = (each or "" for each in parts.groups())
    digits = (before + behind).lstrip("0")
    if not digits:
        return 0
    exponent = int(power[:_LONGEST_EXPONENT] or 0) * (-1 if direction == "-" else 1)
    point = len(digits) - len(behind) + exponent
    if point > _MOST_DIGITS:
        return None
    whole = int(digits[:point].ljust(point, "0")) if point > 0 else 0
    rest = digits[point:].rstrip("0") if point >= 0 else ""
    whole += rest > "5" or (rest == "5" and whole % 2 == 1)
    found = -whole if sign == "-" else whole
    return found if -(2**63) <= found < 2**63 else None


def _unsure(near: Reals, whole: Reals) -> NDArray[np.bool_]:
    """Return where a number next to a real may be next to another integer than the real is."""
    unsure: NDArray[np.bool_] = 0.5 - np.abs(near - whole) <= np.abs(near) * ERROR
    return unsure


def _rounded(
    values: pl.Series,
    others: pl.Series,
    near: Callable[[Reals, Reals], Reals],
    exact: Callable[[Fraction, Fraction], Fraction],
) -> pl.Series:
    numbers, reals = values.fill_null(0).to_numpy(), others.fill_null(1.0).to_numpy()
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = near(numbers.astype(np.float64), reals)
        whole = np.rint(found)
        unsure = _unsure(found, whole)
    fits = np.abs(found) < INTEGERS
    known = np.where(fits, whole, 0.0).astype(np.int64)
    for place in np.flatnonzero(unsure & fits):
        true = round(exact(Fraction(int(numbers[place])), Fraction(float(reals[place]))))
        fits[place] = -(2**63) <= true < 2**63
        known[place] = true if fits[place] else 0
    return _where_known(pl.Series(known).set(pl.Series(~fits), None), values, others)


def _where_known(found: pl.Series, *operands: pl.Series) -> pl.Series:
    """Return results, NULL where one of the operands is."""
    for each in operands:
        found = found.set(each.is_null(), None) if each.null_count() else found
    return found
