"""The operators of expressions: series in, series out.

An operand is as long as the others, or a constant of one value. Reals are finite and not minus zero, in operands and in
results (:mod:`cluster.scalars.real_values`). Compared with a real, an integer counts as the nearest real; integers have
64 bits and wrap around.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

import numpy as np
import polars as pl

from cluster.scalars.real_values import finite, integers_of_texts, settled
from protocols.wire.streams import FieldType

LARGEST_WITH_EXPONENT = 1e-4
"""A real that is smaller, and not zero, has an exponent as text."""
POLARS_TYPES: dict[FieldType, type[pl.DataType]] = {
    FieldType.BOOLEAN: pl.Boolean,
    FieldType.INTEGER: pl.Int64,
    FieldType.REAL: pl.Float64,
    FieldType.TEXT: pl.String,
    FieldType.TIMESTAMP: pl.Int64,
    FieldType.LOCAL_TIMESTAMP: pl.Int64,
    FieldType.INTERVAL: pl.Int64,
}

Written = tuple[FieldType | None, bool | int | float | str | None]
"""A constant: its type, None for NULL, and its value."""


def add(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return the sum."""
    return finite(left + right)


def subtract(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return the difference. Polars turns zero minus a column into the negated column, also for zeros."""
    return settled(left - right)


def multiply(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return the product."""
    return settled(left * right)


def divide(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return the quotient, a real; NULL for a divisor of zero."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        # Polars replaces division by a constant with multiplication by its inverse, which need not be a real.
        return settled(pl.Series(left.cast(pl.Float64).to_numpy() / right.cast(pl.Float64).to_numpy()))


def remainder(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return the exact remainder of a division that rounds towards zero: it has the sign of the dividend."""
    left, right = aligned(*typed(left, right, otherwise=pl.Int64()))
    if pl.Float64 in (left.dtype, right.dtype):
        with np.errstate(invalid="ignore"):
            numbers = np.fmod(left.cast(pl.Float64).to_numpy(), right.cast(pl.Float64).to_numpy())
        return settled(pl.Series(numbers))
    found = left % right  # in Polars it has the sign of the divisor
    return (found - right).zip_with((found != 0) & ((left < 0) != (right < 0)), found)


def negate(value: pl.Series) -> pl.Series:
    """Return a number with its sign changed."""
    return settled(pl.Series([0]) - value)


def _comparing(compare: Callable[[pl.Series, pl.Series], pl.Series]) -> Callable[[pl.Series, pl.Series], pl.Series]:
    return lambda left, right: compare(*typed(left, right))


COMPARED: dict[str, Callable[[pl.Series, pl.Series], pl.Series]] = {
    "=": _comparing(operator.eq),
    "<>": _comparing(operator.ne),
    "<": _comparing(operator.lt),
    "<=": _comparing(operator.le),
    ">": _comparing(operator.gt),
    ">=": _comparing(operator.ge),
}
"""Comparisons by their operator; NULL if an operand is NULL."""


def both(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return AND in three-valued logic."""
    return left.cast(pl.Boolean) & right.cast(pl.Boolean)


def either(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return OR in three-valued logic."""
    return left.cast(pl.Boolean) | right.cast(pl.Boolean)


def negation(value: pl.Series) -> pl.Series:
    """Return NOT in three-valued logic."""
    return ~value.cast(pl.Boolean)


def is_null(value: pl.Series) -> pl.Series:
    """Return whether a value is NULL."""
    return value.is_null()


def is_the_same(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return whether two values are equal, or both NULL."""
    left, right = aligned(*typed(*_alike(left, right)))
    return left.eq_missing(right)


def is_another(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return whether two values differ, NULL being a value like others."""
    return ~is_the_same(left, right)


def within(value: pl.Series, low: pl.Series, high: pl.Series) -> pl.Series:
    """Return whether a value is neither below nor above two others."""
    return COMPARED[">="](value, low) & COMPARED["<="](value, high)


class Membership:
    """Tests whether a value is among constants: true, false, or NULL if one of them is NULL and none is equal.

    Parameters
    ----------
    constants
        They may be of different types, numbers with numbers.
    """

    def __init__(self, constants: Iterable[Written]) -> None:
        by_type: dict[FieldType, list[object]] = {}
        self._holds_null = False
        for kind, value in constants:
            if kind is None or value is None:
                self._holds_null = True
            else:
                by_type.setdefault(kind, []).append(value)
        self._known = {POLARS_TYPES[kind]: pl.Series(each, dtype=POLARS_TYPES[kind]) for kind, each in by_type.items()}
        numbers = [self._known[kind].cast(pl.Float64) for kind in (pl.Int64, pl.Float64) if kind in self._known]
        self._reals = pl.concat(numbers) if numbers else None

    def __call__(self, value: pl.Series) -> pl.Series:
        """Return the result for each value."""
        (value,) = typed(value)
        found = value != value  # noqa: PLR0124 - false, and NULL for NULL
        if value.dtype == pl.Int64:
            for kind, known in self._known.items():
                found |= value.cast(kind).is_in(known.implode())
        elif value.dtype == pl.Float64 and self._reals is not None:
            found |= value.is_in(self._reals.implode())
        elif value.dtype.base_type() in self._known:
            found |= value.is_in(self._known[value.dtype.base_type()].implode())
        return found | pl.Series([None], dtype=pl.Boolean) if self._holds_null else found


def choice(condition: pl.Series, chosen: pl.Series, other: pl.Series) -> pl.Series:
    """Return one value where a condition is true, and the other where it is false or NULL."""
    chosen, other = _alike(chosen, other)
    return chosen.zip_with(condition.cast(pl.Boolean), other)


def cast_to(kind: FieldType) -> Callable[[pl.Series], pl.Series]:
    """Return the function that converts to a type; values that cannot be converted are NULL."""
    return _CASTS[kind]


def _to_text(value: pl.Series) -> pl.Series:
    text = value.cast(pl.String)
    if value.dtype != pl.Float64:
        return text
    small = value.is_between(-LARGEST_WITH_EXPONENT, LARGEST_WITH_EXPONENT, closed="none") & (value != 0)
    # Polars writes 0.000015 and 1.5e-7, where Python, DuckDB and PostgreSQL write 1.5e-05 and 1.5e-07.
    return text.scatter(small.arg_true(), [repr(each) for each in value.filter(small)]) if small.any() else text


def _to_real(value: pl.Series) -> pl.Series:
    if value.dtype == pl.String:
        value = value.str.strip_chars()
    return settled(value.cast(pl.Float64, strict=False))


def _to_integer(value: pl.Series) -> pl.Series:
    if value.dtype == pl.String:
        text = value.str.strip_chars()
        whole = text.cast(pl.Int64, strict=False)
        if whole.null_count() == value.null_count():
            return whole
        return choice(whole.is_not_null(), whole, integers_of_texts(text, _to_real(text)))
    if value.dtype == pl.Float64:
        value = value.round(mode="half_to_even")
    return value.cast(pl.Int64, strict=False)


_TRUE, _FALSE = ("true", "t", "yes", "y"), ("false", "f", "no", "n")


def _to_boolean(value: pl.Series) -> pl.Series:
    if value.dtype in (pl.Boolean, pl.Null):
        return value.cast(pl.Boolean)
    if value.dtype != pl.String:
        return value != 0
    word = value.str.strip_chars().str.to_lowercase()
    true, false = word.is_in(_TRUE), word.is_in(_FALSE)
    return choice(true | false, true, _to_real(value) != 0)


def _untouched(value: pl.Series) -> pl.Series:
    return value.cast(pl.Int64)


_CASTS: dict[FieldType, Callable[[pl.Series], pl.Series]] = {
    FieldType.TEXT: _to_text,
    FieldType.REAL: _to_real,
    FieldType.INTEGER: _to_integer,
    FieldType.BOOLEAN: _to_boolean,
    # Only of NULL: of all else, calls make timestamps and intervals.
    FieldType.TIMESTAMP: _untouched,
    FieldType.LOCAL_TIMESTAMP: _untouched,
    FieldType.INTERVAL: _untouched,
}


def _alike(one: pl.Series, other: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return two series converted to a type with the values of both."""
    if one.dtype == other.dtype:
        return one, other
    known = [each.dtype for each in (one, other) if each.dtype != pl.Null]
    kind = known[0] if len(known) == 1 else pl.Float64()
    return one.cast(kind), other.cast(kind)


def typed(*values: pl.Series, otherwise: pl.DataType | None = None) -> tuple[pl.Series, ...]:
    """Return series that all have a type: NULL gets the type of the first that has one, else the other type."""
    known = next((value.dtype for value in values if value.dtype != pl.Null), otherwise or pl.Boolean())
    return tuple(value.cast(known) if value.dtype == pl.Null else value for value in values)


def aligned(*values: pl.Series) -> tuple[pl.Series, ...]:
    """Return series of one length, with constants repeated."""
    lengths = {value.len() for value in values}
    if len(lengths) == 1:
        return values
    (rows,) = lengths - {1}
    return tuple(value if value.len() == rows else value.new_from_index(0, rows) for value in values)
