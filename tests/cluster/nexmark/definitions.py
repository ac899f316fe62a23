"""What each query of examples/nexmark answers, written by hand for DuckDB: rows with the interval in which they hold.

``person``, ``auction``, ``bid`` have the stamp ``t`` beside their columns, microseconds since 1970. The macros say how
long a tuple of a window counts (docs/reference/sql.md): :data:`MACROS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import duckdb
import polars as pl

from cluster.fjord.batch import NEVER

Row = tuple[Any, ...]
SECOND_US = 1_000_000
HOP_US, TEN_US = 2 * SECOND_US, 10 * SECOND_US
HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US

MACROS = f"""
CREATE MACRO iso(t) AS strftime(make_timestamp(t), '%Y-%m-%dT%H:%M:%S.%fZ');
CREATE MACRO never() AS {NEVER};
CREATE MACRO next_grid(t, slide) AS (t // slide + 1) * slide;
CREATE MACRO window_begin(t, slide) AS next_grid(t, slide) - 1;
CREATE MACRO window_end(t, width, slide) AS next_grid(t + width, slide) - 1;
"""

_TUMBLED = f"window_begin(t, {TEN_US})"
_LEVELS = ("TRUE", "price < 10000", "price BETWEEN 10000 AND 999999", "price >= 1000000")
_COUNTS = ", ".join(f"COUNT(*) FILTER (WHERE {level})" for level in _LEVELS)
_STATISTICS = ", ".join(
    f"COUNT({what}) FILTER (WHERE {level})"
    for what in ("*", "DISTINCT bidder", "DISTINCT auction")
    for level in _LEVELS
)
_DAY, _DATE = f"window_begin(t, {DAY_US})", "left(iso(t), 10)"
_SALES = f"""
        WITH pairs AS (
            SELECT a.*, bidder, price, b.extra AS bid_extra, b.t AS bid_t, b.t AS low, a.t + {HOUR_US} AS high
            FROM auction a JOIN bid b ON a.id = b.auction AND b.t BETWEEN a.t AND expires)"""
"""Bids that came while their auctions were open: each counts from `low` until just before `high`."""
_SPANS = """(
            SELECT {key}, instant, LEAD(instant) OVER (PARTITION BY {key} ORDER BY instant) AS until
            FROM (SELECT DISTINCT {key}, UNNEST([low, high]) AS instant FROM pairs)) AS spans"""
"""The spans between instants at which pairs of a key change."""

DEFINITIONS = {
    "q0": "SELECT t, t + 1, auction, bidder, price, iso(t), extra FROM bid",
    "q1": "SELECT t, t + 1, auction, bidder, CAST(0.908 AS DOUBLE) * price, iso(t), extra FROM bid",
    "q2": "SELECT t, t + 1, auction, price FROM bid WHERE auction % 123 = 0",
    "q3": f"""
        SELECT GREATEST(a.t, p.t), GREATEST(a.t, p.t) + 1, name, city, state, a.id
        FROM auction a JOIN person p ON a.seller = p.id AND ABS(a.t - p.t) < {HOUR_US}
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": f"""
        {_SALES},
        finals AS (
            SELECT instant, until, category, id, MAX(price) AS final
            FROM {_SPANS.format(key="category")} JOIN pairs USING (category)
            WHERE low <= instant AND instant < high GROUP BY ALL)
        SELECT instant, until, category, AVG(final) FROM finals GROUP BY ALL""",
    "q5": f"""
        WITH hops AS (
            SELECT auction, UNNEST(range(next_grid(t, {HOP_US}), next_grid(t + {TEN_US}, {HOP_US}), {HOP_US})) AS k
            FROM bid),
        counted AS (SELECT k, auction, COUNT(*) AS num FROM hops GROUP BY ALL)
        SELECT k - 1, k + {HOP_US} - 1, auction, num FROM counted
        QUALIFY num = MAX(num) OVER (PARTITION BY k)""",
    "q6": f"""
        {_SALES},
        highest AS (
            SELECT seller, low AS t, price FROM pairs
            QUALIFY price > COALESCE(MAX(price) OVER (
                PARTITION BY id ORDER BY low ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0))
        SELECT t, t + 1, seller, AVG(price) OVER (PARTITION BY seller ORDER BY t ROWS 9 PRECEDING) FROM highest""",
    "q7": f"""
        SELECT {_TUMBLED}, {_TUMBLED} + {TEN_US}, auction, price, bidder, iso(t), extra FROM bid
        QUALIFY price = MAX(price) OVER (PARTITION BY {_TUMBLED})""",
    "q8": f"""
        SELECT DISTINCT window_begin(p.t, {TEN_US}), window_end(p.t, {TEN_US}, {TEN_US}), p.id, name,
                        iso(window_begin(p.t, {TEN_US}) + 1 - {TEN_US})
        FROM person p JOIN auction a ON p.id = a.seller
        WHERE window_begin(p.t, {TEN_US}) = window_begin(a.t, {TEN_US})""",
    "q9": f"""
        {_SALES}
        SELECT instant, until, id, item, description, initial_bid, reserve, iso(t), expires, seller, category,
               extra, id, bidder, price, iso(bid_t), bid_extra
        FROM {_SPANS.format(key="id")} JOIN pairs USING (id) WHERE low <= instant AND instant < high
        QUALIFY ROW_NUMBER() OVER (PARTITION BY id, instant ORDER BY price DESC, bid_t) = 1""",
    "q10": """
        SELECT t, t + 1, auction, bidder, price, iso(t), extra, left(iso(t), 10), substr(iso(t), 12, 5) FROM bid""",
    "q11": f"""
        WITH marked AS (
            SELECT *, t - LAG(t) OVER (PARTITION BY bidder ORDER BY t) > {TEN_US} AS begins FROM bid),
        numbered AS (
            SELECT *, COUNT(*) FILTER (WHERE begins) OVER (PARTITION BY bidder ORDER BY t) AS session FROM marked)
        SELECT MAX(t) + {TEN_US}, MAX(t) + {TEN_US} + 1, bidder, COUNT(*), iso(MIN(t)), iso(MAX(t) + {TEN_US})
        FROM numbered GROUP BY bidder, session""",
    "q12": f"""
        SELECT {_TUMBLED}, {_TUMBLED} + {TEN_US}, bidder, COUNT(*), iso({_TUMBLED} + 1 - {TEN_US}), iso({_TUMBLED} + 1)
        FROM bid GROUP BY ALL""",
    "q13": "SELECT t, t + 1, auction, bidder, price, iso(t), value FROM bid JOIN side_input ON auction % 10000 = key",
    "q14": """
        SELECT t, t + 1, auction, bidder, CAST(0.908 AS DOUBLE) * price,
               CASE WHEN hour(make_timestamp(t)) BETWEEN 8 AND 18 THEN 'dayTime'
                    WHEN hour(make_timestamp(t)) IN (7, 19) THEN 'otherTime' ELSE 'nightTime' END,
               iso(t), extra, len(string_split(extra, 'c')) - 1
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT {_DAY}, {_DAY} + {DAY_US}, {_DATE}, {_STATISTICS} FROM bid GROUP BY ALL",
    "q16": f"""
        SELECT {_DAY}, {_DAY} + {DAY_US}, channel, {_DATE}, MAX(substr(iso(t), 12, 5)), {_STATISTICS}
        FROM bid GROUP BY ALL""",
    "q17": f"""
        SELECT {_DAY}, {_DAY} + {DAY_US}, auction, {_DATE}, {_COUNTS},
               MIN(price), MAX(price), AVG(price), SUM(price)::BIGINT
        FROM bid GROUP BY ALL""",
    "q18": """
        SELECT t, COALESCE(LEAD(t) OVER (PARTITION BY bidder, auction ORDER BY t), never()),
               auction, bidder, price, channel, url, iso(t), extra
        FROM bid""",
    "q19": """
        WITH spans AS (
            SELECT auction, t AS instant, COALESCE(LEAD(t) OVER (PARTITION BY auction ORDER BY t), never()) AS until
            FROM bid)
        SELECT instant, until, auction, bidder, price, channel, url, iso(t), extra,
               ROW_NUMBER() OVER (PARTITION BY auction, instant ORDER BY price DESC, t) AS place
        FROM spans JOIN bid USING (auction) WHERE t <= instant QUALIFY place <= 10""",
    "q20": f"""
        SELECT b.t, b.t + 1, auction, bidder, price, channel, url, iso(b.t), b.extra, item, description, initial_bid,
               reserve, iso(a.t), expires, seller, category, a.extra
        FROM bid b JOIN auction a ON b.auction = a.id AND b.t - a.t BETWEEN 0 AND {HOUR_US - 1}
        WHERE category = 10""",
    "q21": """
        SELECT t, t + 1, auction, bidder, price, channel, number FROM (
            SELECT *, CASE channel WHEN 'Apple' THEN '0' WHEN 'Google' THEN '1' WHEN 'Facebook' THEN '2'
                      WHEN 'Baidu' THEN '3' ELSE NULLIF(split_part(url, '&channel_id=', 2), '') END AS number FROM bid)
        WHERE number IS NOT NULL""",
    "q22": """
        SELECT t, t + 1, auction, bidder, price, channel, parts[4], parts[5], parts[6]
        FROM (SELECT *, string_split(url, '/') AS parts FROM bid)""",
}  # fmt: skip
"""By query: start, end, and the columns of the query."""


def evaluated(name: str, tables: dict[str, pl.DataFrame]) -> list[Row]:
    """Return the rows of a definition over tables whose stamps are called ``date_time``."""
    with duckdb.connect() as connection:
        for table, rows in tables.items():
            connection.register(
                table, rows.rename({"date_time": "t"} if "date_time" in rows.columns else {}).to_arrow()
            )
        connection.execute(MACROS)
        return connection.execute(DEFINITIONS[name]).fetchall()


def changes(rows: Iterable[Row]) -> Counter[Row]:
    """Return by (instant, values) how many more rows hold from then on than before: equal for equal snapshots.

    Reals count with nine digits, because sums may be added up in another order.
    """
    found: Counter[Row] = Counter()
    for start, end, *values in rows:
        row = tuple(float(f"{value:.9g}") if isinstance(value, float) else value for value in values)
        found[(start, *row)] += 1
        found[(end, *row)] -= 1
    return Counter({change: number for change, number in found.items() if number})
