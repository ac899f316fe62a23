"""What functions of time mean, in DuckDB's words and in Python's zoneinfo: nothing of the compiler to Polars.

In DuckDB, timestamps are numbers of microseconds here, and become DuckDB's own only while something is computed of
them: so those without a zone, with one, and intervals cannot be taken for each other.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import duckdb

from cluster.expressions.timestamps import EARLIEST_US, LATEST_US

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STEP = timedelta(microseconds=1)
LONGEST = 2**60

MACROS = (
    f"""CREATE OR REPLACE MACRO f_ts(us) AS
        CASE WHEN us BETWEEN {EARLIEST_US} AND {LATEST_US} THEN CAST(us AS BIGINT) END""",
    f"CREATE OR REPLACE MACRO f_iv(us) AS CASE WHEN us BETWEEN -{LONGEST} AND {LONGEST} THEN CAST(us AS BIGINT) END",
    "CREATE OR REPLACE MACRO f_dt(us) AS make_timestamp(us)",
    "CREATE OR REPLACE MACRO f_part(p, us) AS CAST(date_part(p, make_timestamp(us)) AS BIGINT)",
    "CREATE OR REPLACE MACRO f_floor(u, us) AS f_ts(epoch_us(date_trunc(u, make_timestamp(us))))",
    """CREATE OR REPLACE MACRO f_unit(u) AS CASE u WHEN 'millisecond' THEN INTERVAL '1 millisecond'
        WHEN 'second' THEN INTERVAL '1 second' WHEN 'minute' THEN INTERVAL '1 minute' WHEN 'hour' THEN INTERVAL '1 hour'
        WHEN 'day' THEN INTERVAL '1 day' WHEN 'month' THEN INTERVAL '1 month'
        WHEN 'quarter' THEN INTERVAL '3 months' WHEN 'year' THEN INTERVAL '1 year' END""",
    """CREATE OR REPLACE MACRO f_ceil(u, us) AS CASE WHEN f_floor(u, us) = us THEN us
        ELSE f_ts(epoch_us(date_trunc(u, make_timestamp(us)) + f_unit(u))) END""",
    # DuckDB's own weeks do not always begin on Monday when it counts them.
    """CREATE OR REPLACE MACRO f_steps(u, a, b) AS CASE WHEN u = 'week'
        THEN date_diff('day', date_trunc('week', make_timestamp(a)), date_trunc('week', make_timestamp(b))) // 7
        ELSE date_diff(u, make_timestamp(a), make_timestamp(b)) END""",
    "CREATE OR REPLACE MACRO f_text(us, p) AS strftime(make_timestamp(us), p)",
    "CREATE OR REPLACE MACRO f_parsed(s) AS f_ts(epoch_us(TRY_CAST(trim(s) AS TIMESTAMPTZ)))",
    # The sign, hours and minutes without a bound, seconds with their fraction, without zeros at its end.
    """CREATE OR REPLACE MACRO f_duration(us) AS CASE WHEN us = 0 THEN 'PT0S' WHEN us IS NOT NULL THEN 'PT' ||
        CASE WHEN abs(us) >= 3600000000 THEN CAST(sign(us) * (abs(us) // 3600000000) AS BIGINT) || 'H' ELSE '' END ||
        CASE WHEN abs(us) // 60000000 % 60 > 0 THEN CAST(sign(us) * (abs(us) // 60000000 % 60) AS BIGINT) || 'M'
        ELSE '' END || CASE WHEN abs(us) % 60000000 > 0 THEN CASE WHEN us < 0 THEN '-' ELSE '' END ||
        abs(us) // 1000000 % 60 || CASE WHEN abs(us) % 1000000 > 0
        THEN '.' || rtrim(lpad(CAST(abs(us) % 1000000 AS VARCHAR), 6, '0'), '0') ELSE '' END || 'S' ELSE '' END END""",
)


def connected() -> duckdb.DuckDBPyConnection:
    """Return a connection that knows the meanings."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    for macro in MACROS:
        connection.execute(macro)
    for name, function, second in (
        ("f_local", local, "VARCHAR"),
        ("f_instant", instant, "VARCHAR"),
        ("f_times", times, "DOUBLE"),
        ("f_parts", parts, "DOUBLE"),
        ("f_whole_parts", parts, "BIGINT"),
    ):
        connection.create_function(name, function, ["BIGINT", second], "BIGINT", null_handling="special")
    connection.create_function("f_seconds", seconds, ["BIGINT"], "DOUBLE", null_handling="special")
    return connection


def times(interval: int | None, number: float | None) -> int | None:
    """Return an interval times a number: the exact product, rounded to the nearest microsecond, of two the even one."""
    return None if interval is None or number is None else _near(interval * Fraction(number))


def parts(interval: int | None, number: float | None) -> int | None:
    """Return an interval divided by a number, likewise."""
    return None if interval is None or not number else _near(interval / Fraction(number))


def seconds(us: int | None) -> float | None:
    """Return microseconds in seconds: Python's division of integers is rounded once."""
    return None if us is None else us / 1_000_000


def _near(exact: Fraction) -> int | None:
    return found if abs(found := round(exact)) <= LONGEST else None


def local(us: int | None, zone: str) -> int | None:
    """Return what clocks of a zone show at an instant."""
    if us is None:
        return None
    try:
        shown = (EPOCH + us * STEP).astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)
    except OverflowError:
        return None
    return (shown - EPOCH) // STEP


def instant(us: int | None, zone: str) -> int | None:
    """Return the first instant at which clocks of a zone show something; in a gap, that of the offset before it.

    By trying: an offset of the day around is right if the clock then shows what it should.
    """
    if us is None:
        return None
    offsets = []
    for hours in range(-36, 37):
        try:
            found = (EPOCH + us * STEP + timedelta(hours=hours)).astimezone(ZoneInfo(zone)).utcoffset()
        except OverflowError:
            continue
        offsets.append((found or timedelta()) // STEP)
    right = [us - each for each in offsets if local(_bounded(us - each), zone) == us]
    if right:
        return _bounded(min(right))
    return _bounded(us - offsets[0]) if offsets else None


def _bounded(us: int) -> int | None:
    return us if EARLIEST_US <= us <= LATEST_US else None
