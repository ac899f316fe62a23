"""The unit of instants that are numbers, and files in which it cannot be one: seconds beside microseconds. Pure.

1330560000            as microseconds: 22 minutes past midnight, in 1970
1330560060000000      as microseconds: in March 2012
"""

from __future__ import annotations

from enum import StrEnum

import polars as pl

from cluster.local.errors import TableFileError

_PARTS = r"^(?<sign>[+-]?)(?<whole>\d+)(?:[.](?<rest>\d+))?$"
NEW_YEAR_1971_US = 31_536_000_000_000
"""Seconds and milliseconds that are taken for microseconds are earlier, until the year 2969."""


class TimeUnit(StrEnum):
    """A unit of time since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    @property
    def decimals(self) -> int:
        """How many decimals of a number of this unit are whole microseconds; negative if microseconds are longer."""
        return {"s": 6, "ms": 3, "us": 0, "ns": -3}[self.value]

    def of_whole(self, numbers: pl.Expr) -> pl.Expr:
        """Return whole numbers of this unit as microseconds; NULL where there would be too many."""
        if self.decimals < 0:
            return numbers.floordiv(10**-self.decimals)
        factor = 10**self.decimals
        return pl.when(numbers.is_between(-(2**62) // factor, 2**62 // factor)).then(numbers * factor)

    def of_reals(self, numbers: pl.Expr) -> pl.Expr:
        """Return numbers of this unit as microseconds, to the nearest one; NULL where there would be too many."""
        found = (numbers * 10.0**self.decimals).round()
        return pl.when(found.is_between(-(2.0**62), 2.0**62)).then(found).cast(pl.Int64)

    def of_texts(self, texts: pl.Series, decimal: str = ".") -> pl.Series:
        """Return the microseconds that texts give as numbers of this unit, to the last digit; NULL for no number."""
        if decimal != ".":
            texts = texts.set(texts.str.contains(".", literal=True).fill_null(value=False), None)
            texts = texts.str.replace(decimal, ".", literal=True)
        parts = texts.str.extract_groups(_PARTS).struct.unnest()
        sign = pl.when(pl.col("sign") == "-").then(-1).otherwise(1)
        found = self.of_whole(pl.col("whole").cast(pl.Int64, strict=False) * sign)
        if self.decimals > 0:
            digits = pl.col("rest").fill_null("").str.pad_end(self.decimals, "0").str.slice(0, self.decimals)
            found += digits.cast(pl.Int64, strict=False) * sign
        return parts.select(found).to_series()


def are_mixed(first_us: int, last_us: int) -> bool:
    """Return whether stamps that lie between these may be numbers of several units."""
    return first_us < NEW_YEAR_1971_US <= last_us


def mixed_units(shown: str, few: str, beside: str = " beside later ones") -> TableFileError:
    """Return the error of numbers that are before 1971 as microseconds, beside later stamps.

    Parameters
    ----------
    shown
        The file as messages name it.
    few
        The places of such numbers.
    beside
        Where later stamps are.
    """
    return TableFileError(
        f"{shown} has stamps before 1971{beside}: {few}; whole numbers are microseconds since 1970",
        hint="--time-unit s (ms, us or ns) says what numbers are; where there are several units, make them one",
    )
