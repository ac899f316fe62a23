"""The instants in a column of a file, as microseconds since 1970. Stamps without a zone are UTC."""

from __future__ import annotations

import polars as pl

MOST_US = 2**61
"""Instants are less far from 1970: far enough, and what a window adds to them fits as well."""

_ZONE = r"[zZ]$|[+-]\d\d:?\d\d$"
_WITH_ZONE = ("%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%dT%H:%M%z")
_WITHOUT_ZONE = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M")


def instants(column: str, dtype: pl.DataType) -> pl.Expr | None:
    """Return the instants of a column, NULL where there is none; None if a column of its type holds none.

    Integers are microseconds since 1970, texts are written as in ISO 8601, with a space or a ``T``.
    """
    found = pl.col(column)
    if isinstance(dtype, pl.Datetime):
        read = found.cast(pl.Datetime("us", dtype.time_zone)).to_physical()
    elif dtype == pl.Date:
        read = found.cast(pl.Datetime("us")).to_physical()
    elif dtype.is_integer() or dtype == pl.Null:
        read = found.cast(pl.Int64, strict=False)
    elif isinstance(dtype, pl.String):
        read = _written(found)
    else:
        return None
    return pl.when(read.is_between(-MOST_US, MOST_US)).then(read)


def _written(found: pl.Expr) -> pl.Expr:
    text = found.str.strip_chars().str.replace(" ", "T", literal=True)
    moment = pl.Datetime("us")
    with_zone = text.str.replace("[zZ]$", "+00:00")
    dated = text.str.contains("T")
    zoned = dated & text.str.contains(_ZONE)
    return pl.coalesce(
        *(
            pl.when(zoned).then(with_zone.str.strptime(pl.Datetime("us", "UTC"), each, strict=False).to_physical())
            for each in _WITH_ZONE
        ),
        *(
            pl.when(dated & ~zoned).then(text.str.strptime(moment, each, strict=False).to_physical())
            for each in _WITHOUT_ZONE
        ),
        text.str.strptime(pl.Date, "%Y-%m-%d", strict=False, exact=True).cast(moment).to_physical(),
        pl.when(text.str.contains(r"^[+-]?\d+$")).then(text.cast(pl.Int64, strict=False)),
    )
