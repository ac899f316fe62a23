"""Functions of timestamps and intervals (:mod:`cluster.expressions.timestamps`): series in, series out."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from cluster.expressions import timestamps
from cluster.expressions.timestamps import EARLIEST_US, LATEST_US, LONGEST_INTERVAL_US, interval_iso

_ISO = "%Y-%m-%dT%H:%M:%S%.6fZ"


def whole(value: pl.Series) -> pl.Series:
    """Return integers; NULL has no type of its own."""
    return value.cast(pl.Int64)


def bounded(value: pl.Series, low: int, high: int) -> pl.Series:
    """Return integers, NULL where they are not between two others."""
    value = whole(value)
    least, most = value.min(), value.max()
    if least is None or (low <= least and most <= high):  # type: ignore[operator]
        return value
    return value.zip_with(value.is_between(low, high), pl.Series([None], dtype=pl.Int64))


def timestamp_of(value: pl.Series) -> pl.Series:
    """Return the instants of microseconds since 1970; NULL beyond the years 1 to 9999."""
    return bounded(value, EARLIEST_US, LATEST_US)


def interval_of(value: pl.Series) -> pl.Series:
    """Return intervals; NULL beyond the longest."""
    return bounded(value, -LONGEST_INTERVAL_US, LONGEST_INTERVAL_US)


def as_datetime(value: pl.Series) -> pl.Series:
    """Return timestamps as Polars' own, in UTC and without a zone."""
    return whole(value).cast(pl.Datetime("us"))


def timestamp_text(value: pl.Series) -> pl.Series:
    """Return timestamps as ISO 8601, in UTC, with microseconds.

    >>> timestamp_text(pl.Series([0])).to_list()
    ['1970-01-01T00:00:00.000000Z']
    """
    return as_datetime(value).dt.to_string(_ISO)


def interval_text(value: pl.Series) -> pl.Series:
    """Return intervals as ISO 8601."""
    texts = [None if each is None else interval_iso(each) for each in whole(value).to_list()]
    return pl.Series(texts, dtype=pl.String)


TIMESTAMP_FUNCTIONS: dict[str, Callable[..., pl.Series]] = {
    timestamps.OF_MICROSECONDS: timestamp_of,
    timestamps.TO_TEXT: timestamp_text,
    timestamps.INTERVAL_TO_TEXT: interval_text,
}
"""By the name of the call: what computes it."""
