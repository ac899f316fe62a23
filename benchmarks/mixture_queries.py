"""A mixture of queries on one stream: filters, aggregates over sliding windows, and distinct counts, by turns."""

from __future__ import annotations

ONE_QUERY = "SELECT sensor, speed FROM traffic"
"""What the mixture is compared with: every sample of every mote."""


def texts(count: int) -> list[str]:
    """Return the queries: the kinds take turns."""
    kinds = (filtered, averaged, distinct)
    return [kinds[number % len(kinds)](number // len(kinds)) for number in range(count)]


def filtered(number: int) -> str:
    """Return a filter: no state."""
    return f"SELECT sensor, speed FROM traffic WHERE speed < {10 + number % 20} AND lane = {1 + number % 4}"


def averaged(number: int) -> str:
    """Return a sliding aggregate, of five sizes and four lanes."""
    window = f"WINDOW(RANGE {10 + number % 5 * 10} SECONDS SLIDE 10 SECONDS)"
    return (
        f"SELECT segment, AVG(speed) AS mph, COUNT(*) AS samples FROM traffic {window}"
        f" WHERE lane = {1 + number % 4} GROUP BY segment"
    )


def distinct(number: int) -> str:
    """Return a distinct count, of a hundred thresholds."""
    window = "WINDOW(RANGE 30 SECONDS SLIDE 30 SECONDS)"
    return f"SELECT COUNT(DISTINCT sensor) AS slow FROM traffic {window} WHERE speed < {20 + number * 3 % 100}"
