"""What an owner with a token of the role `query` may try, as data: statements, how they are used, what must come of it.

A variant that planning can price is refused with a reason; one that is accepted has to leave others alone, or be
stopped with a reason at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COLUMNS = 3_000
RELATION_ROWS = 300_000
"""Rows of the relation ``giant``; its column ``lane`` has four values."""
FUNCTIONS = ("loops", "takes_memory", "waits_in_c", "leaves_a_child", "crashes", "long_text")
"""Those of ``tests.cluster.functions.misbehaving`` that the operator has declared."""


class Way(StrEnum):
    """How statements are used."""

    ADD = "added"
    CHURN = "added and dropped, again and again"
    AT_ONCE = "added by eight clients at once"
    TOGETHER = "added together, in one request"
    EXPLAIN = "explained, again and again"
    QUESTIONS = "asked about sensors, again and again"
    DOWNLOAD = "added, and their results downloaded again and again by eight clients"
    UNREAD = "added, and their results followed by forty clients that never read"


@dataclass(frozen=True, slots=True)
class Attack:
    """One variant of an attack.

    Parameters
    ----------
    name
        Its kind, and its variant.
    statements
        What is sent.
    way
        How.
    refused
        A pattern that the answer to each statement must match; None where statements are accepted.
    stopped
        A pattern that an error of an accepted query must match; None where its queries may run.
    seconds
        For how long it is kept up once statements have been accepted.
    """

    name: str
    statements: tuple[str, ...]
    way: Way = Way.ADD
    refused: str | None = None
    stopped: str | None = None
    seconds: float = 12.0


ROWS = r"rows per second.*the limit is|one tuple would make up to .* rows.*the limit is"
"""Of the limits on rows, with the number of rows, the reason and the limit."""
ANSWERS = r"the query would answer up to .* rows per second"
"""Of the limit on what one query answers."""
WORK = r"columns of aggregates.*the limit is"
"""Of the limit on columns of aggregates."""
TEXTS = r"characters of long texts per second.*the limit is"
"""Of the limit on texts that all queries make together."""
LONG = r"planning this statement takes longer than"
"""Of the limit on planning, which a statement of very many columns may meet before on a slow machine."""


def _product(windows: int, length: str, condition: str = "") -> str:
    streams = ", ".join(f"traffic t{place} WINDOW(RANGE {length})" for place in range(windows))
    return f"SELECT t0.sensor, t{windows - 1}.speed FROM {streams}{condition}"


def _columns(call: str, count: int = COLUMNS, window: str = "RANGE 10 SECONDS SLIDE 1 SECOND", first: int = 0) -> str:
    columns = ", ".join(f"{call.format(number)} AS c{number}" for number in range(first, first + count))
    return f"SELECT sensor, {columns} FROM traffic WINDOW({window}) GROUP BY sensor"


def _pattern(pattern: str, skip: str = "", within: str = "1 DAY") -> str:
    return (
        "SELECT sensor, n FROM traffic AS t MATCH_RECOGNIZE (PARTITION BY sensor ORDER BY STAMP() "
        f"MEASURES COUNT(*) AS n {skip} PATTERN ({pattern}) WITHIN {within} DEFINE A AS speed > 0, B AS flow >= 0) AS m"
    )


def _nested(depth: int) -> str:
    query = "SELECT sensor, speed FROM traffic WINDOW(RANGE 1 MINUTE)"
    for level in range(depth):
        query = f"SELECT sensor, speed FROM ({query}) AS s{level} WHERE speed > {level}"
    return query


def _compared(depth: int) -> str:
    query = "SELECT MAX(speed) FROM traffic WINDOW(RANGE 1 MINUTE)"
    for level in range(depth):
        query = f"SELECT MAX(speed) FROM traffic WINDOW(RANGE {level + 2} MINUTES) WHERE speed <= ({query})"
    return f"SELECT sensor FROM traffic WHERE speed >= ({query})"


def _joined(times: int) -> str:
    joins = "".join(f" JOIN traffic t{place} USING (sensor)" for place in range(1, times))
    return f"SELECT {', '.join(f't{place}.*' for place in range(times))} FROM traffic t0{joins}"


def _different(count: int) -> tuple[str, ...]:
    """Return queries that share nothing but their stream."""
    return tuple(
        f"SELECT sensor, STDDEV(speed * {number + 2} + flow) AS x FROM traffic "
        f"WINDOW(RANGE {number % 7 + 2} SECONDS SLIDE 1 SECOND) GROUP BY sensor"
        for number in range(count)
    )


def _long_texts(query: int) -> str:
    """Return a query that makes and answers 200,000 characters of each tuple, and shares none of them."""
    texts = ", ".join(f"LPAD(sensor, {10_000 - number}, '{query}') AS x{number}" for number in range(20))
    return f"SELECT sensor, {texts} FROM traffic"


def _statements() -> Iterator[Attack]:
    """Yield attacks by what a statement asks for."""
    yield Attack("products/two windows of a minute", (_product(2, "1 MINUTE"),))
    yield Attack("products/two windows of an hour", (_product(2, "1 HOUR"),), refused=ROWS)
    yield Attack("products/three windows of a minute", (_product(3, "1 MINUTE"),), refused=ROWS)
    yield Attack("products/five windows of 10 s", (_product(5, "10 SECONDS"),), refused=ROWS)
    yield Attack(
        "products/three windows of 10 s, compared",
        (_product(3, "10 SECONDS", " WHERE t0.speed < t1.speed AND t1.flow < t2.flow"),),
        refused=ROWS,
    )
    yield Attack(
        "products/fast samples",
        (_product(2, "10 MINUTES") + " SAMPLE EVERY 10 MILLISECONDS",),
        refused=ROWS,
    )
    yield Attack(
        "groups/a real over a day",
        ("SELECT speed, flow, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 SECOND) GROUP BY speed, flow",),
    )
    yield Attack(
        "groups/a text that never repeats",
        (
            *(
                f"SELECT CONCAT(sensor, speed, flow) AS k, COUNT(*) AS n FROM traffic WINDOW({window}) GROUP BY k"
                for window in ("RANGE 1 DAY SLIDE 1 SECOND", "RANGE 1 DAY")
            ),
        ),
    )
    yield Attack(
        "groups/a slide of a millisecond",
        ("SELECT speed, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 MILLISECOND) GROUP BY speed",),
        refused=ROWS,
    )
    yield Attack("columns/800 STDDEV, sliding", (_columns("STDDEV(speed + {})", 800),), refused=WORK)
    yield Attack("columns/600 STDDEV, sliding", (_columns("STDDEV(speed + {})", 600),))
    yield Attack("columns/3,000 STDDEV, sliding", (_columns("STDDEV(speed + {})"),), refused=f"{WORK}|{LONG}")
    yield Attack(
        "columns/3,000 SUM, tumbling",
        (_columns("SUM(flow * {})", window="RANGE 1 SECOND SLIDE 1 SECOND"),),
        refused=WORK,
    )
    yield Attack("columns/3,000 MEDIAN", (_columns("MEDIAN(speed + {})"),), refused=f"{WORK}|{LONG}")
    yield Attack("columns/3,000 of equal aggregates", (_columns("STDDEV(speed) + {}"),))
    yield Attack(
        "columns/10 queries of 250", tuple(_columns("STDDEV(speed + {})", 250, first=250 * each) for each in range(10))
    )
    yield Attack("wide/20 joins of all columns", (_joined(20),))
    yield Attack("wide/200 joins of all columns", (_joined(200),), refused=f"does not come to rest|{LONG}")
    yield Attack("wide/4,000 columns", (f"SELECT {', '.join(['*'] * 660)} FROM traffic",))
    yield Attack("wide/joins beyond all columns", (_joined(700),), refused="columns in one SELECT|may take|can be read")
    yield Attack("patterns/without end", (_pattern("A+ B+ A+ B+"), _pattern("A* B", "AFTER MATCH SKIP TO NEXT ROW")))
    yield Attack(
        "patterns/of up to 4,000 rows",
        (_pattern("A{1,1000} B{1,1000} A{1,1000} B{1,1000}", "AFTER MATCH SKIP TO NEXT ROW"),),
    )
    yield Attack("patterns/of 2,000 rows", (_pattern("A{1000} B{1000}"),), refused="are possible")
    yield Attack(
        "results/a product without a reader",
        (_product(2, "1 MINUTE"),),
        seconds=20.0,
    )
    yield Attack(
        "results/long texts",
        ("SELECT RPAD(sensor, 10000, 'x') AS a, RPAD(sensor, 10000, 'y') AS b FROM traffic WINDOW(RANGE 1 MINUTE)",),
        seconds=20.0,
    )
    yield Attack("results/long texts of many queries", tuple(map(_long_texts, range(60))), Way.AT_ONCE, seconds=20.0)
    hidden = " AND ".join(f"LENGTH(LPAD(sensor, {10_000 - number})) > 5" for number in range(300))
    yield Attack("texts/that no answer has", (f"SELECT sensor FROM traffic WHERE {hidden}",), refused=f"{TEXTS}|{LONG}")


def _uses() -> Iterator[Attack]:
    """Yield attacks by what statements call, read and how often they come."""
    for name, reason, seconds in (
        # One that takes too long, 5 s, rests for a minute: a shorter time would show little but these.
        ("loops", "5 s", 65.0),
        ("takes_memory", "memory|Memory", 15.0),
        ("waits_in_c", "5 s", 65.0),
        ("leaves_a_child", "5 s", 65.0),
        ("crashes", "ended", 15.0),
    ):
        yield Attack(
            f"functions/{name}", (f"SELECT sensor, {name}(speed) AS x FROM traffic",), stopped=reason, seconds=seconds
        )
    yield Attack("many/300 that share nothing, at once", _different(300), Way.AT_ONCE, seconds=20.0)
    yield Attack(
        "many/300 that share nothing, together", (";\n".join(_different(300)) + ";",), Way.TOGETHER, seconds=20.0
    )
    yield Attack(
        "many/300 filters",
        tuple(f"SELECT sensor, speed FROM traffic WHERE speed > {each}" for each in range(300)),
        Way.AT_ONCE,
        seconds=20.0,
    )
    yield Attack("churn/one query", _different(1), Way.CHURN, seconds=15.0)
    yield Attack("churn/twenty queries", _different(20), Way.CHURN, seconds=15.0)
    yield Attack("churn/a wide one", (_columns("STDDEV(speed + {})", 300),), Way.CHURN, seconds=15.0)
    yield Attack(
        "sessions/that never close",
        (
            "SELECT STRING_AGG(sensor, ',') AS t FROM traffic WINDOW(SESSION GAP 1 DAY MAX 7 DAYS EARLY)",
            "SELECT speed, COUNT(*) AS n FROM traffic WINDOW(SESSION GAP 1 DAY PARTITION BY speed) GROUP BY speed",
        ),
    )
    yield Attack(
        "sessions/valid until a next that never comes",
        (
            "SELECT speed, flow, sensor FROM traffic VALID UNTIL NEXT BY (speed, flow) MAX 300 DAYS",
            "SELECT lane, COUNT(*) AS n FROM traffic AS t VALID UNTIL NEXT BY (speed, flow) GROUP BY lane",
        ),
    )
    yield Attack("relations/a product", ("SELECT t.sensor, g.v FROM traffic t, giant g",), refused=ROWS)
    yield Attack(
        "relations/by a value of four",
        ("SELECT t.sensor, g.v FROM traffic t, giant g WHERE t.lane = g.lane",),
        refused=ANSWERS,
    )
    yield Attack("relations/by its key", ("SELECT t.sensor, g.v FROM traffic t, giant g WHERE t.speed = g.v",))
    yield Attack(
        "relations/by an inequality",
        ("SELECT t.sensor, g.v FROM traffic t, giant g WHERE t.speed < g.v",),
        refused=ANSWERS,
    )
    yield Attack("distinct/for ever", ("SELECT DISTINCT * FROM traffic WINDOW(RANGE UNBOUNDED)",), refused="for ever")
    yield Attack(
        "calendar/no days at all",
        ("SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 MILLISECOND AT TIME ZONE 'Asia/Tokyo')",),
        refused="do not follow the calendar",
    )
    yield Attack("nested/50 queries deep", (_nested(50),))
    yield Attack("nested/50 comparisons deep", (_compared(50),), refused="rows|longer than|deep")
    yield Attack(
        "order/first million of a day",
        (
            "SELECT sensor, speed FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 SECOND) ORDER BY speed LIMIT 1000000",
            "SELECT sensor, ROW_NUMBER() OVER (ORDER BY speed DESC) AS place FROM traffic WINDOW(RANGE 1 DAY)",
        ),
    )
    yield Attack(
        "distinct/everything",
        (
            "SELECT DISTINCT * FROM traffic WINDOW(RANGE 1 DAY)",
            "SELECT DISTINCT speed, flow FROM traffic WINDOW(RANGE 30 DAYS)",
        ),
    )
    yield Attack(
        "calendar/steps of a millisecond",
        ("SELECT COUNT(*) AS n FROM traffic WINDOW(RESET EVERY 1 DAY SLIDE 1 MILLISECOND AT TIME ZONE 'Asia/Tokyo')",),
    )
    yield Attack(
        "calendar/steps of a second",
        ("SELECT flow, COUNT(*) AS n FROM traffic WINDOW(RESET EVERY 1 DAY SLIDE 1 SECOND OFFSET 1 HOUR) GROUP BY 1",),
    )
    yield Attack(
        "questions/products of sensors",
        ("SELECT COUNT(*) AS n FROM sensors a, sensors b, sensors c, sensors d, sensors e",),
        Way.QUESTIONS,
        refused="JOIN is not possible|questions of yours about sensors wait",
    )
    yield Attack("questions/sorted", ("SELECT * FROM sensors ORDER BY sensor",), Way.QUESTIONS)
    yield Attack("explain/600 columns", (_columns("STDDEV(speed + {})", 600),), Way.EXPLAIN)
    yield Attack("explain/joins of 60", (_joined(60),), Way.EXPLAIN)
    yield Attack("downloads/of a product", (_product(2, "20 SECONDS"),), Way.DOWNLOAD, seconds=20.0)
    yield Attack("unread/of a product", (_product(2, "20 SECONDS"),), Way.UNREAD, seconds=20.0)


ATTACKS = (*_statements(), *_uses())


def chosen(texts: Iterable[str]) -> tuple[Attack, ...]:
    """Return the attacks whose names contain any of some texts; all if there is none."""
    wanted = tuple(texts)
    return tuple(each for each in ATTACKS if not wanted or any(text in each.name for text in wanted))
