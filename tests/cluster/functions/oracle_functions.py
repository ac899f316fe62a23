"""Functions that tests of answers call; tests/cluster/functions/declared.py has their meaning in SQL."""

from __future__ import annotations

from typing import Any

import polars as pl


def halved(x: pl.Series) -> pl.Series:
    """Return half of a number."""
    return x / 2


def letters(text: pl.Series, more: pl.Series) -> pl.Series:
    """Return how many code points a text has, and up to three more."""
    return text.str.len_chars().cast(pl.Int64) + (more & 3)


def known(text: pl.Series) -> pl.Series:
    """Return whether a value is known; strictly, no other is asked about."""
    return text.is_not_null()


def label(ok: pl.Series, text: pl.Series) -> pl.Series:
    """Return a text, in brackets where a condition is not false, and something where there is none."""
    found = text.fill_null("none")
    return pl.select(pl.when(ok.fill_null(value=True)).then("<" + found + ">").otherwise(found)).to_series()


def low(x: Any) -> Any:
    """Return whether a number is less than one: of Arrow's arrays."""
    import pyarrow.compute as pc

    return pc.less(x, 1.0)
