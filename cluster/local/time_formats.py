"""Instants that files write in a way of their own, such as 01.03.2024 14:30, and formats that read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

_FRACTION = re.compile(r"[.,]%f")
_COMMA_BEFORE_FRACTION = r",(\d{1,9})(\D*)$"
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y")
_TIMES = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M:%S %p", "%I:%M %p")
_KNOWN = (
    *(f"{day} {time}" for day in _DAYS for time in _TIMES), *_DAYS, *(f"%Y-%m-%d {time}" for time in _TIMES[2:]),
    "%Y-%m-%d %H:%M:%S,%f", "%a %b %d %H:%M:%S %Y",
)  # fmt: skip
_DAY_US = 86_400_000_000
_A_DAY = 19_783
"""In days since 1970."""
_LOOKED_AT = 100
"""So many texts show which format they have."""


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """A format of instants.

    Parameters
    ----------
    text
        As for strftime in Python: %d.%m.%Y %H:%M:%S.
    """

    text: str

    @property
    def fault(self) -> str | None:
        """Why it is no format; None if it is one."""
        try:
            moment = pl.Series([_A_DAY * _DAY_US + _DAY_US // 2]).cast(pl.Datetime("us", "UTC"))
            written = moment.dt.strftime(self._of_polars)
            read = self.read(written)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return "it has parts that are unknown or do not fit together"
        return None if read[0] is not None and read[0] // _DAY_US == _A_DAY else "it has no year, month and day"

    @property
    def has_zone(self) -> bool:
        """Whether it has the offset of a zone."""
        return "%z" in self.text

    def read(self, texts: pl.Series) -> pl.Series:
        """Return the instants, those without a zone as if they were in UTC; NULL where a text is not of the format."""
        if self._has_comma:
            texts = texts.str.replace(_COMMA_BEFORE_FRACTION, ".${1}${2}")
        dtype = pl.Datetime("us", "UTC" if self.has_zone else None)
        return texts.str.strptime(dtype, self._of_polars, strict=False).to_physical()

    @property
    def _has_comma(self) -> bool:
        return ",%f" in self.text

    @property
    def _of_polars(self) -> str:
        return _FRACTION.sub("%.f", self.text).replace("%f", "%6f")


def guessed_formats(texts: Iterable[str]) -> list[str]:
    """Return formats that all texts have: two, if day and month may be exchanged; none if no known one fits.

    Parameters
    ----------
    texts
        Some instants as they are written.
    """
    held = pl.Series([each.strip() for each in texts][:_LOOKED_AT], dtype=pl.String)
    if held.is_empty() or held.str.contains(r"^[+-]?\d*[.,]?\d*$").any():
        return []
    found = [each for each in _KNOWN if TimeFormat(each).read(held).null_count() == 0]
    return [each for each in found if each in (found[0], found[0].replace("%m/%d", "%d/%m"))]
