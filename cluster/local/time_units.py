"""The unit of instants that are numbers, and files in which it cannot be one: seconds beside microseconds. Pure.

1330560000            as microseconds: 22 minutes past midnight, in 1970
1330560060000000      as microseconds: in March 2012
1330560060000000000   as microseconds: in the year 44133
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from cluster.local.errors import TableFileError

_PARTS = r"^(?<sign>[+-]?)(?<whole>\d+)(?:[.](?<rest>\d+))?$"
NEW_YEAR_1971_US = 31_536_000_000_000
"""Seconds and milliseconds that are taken for microseconds are earlier, until the year 2969."""
NEW_YEAR_2262_US = 9_214_646_400_000_000
"""Nanoseconds that are taken for microseconds are later, from April 1970 on."""
_ADVICE = "--time-unit s (ms, us or ns) says what numbers are"


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


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why numbers may be no microseconds: as such they lie where hardly any stamp does.

    Parameters
    ----------
    where
        Where they lie, in words.
    others
        Where others lie, in words.
    since_us
        The first instant that is not in doubt, or from which on all are.
    is_early
        Whether instants before that are in doubt.
    """

    where: str
    others: str
    since_us: int
    is_early: bool

    def concerns(self, stamps: pl.Series) -> pl.Series:
        """Return which stamps are in doubt."""
        return stamps < self.since_us if self.is_early else stamps >= self.since_us

    def concerns_all(self, first_us: int, last_us: int) -> bool:
        """Return whether all stamps between these are in doubt."""
        return 0 <= first_us <= last_us < self.since_us if self.is_early else first_us >= self.since_us

    def mixed(self, shown: str, few: str, *, in_other_files: bool = False) -> TableFileError:
        """Return the error of numbers in doubt beside stamps that are not.

        Parameters
        ----------
        shown
            The file as messages name it.
        few
            The places of such numbers.
        in_other_files
            Whether the other stamps are in other files of the stream.
        """
        beside = f", and other files have {self.others} ones" if in_other_files else f" beside {self.others} ones"
        return TableFileError(
            f"{shown} has stamps {self.where}{beside}: {few}; whole numbers are microseconds since 1970",
            hint=f"{_ADVICE}; where there are several units, make them one",
        )


EARLY = Doubt("before 1971", "later", NEW_YEAR_1971_US, is_early=True)
FAR = Doubt("after 2261", "earlier", NEW_YEAR_2262_US, is_early=False)


def doubts(first_us: int, last_us: int) -> list[Doubt]:
    """Return why some of the stamps that lie between these may be numbers of another unit than others."""
    return [each for each in (EARLY, FAR) if first_us < each.since_us <= last_us]


def warning_of_all(shown: str, column: str, first_us: int, last_us: int) -> str | None:
    """Return the warning of a file whose numbers may all be of another unit, or no instants; None if there is none."""
    if EARLY.concerns_all(first_us, last_us):
        lie, units = "in 1970", "s (or ms, us, ns)"
    elif FAR.concerns_all(first_us, last_us):
        lie, units = "after 2261", "ns (or s, ms, us)"
    else:
        return None
    return (
        f"{shown} begins and ends {lie}: whole numbers are microseconds since 1970, unless --time-unit {units} says "
        f"what they are, or --time-column names another column than {column!r}"
    )
