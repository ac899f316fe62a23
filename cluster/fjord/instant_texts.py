"""Instants as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cluster.fjord.batch import NEVER

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_text(instant_us: int) -> str | None:
    """Return an instant in ISO 8601 with microseconds and ``Z``; None for one that never comes.

    Examples
    --------
    >>> instant_text(1_330_560_000_000_000)
    '2012-03-01T00:00:00.000000Z'
    """
    if instant_us >= NEVER:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        return f"{instant_us}us"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
