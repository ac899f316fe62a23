"""papers/pipes_algebra.md section 9.5: whole queries from their text. A microsecond stands for a unit of time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.papers.queries import catalog_of, check_answer, stream

NEVER = 2**62
AUCTIONS = catalog_of(
    stream("bid", "item INT, price INT, bidder TEXT"),
    stream("open_auction", "item INT, seller TEXT, start_price INT"),
    stream("closed_auction", "item INT"),
    stream("closing", "seller TEXT, price INT"),
    derived=(
        """CREATE STREAM current_price AS
        SELECT p.item, p.price FROM (
            SELECT item, price FROM bid WINDOW(RANGE 48 US)
            UNION ALL SELECT item, start_price AS price FROM open_auction WINDOW(RANGE 48 US)
        ) p, closed_auction c WHERE p.item = c.item""",
        """CREATE STREAM closing_price AS
        SELECT p.item, o.seller, MAX(p.price) AS price
        FROM current_price p, open_auction o WINDOW(RANGE 48 US) WHERE p.item = o.item GROUP BY p.item, o.seller""",
    ),
)
BIDS = [(1, (1, 10, "x")), (3, (2, 15, "y")), (4, (1, 12, "z")), (8, (3, 15, "x")), (12, (2, 9, "y"))]

QUERIES: dict[str, tuple[str, dict[str, Any], list[tuple[Any, ...]]]] = {
    "MAX over RANGE 10": (
        "SELECT MAX(price) AS price FROM bid WINDOW(RANGE 10 US)",
        {"bid": BIDS},
        [(1, 3, 10), (3, 13, 15), (13, 18, 15), (18, 22, 9)],
    ),
    "Q4": (
        ("SELECT item, price FROM bid WINDOW(RANGE 10 US) "
        "WHERE price = (SELECT MAX(price) FROM bid WINDOW(RANGE 10 US))"),
        {"bid": BIDS},
        [(1, 3, 1, 10), (3, 13, 2, 15), (8, 13, 3, 15), (13, 18, 3, 15), (18, 22, 2, 9)],
    ),
    "Q4 tumbling": (
        ("SELECT item, price FROM bid WINDOW(RANGE 10 US SLIDE 10 US) "
        "WHERE price = (SELECT MAX(price) FROM bid WINDOW(RANGE 10 US SLIDE 10 US))"),
        {"bid": BIDS},
        [(9, 19, 2, 15), (9, 19, 3, 15), (19, 29, 2, 9)],
    ),
    "Q6 with RANGE 10": (
        ("SELECT item FROM (SELECT item, COUNT(*) AS num FROM bid WINDOW(RANGE 10 US) GROUP BY item) x "
        "WHERE num >= ALL (SELECT COUNT(*) FROM bid WINDOW(RANGE 10 US) b2 GROUP BY b2.item)"),
        {"bid": BIDS},
        [(1, 4, 1), (3, 4, 2), (4, 11, 1), (11, 12, 1), (11, 12, 2), (11, 12, 3), (12, 13, 2), (13, 14, 1),
         (13, 18, 3), (13, 22, 2)],
    ),
    "Q3": (
        "SELECT o.item FROM open_auction o WINDOW(RANGE 5 US), closed_auction c WHERE o.item = c.item",
        {
            "open_auction": [(0, (1, "s", 0)), (2, (2, "s", 0)), (3, (3, "s", 0))],
            "closed_auction": [(4, (1,)), (7, (2,)), (9, (3,))],
        },
        [(4, 5, 1)],
    ),
    "Q5": (
        "SELECT item, seller, price FROM closing_price",
        {
            "open_auction": [(0, (1, "s", 5)), (1, (2, "t", 7))],
            "bid": [(3, (1, 6, "x")), (5, (1, 9, "x")), (5, (1, 8, "y"))],
            "closed_auction": [(10, (1,)), (20, (2,))],
        },
        [(10, 11, 1, "s", 9), (20, 21, 2, "t", 7)],
    ),
    "Q7 with ROWS 2": (
        "SELECT seller, AVG(price) AS price FROM closing WINDOW(PARTITION BY seller ROWS 2) GROUP BY seller",
        {"closing": [(1, ("s", 10)), (2, ("s", 20)), (4, ("t", 5)), (7, ("s", 60))]},
        [(1, 2, "s", 10.0), (2, 7, "s", 15.0), (4, NEVER, "t", 5.0), (7, NEVER, "s", 40.0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "streams", "rows"), QUERIES.values(), ids=[f"9.5 {name}" for name in QUERIES])
def test_9_5_whole_queries(text: str, streams: dict[str, Any], rows: list[tuple[Any, ...]]) -> None:
    check_answer(text, AUCTIONS, streams, rows)
