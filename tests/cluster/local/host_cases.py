"""One table of cases for every host: queries, most of them of specimens, and streams with NULLs, equal stamps, and tuples that come out of order.

Each case's meaning is DuckDB's answer to its plan as it was translated, not rewritten, not folded (tests/cluster/oracle).
"""

# ruff: noqa: E501 - a case is a line of the table

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

import polars as pl

from cluster.fjord.batch import NEVER, START
from cluster.fjord.scalars import POLARS_TYPES
from cluster.functions.calling import CALLS
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.operators.columns import Column
from cluster.plan.epoch import PlannedQuery
from cluster.plan.extents import with_keeping
from cluster.plan.pane_query import with_family
from cluster.plan.rewrite import rewrite
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.functions.declared import FUNCTIONS, RULES
from tests.cluster.oracle.comparison import difference_of_rows, in_the_first_hour
from tests.cluster.oracle.definition import Meaning, evaluate, horizon_of
from tests.cluster.published_tuples import Published, columns_beside, stored_rows
from tests.cluster.specimens import HOST_QUERIES

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT

STREAMS = {
    "traffic": {"sensor": TEXT, "segment": INTEGER, "speed": REAL, "lane": INTEGER, "open": BOOLEAN},
    "weather": {"sensor": TEXT, "wind": INTEGER, "gust": REAL},
    "straße": {"_spur": INTEGER, "größe": REAL},
    "doors": {"door": TEXT, "n": INTEGER, "open": BOOLEAN},
}
RELATIONS: dict[str, dict[str, FieldType]] = {
    "places": {"sensor": TEXT, "segment": INTEGER, "name": TEXT, "closed": BOOLEAN},
    "limits": {"segment": INTEGER, "fastest": REAL},
    "known_segments": {"person": TEXT, "segment": INTEGER},
    "incidents": {"segment": INTEGER, "description": TEXT},
    "_orte": {"_spur": INTEGER, "名前": TEXT},
}
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "places": [
        ("a", 1, "north", False), ("b", 2, "south", True), ("b", 2, "south", True), ("c", None, None, None),
        (None, 3, "lost", False), ("d", 4, "far", True),
    ],
    "limits": [(1, 3.0), (2, 2.5), (2, 4.0), (None, 1.0), (9, None)],
    "known_segments": [("ann", 1), ("ann", 2), ("ben", 2), ("ben", None), ("ann", 3)],
    "incidents": [(1, "jam"), (2, "crash"), (2, "ice"), (4, "jam"), (None, "somewhere")],
    "_orte": [(1, "ü"), (2, "_")],
}  # fmt: skip
LAST = 39
"""No stamp is above this."""
END_US = NEVER
"""The last watermark: both streams have ended."""
ZIPPED_US = 5
"""A zipper join answers no later after its tuples."""

W = "WINDOW(RANGE 20 US SLIDE 10 US)"
LATER = "TIMESTAMP_SECONDS(1700000000 + lane * 40000000)"
"""Years apart."""
KNOWN = "segment IN (SELECT segment FROM known_segments WHERE person = 'ann')"
SLOW = f"(SELECT segment, AVG(speed) AS speed FROM traffic {W} GROUP BY segment HAVING AVG(speed) < 3)"

CASES: dict[str, str] = {
    **HOST_QUERIES,
    "interval join by its spelling": "SELECT a.sensor, a.lane, w.wind FROM traffic AS a LEFT JOIN weather AS w ON a.sensor = w.sensor "
    "AND STAMP(w) >= STAMP(a) - INTERVAL '4' MICROSECOND AND STAMP(w) < STAMP(a) + INTERVAL '3' MICROSECOND AND w.wind <= a.lane",
    "two levels further in": "SELECT a.sensor, a.lane FROM traffic AS a WHERE NOT EXISTS (SELECT * FROM weather AS w WINDOW(RANGE 8 US) "
    "WHERE w.wind = a.lane AND EXISTS (SELECT * FROM traffic AS c WINDOW(RANGE 6 US) WHERE c.segment = a.segment AND c.lane <> w.wind))",
    "an aggregate two levels further in": "SELECT a.segment FROM traffic AS a WINDOW(RANGE 3 US) WHERE a.lane <= (SELECT MAX(w.wind) FROM weather AS w "
    "WINDOW(RANGE 8 US) WHERE w.sensor = a.sensor AND w.wind NOT IN (SELECT c.lane FROM traffic AS c WHERE c.segment = a.segment))",
    "names of any script": f"SELECT o.名前, MAX(s.Größe) AS _x, COUNT(*) AS зараз FROM STRASSE AS s {W} JOIN _orte AS o ON o._SPUR = s._spur GROUP BY o.名前",
    # of Fjording the Stream
    "Q1": f"SELECT AVG(speed) AS speed FROM traffic {W} WHERE {KNOWN}",
    "Q1 of another user": f"SELECT AVG(speed) AS speed FROM traffic {W} WHERE {KNOWN.replace('ann', 'ben')}",
    "Q1 by segment": f"SELECT segment, AVG(speed) AS speed FROM traffic {W} WHERE {KNOWN} GROUP BY segment",
    "Q2": f"SELECT i.description, AVG(s.speed) AS speed FROM {SLOW} AS s, incidents AS i "
    f"WHERE s.segment = i.segment AND s.{KNOWN} GROUP BY i.description",
    "Q2 of another user": f"SELECT i.description, AVG(s.speed) AS speed FROM {SLOW} AS s, incidents AS i "
    f"WHERE s.segment = i.segment AND s.{KNOWN.replace('ann', 'ben')} GROUP BY i.description",
    "Q2 with the traffic itself": f"SELECT i.description, AVG(t.speed) AS speed FROM traffic AS t {W}, {SLOW} AS s, "
    "incidents AS i WHERE s.segment = t.segment AND i.segment = t.segment GROUP BY i.description",
    # chains
    "texts": "SELECT UPPER(sensor) AS s, sensor || '!' AS t, COALESCE(sensor, '?') AS u FROM traffic",
    "ends of texts": "SELECT LTRIM(sensor, 'ab') AS a, TRIM(TRAILING 's' FROM sensor) AS b, POSITION('a' IN sensor) AS c, "
    "STARTS_WITH(sensor, 'a') AS d, ENDS_WITH(sensor, 'b') AS e, REVERSE(sensor) AS f, COT(speed) AS g, TANH(speed) AS h FROM traffic",
    "parts of texts": "SELECT LEFT(sensor, 1) AS a, RIGHT(sensor, -1) AS b, SPLIT_PART(sensor, 'a', lane) AS c, "
    "REPLACE(sensor, 'b', sensor || '-') AS d, LPAD(sensor, lane + 1, '.:') AS e, RPAD(sensor, 3) AS f FROM traffic",
    "regular expressions": r"SELECT REGEXP_EXTRACT(sensor, '[a-c]') AS a, REGEXP_REPLACE(sensor, '(a|b)', '<\1>') AS b, "
    "sensor ~* 'A' AS c FROM traffic WHERE sensor ~ '^.$'",
    "documents": """SELECT JSON_VALUE(CONCAT('{"a": ', lane, ', "b": ["', sensor, '"]}'), '$.a' RETURNING INTEGER) AS a, """
    """CONCAT('[', lane, ', "', sensor, '"]') ->> 1 AS b, sensor ->> 'a' AS c, JSON_EXISTS(sensor, '$') AS d """
    """FROM traffic WHERE ('{"a": {"b": "' || sensor || '"}}') -> 'a' ->> 'b' = sensor""",
    "joined texts": "SELECT lane, STRING_AGG(sensor, ', ') AS a, STRING_AGG(DISTINCT sensor, '' ORDER BY sensor DESC) AS b, "
    "LISTAGG(sensor) FILTER (WHERE speed > 1) AS c FROM traffic WINDOW(RANGE 5 US SLIDE 5 US) GROUP BY lane",
    "values of subqueries": "SELECT sensor, speed - (SELECT AVG(speed) FROM traffic WINDOW(RANGE 3 US)) AS a, "
    "CASE WHEN lane > 1 THEN (SELECT MAX(u.lane) FROM traffic AS u WINDOW(RANGE 2 US) WHERE u.sensor = t.sensor) END AS b "
    "FROM traffic AS t WHERE speed < 2 * (SELECT MAX(speed) FROM traffic WINDOW(RANGE 2 US)) OR lane = 3",
    "values of subqueries of groups": "SELECT sensor, SUM(lane + (SELECT MAX(lane) FROM traffic WINDOW(ROWS 3))) AS s, "
    "(SELECT COUNT(*) FROM traffic WINDOW(RANGE 1 US SLIDE 1 US) WHERE lane = 1) AS n FROM traffic "
    "WINDOW(RANGE 4 US SLIDE 2 US) GROUP BY sensor HAVING MAX(lane) + 1 > (SELECT MIN(lane) FROM traffic)",
    "cases": "SELECT CASE WHEN speed > 2 THEN 'fast' WHEN speed IS NULL THEN 'unknown' ELSE 'slow' END AS c FROM traffic",
    "casts": "SELECT CAST(speed AS INTEGER) AS n, CAST(lane AS TEXT) AS t, CAST(sensor AS INTEGER) AS no FROM traffic",
    "angles": "SELECT SIN(speed) AS a, DEGREES(ATAN2(speed, lane)) AS b, ACOS(speed / 4) AS c, LOG10(lane - 2) AS d, TRUNC(-speed) AS e FROM traffic",
    "distances": f"SELECT segment, MIN(DISTANCE_METRES(speed, lane, 52.5, -segment)) AS nearest FROM traffic {W} "
    "WHERE DISTANCE_METRES(speed, lane, 2, 2) < 300000 GROUP BY segment",
    "stamps": "SELECT STAMP() AS at, speed FROM traffic",
    "stamps compared": "SELECT STAMP() AS at, sensor FROM traffic WINDOW(RANGE 5 US) WHERE STAMP() <> STAMP(traffic) OR speed > 2",
    "stamps of pairs": "SELECT STAMP(t) AS t, STAMP(w) AS w FROM traffic AS t WINDOW(RANGE 9 US), weather AS w WINDOW(RANGE 9 US) WHERE STAMP(w) < STAMP(t)",
    "stamps of partners": f"SELECT t.sensor, STAMP(t) AS t, STAMP(w) AS w FROM traffic AS t {W} LEFT JOIN weather AS w {W} ON t.sensor = w.sensor AND STAMP(w) >= STAMP(t)",
    "stamps in groups": f"SELECT STAMP() AS at, COUNT(*) AS n FROM traffic {W} GROUP BY STAMP()",
    "stamps in panes": f"SELECT sensor, MIN(STAMP()) AS a, MAX(STAMP()) AS z, COUNT(DISTINCT STAMP()) AS n, LAST(STAMP()) AS l FROM traffic {W} WHERE STAMP() IS NOT NULL GROUP BY sensor",
    "stamps of a subquery": f"SELECT COUNT(*) AS n, MAX(at) AS at FROM (SELECT STAMP() AS at, sensor FROM traffic WHERE lane > 1) AS t {W} GROUP BY sensor",
    "stamps around": "SELECT sensor FROM traffic AS t WINDOW(RANGE 9 US) WHERE EXISTS (SELECT * FROM weather AS w WINDOW(RANGE 9 US) WHERE STAMP(w) > STAMP(t))",
    "parts of times": f"SELECT STAMP() + INTERVAL '1' DAY * lane AS a, {LATER} AS b, EXTRACT(DOY FROM {LATER}) AS c, DATE_TRUNC('month', {LATER}) AS d, "
    f"EXTRACT(EPOCH FROM {LATER} - STAMP()) AS e, TO_CHAR({LATER}, 'Dy HH24:MI:SS') AS f, DATE_DIFF('year', STAMP(), {LATER}) AS g FROM traffic",
    "times in conditions": f"SELECT lane, STAMP() AS at FROM traffic WHERE {LATER} BETWEEN TIMESTAMP '2026-01-01' AND TIMESTAMP '2030-06-01' "
    f"AND HOUR({LATER}) <> 5 OR STAMP() - TIMESTAMP_MICROS(lane) < INTERVAL '20' US",
    "times of zones": f"SELECT {LATER} AT TIME ZONE 'Europe/Berlin' AS a, EXTRACT(HOUR FROM {LATER} AT TIME ZONE 'America/New_York') AS b, "
    f"DATE_TRUNC('day', {LATER} AT TIME ZONE 'Asia/Kolkata') AT TIME ZONE 'Asia/Kolkata' AS c FROM traffic",
    "groups by hours": f"SELECT DATE_TRUNC('year', {LATER}) AS y, EXTRACT(DOW FROM {LATER}) AS d, COUNT(*) AS n, MAX({LATER}) AS z FROM traffic {W} GROUP BY 1, 2",
    "the last ones by now": "SELECT sensor, COUNT(*) AS n, MAX(STAMP()) AS z FROM traffic WHERE STAMP() > NOW() - INTERVAL '12' US AND lane > 0 GROUP BY sensor",
    "pairs by now": "SELECT t.sensor, STAMP(w) AS w FROM traffic AS t, weather AS w WHERE STAMP(w) + INTERVAL '8' US >= NOW() AND t.sensor = w.sensor",
    "functions of users": "SELECT halved(speed) AS h, letters(sensor, lane) AS l, label(open, sensor) AS t, known(sensor) AS k, "
    "known_strictly(sensor) AS s, halved(3) AS c FROM traffic WHERE low(speed) IS NOT TRUE OR halved(lane) > 1",
    "functions of users in windows": f"SELECT letters(sensor, 0) AS n, MAX(halved(speed)) AS x, halved(SUM(lane)) AS y FROM traffic {W} "
    "GROUP BY n HAVING halved(COUNT(*)) > 0.5",
    # aggregates in panes
    "grouping sets": f"SELECT sensor, segment, COUNT(*) AS n, AVG(speed) AS x, GROUPING(sensor, segment) AS g FROM traffic {W} "
    "GROUP BY ROLLUP(sensor, segment) HAVING COUNT(*) > 1 OR GROUPING(segment) = 0",
    "keys of sets": f"SELECT sensor, lane % 2 AS odd FROM traffic {W} GROUP BY sensor, GROUPING SETS (odd, ())",
    # aggregates that are no panes
    "ranges of windows": "SELECT segment, COUNT(*) AS n FROM traffic WINDOW(RANGE MIN 4 US, MAX 12 US SLIDE 4 US) GROUP BY segment",
    # functions over tuples in order
    "order of groups": f"SELECT sensor, n, LAG(n) OVER (PARTITION BY sensor) AS before FROM Istream((SELECT sensor, COUNT(*) AS n FROM traffic {W} "
    "GROUP BY sensor)) AS c",
    # relations
    "aggregate by what was looked up": f"SELECT p.name, AVG(t.speed) AS speed FROM traffic AS t {W}, places AS p "
    "WHERE t.sensor = p.sensor GROUP BY p.name",
    # outer joins of streams
    "left join": "SELECT t.sensor, t.lane, w.wind FROM traffic AS t WINDOW(RANGE 9 US) LEFT JOIN weather AS w WINDOW(RANGE 6 US) "
    "ON t.sensor = w.sensor AND w.wind > 1",
    "right join": "SELECT t.lane, w.* FROM traffic AS t WINDOW(RANGE 5 US) RIGHT JOIN weather AS w WINDOW(RANGE 8 US) USING (sensor)",
    "full join": "SELECT * FROM traffic AS t WINDOW(RANGE 7 US) FULL JOIN weather AS w WINDOW(RANGE 5 US) USING (sensor)",
    "full join of ranges": "SELECT t.speed, w.gust FROM traffic AS t WINDOW(RANGE 6 US SLIDE 3 US) FULL JOIN weather AS w "
    "WINDOW(RANGE 6 US SLIDE 2 US) ON t.speed < w.gust WHERE t.speed > 1 OR t.speed IS NULL",
    "count of an outer join": "SELECT t.sensor, COUNT(w.wind) AS n, COUNT(*) AS m FROM traffic AS t WINDOW(ROWS 4) "
    "LEFT JOIN weather AS w WINDOW(RANGE 9 US) ON t.sensor = w.sensor GROUP BY t.sensor",
    "outer joins in a row": "SELECT p.name, t.lane, w.wind, u.lane AS other FROM places AS p RIGHT JOIN traffic AS t WINDOW(RANGE 6 US) "
    "ON p.sensor = t.sensor LEFT JOIN weather AS w WINDOW(RANGE 6 US) ON t.sensor = w.sensor FULL JOIN traffic AS u ON w.wind = u.lane",
    # tuples of devices that publish by their own rules
    "published and looked up": "SELECT d.n, p.name FROM doors AS d SAMPLE EVERY 3 US JOIN places AS p ON p.sensor = d.door",
    "published by door": f"SELECT door, COUNT(*) AS n, SUM(n) AS m FROM doors {W} GROUP BY door SAMPLE EVERY 4 US",
    "published and sampled": "SELECT d.n, t.lane FROM doors AS d SAMPLE EVERY 7 US WINDOW(RANGE 5 US), traffic AS t WINDOW(RANGE 2 US) WHERE d.door = t.sensor",
    "panes of a family": "SELECT segment, COUNT(*) AS n, SUM(lane) AS lanes FROM traffic WINDOW(RANGE 14 US SLIDE 6 US) GROUP BY segment",
    "panes of the same family": "SELECT MAX(speed) AS top, segment FROM traffic WINDOW(RANGE 8 US SLIDE 4 US) WHERE open GROUP BY segment",
    "wide panes of a family": "SELECT segment, COUNT(DISTINCT sensor) AS n FROM traffic WINDOW(RANGE 18 US SLIDE 6 US) GROUP BY segment",
    "aggregate of patterns": "SELECT segment, COUNT(*) AS n FROM traffic MATCH_RECOGNIZE (PARTITION BY segment ORDER BY STAMP() "
    "MEASURES SUM(A.lane) AS lanes PATTERN (A+ B??) WITHIN 8 US DEFINE A AS SUM(A.lane) < 6) AS m WINDOW(RANGE 12 US SLIDE 6 US) GROUP BY segment",
}

FAMILIES = {"panes of a family": 2, "panes of the same family": 2, "wide panes of a family": 6}
"""Cases whose windows are in a family of panes."""

SCHEMAS = {
    name: StreamSchema(name, tuple(Field(each, kind) for each, kind in columns.items()))
    for name, columns in STREAMS.items()
}
STATIC = {
    name: StaticRelation(name, f"{name}@1", tuple(Column(each, kind) for each, kind in columns.items()))
    for name, columns in RELATIONS.items()
}
CATALOG = Catalog.of([*SCHEMAS.values(), *STATIC.values()]).with_functions(FUNCTIONS)
_VALUES: Mapping[FieldType, tuple[Any, ...]] = {
    BOOLEAN: (True, False, None),
    INTEGER: (1, 2, 3, 1, 2, None, 4),
    REAL: (0.5, 1.0, 2.5, 2.5, None, 4.0),
    TEXT: ("a", "b", "c", "ab", "a", None),
}
Stamped = tuple[int, tuple[Any, ...]]


def _arriving() -> list[tuple[dict[str, list[Stamped]], int]]:
    """Micro-batches: tuples by stream in the order in which they come, and how far both streams have come then."""
    of_all, of_others = random.Random(20261122), random.Random(20261123)
    found: list[tuple[dict[str, list[Stamped]], int]] = []
    for low, high, ahead in ((0, 9, 6), (9, 21, 0), (21, 22, 9), (22, 31, 9)):
        batch: dict[str, list[Stamped]] = {}
        for name, columns in STREAMS.items():
            dice = of_all if name in ("traffic", "weather") else of_others
            stamps = [dice.randrange(low, high + ahead) for _ in range(10 if name == "traffic" else 7)]
            rows = [(at, tuple(dice.choice(_VALUES[kind]) for kind in columns.values())) for at in stamps]
            batch[name] = [*rows, rows[0]]  # the same tuple twice
        found.append((batch, high))
    stored = iter(stored_rows(_published([row for batch, _ in found for row in batch["doors"]])))
    for batch, _ in found:
        batch["doors"] = list(islice(stored, len(batch["doors"])))
    return [*found, ({name: [] for name in STREAMS}, END_US)]


def _published(rows: Sequence[Stamped]) -> list[Stamped]:
    """Return rows of which devices have published most: two by their own rules, one in a default period of 6 us."""
    dice, defaults = random.Random(20261128), {"m": 0, "n": 0, "o": 6}
    motes = [dice.choice(("m", "n", "o", "o", None)) for _ in rows]
    return [
        (at, row if mote is None else Published(row, mote, defaults[mote]))
        for (at, row), mote in zip(rows, motes, strict=True)
    ]


ARRIVING = _arriving()


def frame(stream: str, rows: Sequence[Stamped]) -> pl.DataFrame:
    """Return tuples as they are stored."""
    schema: dict[str, type[pl.DataType]] = {START: pl.Int64, DEFAULT_RATE_COLUMN: pl.Boolean}
    schema |= {name: POLARS_TYPES[kind] for name, kind in STREAMS[stream].items()}
    found = pl.DataFrame([(at, True, *row) for at, row in rows], schema=schema, orient="row")
    return found.with_columns(columns_beside(rows))


def relation_frame(name: str) -> pl.DataFrame:
    """Return a relation's rows."""
    schema = {column: POLARS_TYPES[kind] for column, kind in RELATIONS[name].items()}
    return pl.DataFrame(ROWS[name], schema=schema, orient="row")


def planned() -> tuple[PlannedQuery, ...]:
    """Return all cases as one plan holds them; their functions may be called from now on."""
    CALLS.use(RULES)
    plans = {name: rewrite(translate(sql, CATALOG).node).node for name, sql in CASES.items()}
    plans |= {name: with_keeping(plan, "lazy") for name, plan in plans.items() if name.startswith("lazily")}
    return tuple(
        PlannedQuery(name.replace(" ", "-"), 1, with_family(plan, FAMILIES[name]) if name in FAMILIES else plan)
        for name, plan in plans.items()
    )


def difference(name: str, rows: Sequence[tuple[Any, ...]]) -> str | None:
    """Return in what way rows (start, end, values) are not the answer of a case; None if they are."""
    meaning = _meaning(name)
    near = in_the_first_hour(rows, translate(CASES[name], CATALOG).node)
    return difference_of_rows(near, meaning.snapshots[0], meaning.granule)


@cache
def _meaning(name: str) -> Meaning:
    node = translate(CASES[name], CATALOG).node
    streams = {each: [row for batch, _ in ARRIVING for row in batch[each]] for each in STREAMS}
    meaning = evaluate(node, [streams], horizon_of(node, LAST + ZIPPED_US), ROWS)
    assert not meaning.ambiguous
    assert any(meaning.snapshots[0]), f"{name} answers nothing"
    return meaning
