"""Timestamps: which there are, how they are written, and the calls of plans that compute them. Pure.

An instant is a number of microseconds since 1970 (UTC), of the years 1 to 9999 in the Gregorian calendar extended to
the past (ISO 8601). A local timestamp is what a clock somewhere shows at an instant: the number that would be the
instant if the clock were one of UTC. An interval is a number of microseconds, at most the longest duration. What is
beyond is NULL.

Calls take what a plan has of columns first, and constants (units, zones, patterns) behind it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from protocols.wire.streams import FieldType

EARLIEST_US = -62_135_596_800_000_000
"""The first instant of the year 1."""
LATEST_US = 253_402_300_799_999_999
"""The last instant of the year 9999."""
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
LONGEST_INTERVAL_US = 2**60
"""The longest interval either way: the longest duration that can be written."""

OF_MICROSECONDS = "TIMESTAMP_MICROS"
"""A timestamp of microseconds since 1970, NULL if it is none; those of other units count in these."""
OF_MILLISECONDS = "TIMESTAMP_MILLIS"
OF_SECONDS = "TIMESTAMP_SECONDS"
OF_TEXT = "TIMESTAMP_OF_TEXT"
"""A timestamp of a text in ISO 8601."""
TO_TEXT = "TIMESTAMP_TEXT"
"""A timestamp as ISO 8601, in UTC, with microseconds; likewise a local timestamp, and an interval."""
LOCAL_TO_TEXT = "LOCAL_TEXT"
INTERVAL_TO_TEXT = "INTERVAL_TEXT"
PLUS = "TIMESTAMP_PLUS"
"""A timestamp, local or not, plus an interval."""
MINUS = "TIMESTAMP_MINUS"
"""The interval from the second timestamp to the first."""
INTERVAL_PLUS = "INTERVAL_PLUS"
INTERVAL_TIMES = "INTERVAL_TIMES"
"""An interval times a number."""
INTERVAL_PARTS = "INTERVAL_PARTS"
"""An interval divided by a number."""
EPOCH = "EPOCH_SECONDS"
"""Seconds since 1970, or of an interval, as a real."""
PART = "TIMESTAMP_PART"
"""A part of a timestamp that a constant names: its hour, its month."""
FLOOR = "TIMESTAMP_FLOOR"
"""The beginning of a unit that a constant names: of the hour, of the month."""
NUMBER = "TIMESTAMP_NUMBER"
"""The number of the unit in which a timestamp lies, that of 1970 being 0."""
COUNT = "INTERVAL_COUNT"
"""How many whole units an interval has, rounded towards zero."""
FORMAT = "TIMESTAMP_FORMAT"
"""A timestamp as a text, by a constant pattern."""
TO_LOCAL = "ZONE_LOCAL"
"""What clocks of a constant zone show at an instant."""
OF_LOCAL = "ZONE_INSTANT"
"""The instant at which clocks of a constant zone show a local timestamp."""

SHOWN_BY = {
    FieldType.TIMESTAMP: TO_TEXT,
    FieldType.LOCAL_TIMESTAMP: LOCAL_TO_TEXT,
    FieldType.INTERVAL: INTERVAL_TO_TEXT,
}
"""By type: the call that makes a text of a value."""

LENGTHS_US = {
    "MILLISECOND": 1_000,
    "SECOND": SECOND_US,
    "MINUTE": MINUTE_US,
    "HOUR": HOUR_US,
    "DAY": DAY_US,
    "WEEK": 7 * DAY_US,
}
"""Units that are always as long; a week begins on Monday."""
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
"""Units of the calendar, in months."""
UNITS = (*LENGTHS_US, *MONTHS)

_ISO = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})([T ](?P<time>[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?))?"
    r" ?(?P<zone>Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
_PIECES = re.compile(r"PT(?P<hours>-?[0-9]+H)?(?P<minutes>-?[0-9]+M)?(?P<seconds>-?[0-9]+(\.[0-9]+)?S)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_us(text: str) -> int | None:
    """Return the instant of a text in ISO 8601; without an offset, it is in UTC. None if the text is none.

    >>> timestamp_us("2026-03-29 02:30:00+01:00"), timestamp_us("1970-01-01"), timestamp_us("1970-02-30")
    (1774747800000000, 0, None)
    """
    found = _ISO.fullmatch(text.strip())
    if found is None:
        return None
    zone = found["zone"] or "Z"
    try:
        clock = datetime.fromisoformat(f"{found['date']}T{found['time'] or '00:00'}+00:00")
        offset = timedelta() if zone == "Z" else _offset(zone)
    except ValueError:
        return None
    instant = (clock - _EPOCH) // timedelta(microseconds=1) - offset // timedelta(microseconds=1)
    return instant if EARLIEST_US <= instant <= LATEST_US else None


def _offset(zone: str) -> timedelta:
    digits = zone[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or "0")
    if hours > 23 or minutes > 59:  # noqa: PLR2004 - of a day and an hour
        raise ValueError(zone)
    size = timedelta(hours=hours, minutes=minutes)
    return -size if zone[0] == "-" else size


def timestamp_iso(instant_us: int) -> str:
    """Return an instant as ISO 8601.

    >>> timestamp_iso(1774747800000000)
    '2026-03-29T01:30:00.000000Z'
    """
    return f"{(_EPOCH + timedelta(microseconds=instant_us)).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


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


def interval_us(text: str) -> int | None:
    """Return the interval that :func:`interval_iso` writes; None of any other text.

    >>> interval_us("PT-1H-0.000001S")
    -3600000001
    """
    found = _PIECES.fullmatch(text)
    if found is None or text == "PT":
        return None
    hours, minutes = (int((found[part] or "0_")[:-1]) for part in ("hours", "minutes"))
    seconds, _, fraction = (found["seconds"] or "0S")[:-1].partition(".")
    micros = int(f"{fraction:0<6}"[:6]) if fraction else 0
    whole = hours * HOUR_US + minutes * MINUTE_US + int(seconds) * SECOND_US
    return whole + (-micros if seconds.startswith("-") else micros)
