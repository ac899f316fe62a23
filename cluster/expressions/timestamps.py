"""Timestamps: which instants there are, and the calls that compute them. Pure.

An instant is a number of microseconds since 1970 (UTC), of the years 1 to 9999 in the Gregorian calendar extended to
the past (ISO 8601). An interval is a number of microseconds, at most the longest duration. What is beyond is NULL.
"""

from __future__ import annotations

from protocols.wire.streams import FieldType

EARLIEST_US = -62_135_596_800_000_000
"""The first instant of the year 1."""
LATEST_US = 253_402_300_799_999_999
"""The last instant of the year 9999."""
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
LONGEST_INTERVAL_US = 2**60
"""The longest interval either way: the longest duration that can be written."""

TO_TEXT = "TIMESTAMP_TEXT"
"""The call that writes a timestamp as ISO 8601, in UTC, with microseconds."""
INTERVAL_TO_TEXT = "INTERVAL_TEXT"
"""The call that writes an interval as ISO 8601."""
OF_MICROSECONDS = "TIMESTAMP_MICROS"
"""The call that makes a timestamp of an integer; NULL if it is none."""
SHOWN_BY = {FieldType.TIMESTAMP: TO_TEXT, FieldType.INTERVAL: INTERVAL_TO_TEXT}
"""By type: the call that makes a text of a value."""


def interval_iso(interval_us: int) -> str:
    """Return an interval as ISO 8601, in hours, minutes and seconds, as Java and Flink write durations.

    >>> interval_iso(90_000_000), interval_iso(-3_600_000_001), interval_iso(0)
    ('PT1M30S', 'PT-1H-0.000001S', 'PT0S')
    """
    sign, rest = "-" if interval_us < 0 else "", abs(interval_us)
    hours, rest = divmod(rest, HOUR_US)
    minutes, rest = divmod(rest, MINUTE_US)
    seconds, micros = divmod(rest, SECOND_US)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    parts = [f"{sign}{hours}H" if hours else "", f"{sign}{minutes}M" if minutes else ""]
    if rest or not any(parts):
        parts.append(f"{sign if rest else ''}{seconds}{fraction}S")
    return "PT" + "".join(parts)
