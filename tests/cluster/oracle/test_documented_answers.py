"""Forms of other systems, in FjordSQL's spelling, give the answers that the documentation of those systems describes.

The expected rows follow from what is documented there, over one small stream; nothing of the others was run.
"""

# ruff: noqa: E501 - a query is a line of the table

from __future__ import annotations

import pytest

from cluster.testing import EOF, QueryRun, ScriptedSource

MINUTE = 60_000_000
READINGS = (
    (0, "a", 400), (1, "b", 500), (3, "a", 450), (4, "b", 500), (7, "a", 600), (12, "b", 900), (13, "a", 600),
    (14, "b", 700), (25, "a", 100),
)  # fmt: skip
"""Minute, room, CO2."""
DOORS = ((2, "a", True), (6, "a", False), (13, "b", True))
"""Minute, room, whether its door is open."""

# What is documented, the query, and its rows in order of their starts.
ANSWERS = (
    (
        "Flink SQL, eKuiper: a tumbling window has a row if there are tuples in it, and is [start, end)",
        "SELECT EXTRACT(MINUTE FROM WINDOW_START()) AS m, COUNT(*) AS n FROM climate WINDOW(RANGE 5 MINUTES SLIDE 5 MINUTES)",
        [(0, 4), (5, 1), (10, 3), (25, 1)],
    ),
    (
        "Flink SQL: HOP(5 minutes, 10 minutes) has each tuple in two windows",
        "SELECT EXTRACT(MINUTE FROM WINDOW_END()) AS m, COUNT(*) AS n FROM climate WINDOW(RANGE 10 MINUTES SLIDE 5 MINUTES)",
        [(5, 4), (10, 5), (15, 4), (20, 3), (30, 1), (35, 1)],
    ),
    (
        "Flink SQL: CUMULATE(5 minutes, 15 minutes) grows by its step, and begins anew behind its size",
        "SELECT COUNT(*) AS n FROM climate WINDOW(RESET EVERY 15 MINUTES SLIDE 5 MINUTES)",
        [(4,), (5,), (8,), (1,)],
    ),
    (
        "Flink SQL, ksqlDB: a session ends with a gap, and is of one key",
        "SELECT room, COUNT(*) AS n, MAX(co2) AS most FROM climate WINDOW(SESSION GAP 6 MINUTES PARTITION BY room) GROUP BY room",
        [("b", 2, 500), ("a", 4, 600), ("b", 2, 900), ("a", 1, 100)],
    ),
    (
        "eKuiper: COUNTWINDOW(4) has the tuples four by four",
        "SELECT SUM(co2) AS s FROM Istream((SELECT SUM(co2) AS co2 FROM climate WINDOW(ROWS 4 SLIDE 4))) AS w",
        [(1850,), (2800,)],
    ),
    (
        "Flink SQL: OVER with ROWS 2 PRECEDING is of each key, and of the tuple itself",
        "SELECT room, SUM(co2) OVER (PARTITION BY room ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM climate",
        [("a", 400), ("b", 500), ("a", 850), ("b", 1000), ("a", 1450), ("b", 1900), ("a", 1650), ("b", 2100), ("a", 1300)],
    ),
    (
        "Flink SQL: OVER with RANGE of an interval has the tuple that is exactly as old",
        "SELECT COUNT(*) OVER (PARTITION BY room RANGE BETWEEN INTERVAL '4' MINUTE PRECEDING AND CURRENT ROW) AS n FROM climate",
        [(1,), (1,), (2,), (2,), (2,), (1,), (1,), (2,), (1,)],
    ),
    (
        "eKuiper: lag is of the tuple before, with a default",
        "SELECT room, LAG(co2, 1, 0) OVER (PARTITION BY room) AS before FROM climate",
        [("a", 0), ("b", 0), ("a", 400), ("b", 500), ("a", 450), ("b", 500), ("a", 600), ("b", 900), ("a", 600)],
    ),
    (
        "eKuiper: had_changed is true for the first tuple, and where the value is another one",
        "SELECT room, co2 FROM climate QUALIFY CHANGED(co2) OVER (PARTITION BY room)",
        [("a", 400), ("b", 500), ("a", 450), ("a", 600), ("b", 900), ("b", 700), ("a", 100)],
    ),
    (
        "Flink SQL: deduplication by ROW_NUMBER ... ORDER BY time keeps the first of each key",
        (
            "SELECT room, co2 FROM (SELECT room, co2, ROW_NUMBER() OVER (PARTITION BY room ORDER BY STAMP()) AS n "
            "FROM climate WINDOW(RANGE UNBOUNDED)) AS t WHERE n = 1"
        ),
        [("a", 400), ("b", 500)],
    ),
    (
        "Flink SQL: deduplication in descending order keeps the last of each key",
        "SELECT room, co2 FROM climate WINDOW(PARTITION BY room ROWS 1)",
        [("a", 400), ("b", 500), ("a", 450), ("b", 500), ("a", 600), ("b", 900), ("a", 600), ("b", 700), ("a", 100)],
    ),
    (
        "Flink SQL: window Top-N has the first rows of each window",
        (
            "SELECT room, n FROM (SELECT room, COUNT(*) AS n FROM climate WINDOW(RANGE 10 MINUTES SLIDE 10 MINUTES) GROUP BY room) "
            "AS w ORDER BY n DESC, room LIMIT 1"
        ),
        [("a", 3), ("b", 2), ("a", 1)],
    ),
    (
        "Flink SQL: an interval join has all pairs whose times are within the bounds",
        "SELECT c.co2 AS co2, d.open AS open FROM climate AS c JOIN doors AS d WITHIN -5 MINUTES TO 0 MINUTES ON c.room = d.room",
        [(450, True), (600, False), (600, True), (700, True)],
    ),
    (
        "Flink SQL: a temporal join takes the version that held at the time of the left tuple",
        "SELECT c.room AS room, c.co2 AS co2, d.open AS open FROM climate AS c ASOF LEFT JOIN doors AS d ON c.room = d.room",
        [
            ("a", 400, None), ("b", 500, None), ("a", 450, True), ("b", 500, None), ("a", 600, False), ("b", 900, None),
            ("a", 600, False), ("b", 700, True), ("a", 100, False),
        ],
    ),
    (
        "Flink SQL: MATCH_RECOGNIZE skips past the last row, and + is greedy",
        (
            "SELECT m.room AS room, m.n AS n FROM climate MATCH_RECOGNIZE (PARTITION BY room ORDER BY STAMP() "
            "MEASURES COUNT(UP.co2) AS n PATTERN (START_ROW UP+) WITHIN 1 HOUR DEFINE UP AS UP.co2 > PREV(UP.co2)) AS m"
        ),
        [("a", 2), ("b", 1)],
    ),
    (
        "Flink SQL: FIRST_VALUE and LAST_VALUE of a window are by time, LISTAGG has commas",
        (
            "SELECT FIRST_VALUE(co2) AS f, LAST_VALUE(co2) AS l, LISTAGG(DISTINCT room) AS r "
            "FROM climate WINDOW(RANGE 15 MINUTES SLIDE 15 MINUTES)"
        ),
        [(400, 700, "a,b"), (100, 100, "a")],
    ),
    (
        "otherwise than there: division, conversion, NULLs in functions",
        (
            "SELECT 7 / 2 AS a, CAST(2.7 AS INTEGER) AS b, CAST(TRUNC(2.7) AS INTEGER) AS c, CAST('x' AS INTEGER) AS d, "
            "CONCAT('a', NULL) AS e, LEAST(1, NULL) AS f FROM climate WHERE co2 = 400"
        ),
        [(3.5, 3, 2, None, "a", 1)],
    ),
    (
        "otherwise than there: LAG is of the tuples that WHERE has left",
        "SELECT LAG(co2) OVER (PARTITION BY room) AS before FROM climate WHERE co2 > 450",
        [(None,), (500,), (None,), (500,), (600,), (900,)],
    ),
    (
        "otherwise than there: STDDEV is of a sample",
        "SELECT STDDEV(co2) AS s, STDDEV_POP(co2) AS p FROM climate WINDOW(RANGE 2 MINUTES SLIDE 2 MINUTES) WHERE co2 IN (400, 500)",
        [(70.71067811865476, 50.0), (None, 0.0)],
    ),
    (
        "otherwise than there: a stream without a window is one of instants",
        "SELECT room FROM climate UNION SELECT room FROM doors",
        [("a",), ("b",), ("a",), ("a",), ("b",), ("a",), ("a",), ("b",), ("a",), ("b",), ("b",), ("a",)],
    ),
    (
        "Flink SQL: functions of times and texts",
        (
            "SELECT EXTRACT(MINUTE FROM FLOOR(STAMP() TO HOUR)) AS a, EXTRACT(MINUTE FROM CEIL(STAMP() TO MINUTE)) AS b, "
            "EXTRACT(MINUTE FROM TIMESTAMPADD(MINUTE, 5, STAMP())) AS c, POSITION('b' IN 'abab') AS d, "
            "LPAD(room, 3, '0') AS e, room SIMILAR TO '[a-c]' AS f, co2 BETWEEN SYMMETRIC 500 AND 300 AS g, "
            "TRIM(LEADING '0' FROM '007') AS h, REVERSE('ab') AS i, "
            "CAST(TO_TIMESTAMP('29.03.2026 01:30', 'dd.MM.yyyy HH:mm') AS TEXT) AS j FROM climate WHERE co2 = 400"
        ),
        [(0, 0, 5, 2, "00a", True, True, "7", "ba", "2026-03-29T01:30:00.000000Z")],
    ),
)  # fmt: skip


@pytest.mark.parametrize(("documented", "query", "expected"), ANSWERS, ids=[each[0] for each in ANSWERS])
@pytest.mark.parametrize("batch", [1, 4])
def test_answers_are_those_that_others_document(documented: str, query: str, expected: list, batch: int) -> None:
    assert documented
    climate = ScriptedSource(
        {"room": str, "co2": int},
        [*((minute * MINUTE, {"room": room, "co2": co2}) for minute, room, co2 in READINGS), EOF()],
        batch_size=batch,
    )
    doors = ScriptedSource(
        {"room": str, "open": bool},
        [*((minute * MINUTE, {"room": room, "open": is_open}) for minute, room, is_open in DOORS), EOF()],
        batch_size=batch,
    )
    answers = sorted(
        QueryRun(query, {"climate": climate, "doors": doors}).run(), key=lambda each: (each.start, str(each.row))
    )
    assert [tuple(each.row.values()) for each in answers] == expected
