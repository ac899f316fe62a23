"""The auctions of NEXMark (papers/pipes_algebra.md section 2.3), from a seed. A microsecond stands for five minutes."""

from __future__ import annotations

import random

from tests.cluster.oracle.definition import Row, Streams
from tests.cluster.papers.queries import catalog_of, stream

HOUR = 12
"""Instants of five minutes."""
LONGEST_AUCTION = 48 * HOUR

CATALOG = catalog_of(
    stream("person", "id INT, name TEXT"),
    stream("open_auction", "item_id INT, seller_id INT, start_price REAL"),
    stream("closed_auction", "item_id INT"),
    stream("bid", "item_id INT, bid_price REAL, bidder_id INT"),
    derived=(
        f"""CREATE STREAM current_price AS
        SELECT p.item_id, p.price FROM (
            (SELECT item_id, bid_price AS price FROM bid WINDOW(RANGE {LONGEST_AUCTION} US))
            UNION ALL (SELECT item_id, start_price AS price FROM open_auction WINDOW(RANGE {LONGEST_AUCTION} US))
        ) p, closed_auction c WHERE p.item_id = c.item_id""",
        f"""CREATE STREAM closing_price AS
        SELECT p.item_id, o.seller_id, MAX(p.price) AS price
        FROM current_price p, open_auction o WINDOW(RANGE {LONGEST_AUCTION} US)
        WHERE p.item_id = o.item_id GROUP BY p.item_id, o.seller_id""",
    ),
)

QUERIES = {
    "Q1 currency conversion": "SELECT item_id, bid_price * 0.89 AS euro, bidder_id FROM bid",
    "Q2 selection": "SELECT * FROM bid WHERE item_id = 1 OR item_id = 4 OR item_id = 7 OR item_id = 9 OR item_id = 2",
    "Q3 short auctions": f"SELECT o.* FROM open_auction o WINDOW(RANGE {5 * HOUR} US), closed_auction c "
    "WHERE o.item_id = c.item_id",
    "Q4 highest bid": "SELECT item_id, bid_price FROM bid WINDOW(RANGE 2 US) "
    "WHERE bid_price = (SELECT MAX(bid_price) FROM bid WINDOW(RANGE 2 US))",
    "Q5 closing price": "SELECT item_id, seller_id, price FROM closing_price",
    "Q6 hot items": f"SELECT item_id FROM (SELECT b.item_id, COUNT(*) AS num FROM bid WINDOW(RANGE {HOUR} US) b "
    f"GROUP BY b.item_id) x WHERE num >= ALL (SELECT COUNT(*) FROM bid WINDOW(RANGE {HOUR} US) b2 GROUP BY b2.item_id)",
    "Q7 average price of a seller's last sales": "SELECT seller_id, AVG(price) AS price FROM closing_price "
    "WINDOW(PARTITION BY seller_id ROWS 10) GROUP BY seller_id",
    "Q8 new sellers": "SELECT DISTINCT p.id, p.name FROM ISTREAM(person WINDOW(RANGE UNBOUNDED)) p "
    f"WINDOW(RANGE {12 * HOUR} US), open_auction o WHERE p.id = o.seller_id",
}


def generated(seed: int, *, people: int = 12, items: int = 16, last: int = 30 * HOUR) -> tuple[Streams, int]:
    """Return the streams, in order of arrival, and an instant after which nothing changes.

    People register, open auctions and bid; an auction closes within 48 hours, and no two at the same instant: which of
    two sales is the later one must not be a matter of chance.
    """
    dice = random.Random(seed)
    person: list[tuple[int, Row]] = [(dice.randint(0, last), (number, f"person {number}")) for number in range(people)]
    registered = {row[0]: at for at, row in person}
    opened: list[tuple[int, Row]] = []
    bids: list[tuple[int, Row]] = []
    closed: list[tuple[int, Row]] = []
    taken: set[int] = set()
    for item in range(items):
        seller = dice.randrange(people)
        at = registered[seller] + dice.choice((0, dice.randint(0, 20 * HOUR)))
        price = float(dice.randint(1, 20))
        opened.append((at, (item, seller, price)))
        end = at + dice.choice((dice.randint(1, 8 * HOUR), dice.randint(1, LONGEST_AUCTION - 1)))
        while end in taken:
            end -= 1
        taken.add(end)
        for _ in range(dice.choice((0, 3, 8))):
            price += dice.choice((0, 1, 5))
            bids.append((dice.randint(at, max(at, end - 1)), (item, price, dice.randrange(people))))
        closed.append((end, (item,)))
    streams = {"person": person, "open_auction": opened, "bid": bids, "closed_auction": closed}
    stamps = [stamp for rows in streams.values() for stamp, _ in rows]
    return {name: _arrived(rows, dice) for name, rows in streams.items()}, max(stamps) + 2 * LONGEST_AUCTION + 20 * HOUR


def _arrived(rows: list[tuple[int, Row]], dice: random.Random) -> list[tuple[int, Row]]:
    """Put tuples in the order in which they arrive: up to two hours out of order."""
    late = [(stamp + dice.random() * 2 * HOUR, stamp, row) for stamp, row in rows]
    return [(stamp, row) for _, stamp, row in sorted(late, key=lambda each: each[0])]
