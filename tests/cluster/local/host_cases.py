"""One table of cases for every host: queries, and streams with NULLs, equal stamps, and tuples that come out of order.

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
from cluster.plan.extent_keeping import with_keeping
from cluster.plan.pane_families import with_family
from cluster.plan.rewrite import rewrite
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.functions.declared import FUNCTIONS, RULES
from tests.cluster.oracle.comparison import difference_of_rows, in_the_first_hour
from tests.cluster.oracle.definition import horizon_of
from tests.cluster.oracle.related_definition import RelatedMeaning, evaluate_with_relations
from tests.cluster.published_tuples import Published, columns_beside, stored_rows

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
    "everything": "SELECT * FROM traffic",
    "expressions": "SELECT sensor, speed * 2 + lane AS x, speed > 2 AS fast, lane % 2 AS odd FROM traffic",
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
    "filter": "SELECT sensor, speed FROM traffic WHERE speed < 2",
    "filter by text": "SELECT sensor, speed FROM traffic WHERE sensor = 'a'",
    "filter by another text": "SELECT sensor, speed FROM traffic WHERE sensor = 'b'",
    "filter of NULL": "SELECT sensor FROM traffic WHERE speed IS NULL AND sensor IS NOT NULL",
    "filter of three values": "SELECT sensor FROM traffic WHERE NOT (speed > 1 AND open)",
    "filter by list": "SELECT sensor, lane FROM traffic WHERE lane IN (1, 3) OR open",
    "filter by range": "SELECT speed FROM traffic WHERE speed BETWEEN 1 AND 2.5",
    "filter by pattern": "SELECT sensor FROM traffic WHERE sensor LIKE 'a%'",
    "division by nothing": "SELECT lane / (lane - 1) AS x, speed / 0 AS y FROM traffic",
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
    "constants": "SELECT 1 AS one, 'x' AS text FROM weather",
    "sampled": "SELECT sensor, speed FROM traffic SAMPLE EVERY 5 US",
    "subquery": "SELECT s, x + 1 AS y FROM (SELECT sensor AS s, lane * 2 AS x FROM traffic WHERE lane > 0) AS t WHERE x < 5",
    # windows
    "window": "SELECT sensor, speed FROM traffic WINDOW(RANGE 7 US)",
    "tumbling": "SELECT sensor FROM traffic WINDOW(RANGE 10 US SLIDE 10 US)",
    "sliding": "SELECT lane FROM traffic WINDOW(RANGE 9 US SLIDE 4 US) WHERE open",
    "for ever": "SELECT sensor, lane FROM traffic WINDOW(RANGE UNBOUNDED) WHERE speed > 3",
    "last rows": "SELECT sensor, speed FROM traffic WINDOW(ROWS 3)",
    "last rows in steps": "SELECT sensor, lane FROM traffic WINDOW(ROWS 4 SLIDE 2)",
    "last rows of each": "SELECT sensor, lane FROM traffic WINDOW(PARTITION BY sensor ROWS 2)",
    "last row of two keys": "SELECT sensor, segment, speed FROM traffic WINDOW(PARTITION BY sensor, segment ROWS 1)",
    "sessions": "SELECT sensor, lane FROM traffic WINDOW(SESSION GAP 3 US PARTITION BY sensor)",
    "sessions counted": "SELECT sensor, COUNT(*) AS n, AVG(speed) AS x FROM traffic "
    "WINDOW(PARTITION BY sensor SESSION GAP 4 US MAX 12 US) GROUP BY sensor",
    "sessions of all": "SELECT COUNT(*) AS n, MAX(lane) AS m FROM traffic WINDOW(SESSION GAP 1 US MAX 9 US)",
    "sessions counted together": "SELECT COUNT(*) AS n FROM traffic WINDOW(SESSION GAP 2 US PARTITION BY sensor)",
    "sessions counted by others": "SELECT segment AS s, lane AS k, COUNT(*) AS n FROM traffic "
    "WINDOW(SESSION GAP 5 US PARTITION BY lane, sensor) GROUP BY lane, segment",
    "sessions counted by more": "SELECT s, l + 1 AS l, COUNT(*) AS n FROM (SELECT lane AS l, sensor AS s, open FROM traffic "
    "WINDOW(SESSION GAP 6 US PARTITION BY sensor)) AS t GROUP BY l, s",
    "sessions while they are open": "SELECT sensor, COUNT(*) AS n FROM traffic "
    "WINDOW(SESSION GAP 5 US MAX 20 US EARLY PARTITION BY sensor) GROUP BY sensor HAVING COUNT(*) > 1",
    "sessions with bounds": "SELECT sensor, WINDOW_START() AS since, WINDOW_END() AS until, COUNT(*) AS n FROM traffic "
    "WINDOW(SESSION GAP 4 US MAX 12 US PARTITION BY sensor) GROUP BY sensor",
    "sessions with bounds while they are open": "SELECT sensor, WINDOW_END() AS until, COUNT(*) FILTER (WHERE open) AS n "
    "FROM traffic WINDOW(SESSION GAP 5 US EARLY PARTITION BY sensor) GROUP BY sensor",
    "sessions of open lanes": "SELECT lane, COUNT(*) AS n FROM (SELECT lane FROM traffic WHERE open) AS t "
    "WINDOW(SESSION GAP 6 US PARTITION BY lane) GROUP BY lane",
    "until the next": "SELECT sensor, lane, speed FROM traffic VALID UNTIL NEXT BY sensor MAX 5 US",
    "what held no longer": "SELECT sensor, lane FROM DSTREAM(traffic VALID UNTIL NEXT BY sensor MAX 5 US)",
    "until the next of two keys": "SELECT sensor, lane, COUNT(*) AS n FROM traffic VALID UNTIL NEXT BY (sensor, lane) WHERE open GROUP BY sensor, lane",
    "until the next of all": "SELECT sensor, lane FROM traffic VALID UNTIL NEXT WHERE sensor IS NOT NULL",
    "intervals": "SELECT t.sensor, VALID(t) AS held, EXTRACT(EPOCH FROM DURATION(VALID(t))) AS d FROM traffic VALID UNTIL NEXT BY sensor MAX 6 US AS t WHERE t.open",
    "intervals that overlap": "SELECT t.sensor, INTERSECT(VALID(t), VALID(w)) AS both, ALLEN(VALID(t), VALID(w)) AS r "
    "FROM traffic VALID UNTIL NEXT BY sensor MAX 9 US AS t, weather VALID UNTIL NEXT BY sensor MAX 20 US AS w "
    "WHERE t.sensor = w.sensor AND VALID(t) OVERLAPS VALID(w) AND DURATION(INTERSECT(VALID(t), VALID(w))) > INTERVAL '0.000001' SECOND",
    "intervals before others": "SELECT t.sensor, EXTRACT(EPOCH FROM MAX(DURATION(VALID(t)))) AS d, COUNT(*) AS n "
    "FROM traffic VALID UNTIL NEXT BY sensor MAX 4 US WINDOW(RANGE 12 US SLIDE 3 US) AS t, "
    "weather VALID UNTIL NEXT BY sensor MAX 8 US WINDOW(RANGE 12 US) AS w "
    "WHERE t.sensor = w.sensor AND VALID(t) BEFORE VALID(w) GROUP BY t.sensor",
    "coalesced": "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(lane BY sensor) AS s",
    "coalesced by a tolerance": "SELECT sensor, speed, open FROM traffic WINDOW(RANGE 9 US) COALESCE(speed TOLERANCE 3, open BY sensor) WHERE speed ~= 5 TOLERANCE 4",
    "coalesced while something holds": "SELECT sensor, EXTRACT(EPOCH FROM MAX(DURATION(VALID(s)))) AS d FROM traffic "
    "WINDOW(RANGE 20 US SLIDE 5 US) COALESCE(lane BY sensor WHILE lane >= PREV(lane)) AS s GROUP BY sensor",
    "coalesced with fewer columns": "SELECT lane FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(lane BY sensor) AS s WHERE DURATION(VALID(s)) > INTERVAL '0.000002' SECOND",
    "lazily coalesced": "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(lane BY sensor) AS s",
    "lazily coalesced by others": "SELECT sensor, open, VALID(s) AS held FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(open, speed TOLERANCE 2 BY sensor) AS s",
    "lazily coalesced of some": "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(lane BY sensor) AS s WHERE sensor <> 'a'",
    "coalesced in a window by count": "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(PARTITION BY sensor ROWS 4 SLIDE 2) COALESCE(lane BY sensor) AS s",
    "coalesced of the last": "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(ROWS 9) COALESCE(lane BY sensor) AS s",
    "coalesced of the last with fewer columns": "SELECT lane FROM traffic WINDOW(ROWS 9) COALESCE(lane BY sensor) AS s WHERE DURATION(VALID(s)) > INTERVAL '0.000002' SECOND",
    "coalesced of the last of one": "SELECT EXTRACT(EPOCH FROM DURATION(VALID(s))) AS d FROM traffic WINDOW(ROWS 9) COALESCE(lane BY sensor) AS s WHERE sensor = 'a' AND lane > 1",
    "coalesced of the last of some": "SELECT sensor, lane, VALID(s) AS held FROM (SELECT * FROM traffic WHERE open) WINDOW(ROWS 9) COALESCE(lane BY sensor) AS s",
    "coalesced of the last of each": "SELECT sensor, open, VALID(s) AS held FROM traffic WINDOW(PARTITION BY sensor ROWS 4) COALESCE(open BY sensor) AS s",
    "coalesced of the last of each with fewer columns": "SELECT open FROM traffic WINDOW(PARTITION BY sensor ROWS 4) COALESCE(open BY sensor) AS s WHERE NOT open",
    "coalesced and joined": "SELECT a.sensor, b.lane, INTERSECT(VALID(a), VALID(b)) AS both FROM traffic WINDOW(RANGE 8 US SLIDE 2 US) COALESCE(open BY sensor) AS a, "
    "traffic WINDOW(RESET EVERY 16 US) COALESCE(lane BY sensor WHILE lane <= PREV(lane)) AS b WHERE a.sensor = b.sensor AND a.open AND VALID(a) OVERLAPS VALID(b)",
    "coalesced and fewer kept": "SELECT sensor, lane, quality, VALID(s) AS held FROM traffic WINDOW(RANGE 24 US SLIDE 3 US) COALESCE(lane BY sensor) KEEP 3 TUPLES AS s",
    "coalesced and fewer kept of a count": "SELECT open, MIN(quality) AS q, COUNT(*) AS n FROM traffic WINDOW(ROWS 12) COALESCE(open) KEEP 4 TUPLES GROUP BY open",
    "moved": "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 12 US SLIDE 6 US OFFSET 2 US) GROUP BY sensor",
    "reset": "SELECT sensor, SUM(lane) AS n FROM traffic WINDOW(RESET EVERY 16 US OFFSET 5 US) GROUP BY sensor",
    "reset and shown in steps": "SELECT COUNT(*) AS n FROM traffic WINDOW(RESET EVERY 16 US SLIDE 3 US)",
    "days of a place": "SELECT sensor, COUNT(*) AS n FROM traffic "
    "WINDOW(RANGE 1 DAY SLIDE 1 DAY AT TIME ZONE 'Europe/Berlin' OFFSET 3600000020 US) GROUP BY sensor",
    "ends of windows in panes": f"SELECT sensor, WINDOW_END() AS e, COUNT(*) AS n FROM traffic {W} GROUP BY sensor",
    "bounds of windows": f"SELECT WINDOW_START() AS s, WINDOW_END() AS e, lane, AVG(speed) AS x FROM traffic {W} "
    "GROUP BY WINDOW_START(), lane HAVING WINDOW_END() > TIMESTAMP_MICROS(10) AND COUNT(*) > 1",
    "bounds of windows without panes": "SELECT WINDOW_START() AS s, MAX(n) AS n FROM (SELECT sensor, COUNT(*) AS n FROM traffic "
    f"{W} GROUP BY sensor) AS t WINDOW(RANGE 9 US SLIDE 3 US)",
    "bounds of moved windows": "SELECT WINDOW_START() AS s, COUNT(*) AS n FROM traffic WINDOW(RANGE 7 US SLIDE 5 US OFFSET 2 US) "
    "GROUP BY 1",
    "bounds of days": "SELECT sensor, WINDOW_START() AS s, WINDOW_END() AS e, COUNT(*) AS n FROM traffic "
    "WINDOW(RANGE 1 DAY SLIDE 1 DAY AT TIME ZONE 'Europe/Berlin' OFFSET 3600000020 US) GROUP BY sensor",
    "a month reset": "SELECT COUNT(*) AS n FROM traffic WINDOW(RESET EVERY 1 MONTH OFFSET 25 US) WHERE lane > 0",
    # aggregates in panes
    "count": f"SELECT COUNT(*) AS n FROM traffic {W}",
    "count by sensor": f"SELECT sensor, COUNT(*) AS n FROM traffic {W} GROUP BY sensor",
    "count of values": f"SELECT COUNT(speed) AS n, COUNT(DISTINCT speed) AS d FROM traffic {W}",
    "sum": f"SELECT sensor, SUM(lane) AS n, SUM(speed) AS x FROM traffic {W} GROUP BY sensor",
    "average": f"SELECT sensor, AVG(speed) AS x FROM traffic {W} GROUP BY sensor",
    "average in shorter steps": "SELECT sensor, AVG(speed) AS x FROM traffic WINDOW(RANGE 20 US SLIDE 5 US) GROUP BY sensor",
    "average of longer time": "SELECT sensor, AVG(speed) AS x FROM traffic WINDOW(RANGE 30 US SLIDE 10 US) GROUP BY sensor",
    "average of some": f"SELECT sensor, AVG(speed) AS x FROM traffic {W} WHERE lane > 1 GROUP BY sensor",
    "extremes": f"SELECT MIN(speed) AS least, MAX(speed) AS most, MAX(sensor) AS last FROM traffic {W}",
    "spread": f"SELECT sensor, STDDEV(speed) AS s, VARIANCE(lane) AS v FROM traffic {W} GROUP BY sensor",
    "median": f"SELECT segment, MEDIAN(speed) AS m FROM traffic {W} GROUP BY segment",
    "grouping sets": f"SELECT sensor, segment, COUNT(*) AS n, AVG(speed) AS x, GROUPING(sensor, segment) AS g FROM traffic {W} "
    "GROUP BY ROLLUP(sensor, segment) HAVING COUNT(*) > 1 OR GROUPING(segment) = 0",
    "keys of sets": f"SELECT sensor, lane % 2 AS odd FROM traffic {W} GROUP BY sensor, GROUPING SETS (odd, ())",
    "values at extremes": f"SELECT lane, ARG_MAX(sensor, speed) AS fastest, MIN_BY(speed, sensor) AS s FROM traffic {W} "
    "GROUP BY lane",
    "mode and percentiles": f"SELECT segment, MODE(lane) AS m, PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY sensor) AS d, "
    f"PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY speed) FILTER (WHERE open) AS c FROM traffic {W} GROUP BY segment",
    "spread of all": f"SELECT sensor, STDDEV_POP(speed) AS s, VAR_POP(lane) AS v FROM traffic {W} GROUP BY sensor",
    "filters": f"SELECT sensor, COUNT(*) FILTER (WHERE lane > 1) AS n, SUM(speed) FILTER (WHERE open) AS x FROM traffic {W} "
    "GROUP BY 1",
    "all and any": f"SELECT lane, BOOL_AND(open) AS a, BOOL_OR(speed > 2) AS o FROM traffic {W} GROUP BY lane",
    "first and last": f"SELECT lane, FIRST(speed) AS f, LAST(speed) AS l FROM traffic {W} GROUP BY lane",
    "keys that are expressions": f"SELECT lane % 2 = 0 AS even, COUNT(*) AS n FROM traffic {W} GROUP BY even",
    "two keys": f"SELECT sensor, open, COUNT(*) AS n FROM traffic {W} GROUP BY sensor, open",
    "having": f"SELECT sensor, COUNT(*) AS n FROM traffic {W} GROUP BY sensor HAVING COUNT(*) > 2",
    "having more": f"SELECT sensor, COUNT(*) AS n FROM traffic {W} GROUP BY sensor HAVING COUNT(*) > 3",
    "having an average": f"SELECT sensor FROM traffic {W} GROUP BY sensor HAVING AVG(speed) > 1.5 AND MIN(lane) = 1",
    "aggregates of expressions": f"SELECT SUM(speed * lane) AS x, COUNT(DISTINCT sensor) AS n FROM traffic {W} WHERE open",
    "weather by sensor": f"SELECT sensor, MAX(gust) AS gust, AVG(wind) AS wind FROM weather {W} GROUP BY sensor",
    # aggregates that are no panes
    "aggregate at every instant": "SELECT COUNT(*) AS n, MAX(speed) AS x FROM traffic",
    "aggregate by sensor at every instant": "SELECT sensor, SUM(lane) AS n FROM traffic GROUP BY sensor",
    "aggregate of a window": "SELECT sensor, AVG(speed) AS x FROM traffic WINDOW(RANGE 8 US) GROUP BY sensor",
    "aggregate of last rows": "SELECT AVG(speed) AS x FROM traffic WINDOW(ROWS 5)",
    "aggregate of last rows of each": "SELECT sensor, MAX(lane) AS x FROM traffic WINDOW(PARTITION BY sensor ROWS 3) "
    "GROUP BY sensor",
    "aggregate of aggregates": f"SELECT MAX(n) AS most FROM (SELECT sensor, COUNT(*) AS n FROM traffic {W} GROUP BY sensor) AS c",
    "ranges of windows": "SELECT segment, COUNT(*) AS n FROM traffic WINDOW(RANGE MIN 4 US, MAX 12 US SLIDE 4 US) GROUP BY segment",
    "ranges of granularities": "SELECT MAX(lane) AS m FROM traffic WINDOW(RANGE MIN 3 US, MAX 9 US) GRANULARITY(COARSEST 6 US, FINEST 2 US)",
    "granularity": "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 12 US) GRANULARITY(4 US)",
    # functions over tuples in order
    "the value before": "SELECT sensor, speed, LAG(speed) OVER (PARTITION BY sensor ORDER BY STAMP()) AS before FROM traffic",
    "the value before of some": "SELECT sensor, lane, LAG(lane, 2, -1) OVER (PARTITION BY sensor) AS before FROM traffic WHERE lane > 1",
    "the value before of all": "SELECT speed - LAG(speed) OVER () AS rise FROM traffic",
    "the value before if near": "SELECT sensor, LAG(open) OVER (PARTITION BY sensor) WITHIN 4 US AS before FROM traffic",
    "the value behind": "SELECT sensor, lane, LEAD(lane) OVER (PARTITION BY sensor, segment) WITHIN 5 US AS behind FROM traffic",
    "changes": "SELECT sensor, lane FROM traffic QUALIFY CHANGED(lane) OVER (PARTITION BY sensor)",
    "changes of a condition": "SELECT sensor, high FROM (SELECT sensor, HYSTERESIS(speed ABOVE 2 BELOW 0.5) OVER (PARTITION BY sensor) "
    "AS high FROM traffic) AS t QUALIFY high AND CHANGED(high) OVER (PARTITION BY sensor)",
    "running sums": "SELECT sensor, SUM(lane) OVER (PARTITION BY sensor ORDER BY STAMP()) AS n, COUNT(*) OVER (PARTITION BY sensor "
    "ROWS 2 PRECEDING) AS few, AVG(speed) OVER (PARTITION BY sensor RANGE BETWEEN 6 US PRECEDING AND CURRENT ROW) AS x FROM traffic",
    "first and last of frames": "SELECT segment, FIRST_VALUE(speed IGNORE NULLS) OVER (PARTITION BY segment ORDER BY STAMP()) AS f, "
    "LAST_VALUE(lane) IGNORE NULLS OVER (PARTITION BY segment ROWS UNBOUNDED PRECEDING) AS l, "
    "MAX(sensor) OVER (PARTITION BY segment ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS m FROM traffic",
    "frames that end before": "SELECT sensor, SUM(lane) OVER (PARTITION BY sensor ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS few, "
    "COUNT(*) OVER (PARTITION BY sensor RANGE BETWEEN 9 US PRECEDING AND 3 US PRECEDING) AS n, "
    "AVG(speed) OVER (PARTITION BY sensor RANGE BETWEEN UNBOUNDED PRECEDING AND 4 US PRECEDING) AS old, "
    "LAST_VALUE(lane IGNORE NULLS) OVER (PARTITION BY sensor ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS l FROM traffic",
    "sums of changes": f"SELECT sensor, COUNT(*) AS n FROM (SELECT sensor FROM traffic QUALIFY CHANGED(open) OVER (PARTITION BY sensor)) AS c {W} "
    "GROUP BY sensor",
    "order of groups": f"SELECT sensor, n, LAG(n) OVER (PARTITION BY sensor) AS before FROM Istream((SELECT sensor, COUNT(*) AS n FROM traffic {W} "
    "GROUP BY sensor)) AS c",
    # DISTINCT and set operations
    "distinct": "SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 10 US)",
    "distinct at every instant": "SELECT DISTINCT lane, open FROM traffic",
    "distinct over groups": f"SELECT DISTINCT COUNT(*) AS n FROM traffic {W} GROUP BY sensor",
    "distinct over averages": f"SELECT DISTINCT AVG(speed) > 2 AS fast FROM traffic {W} GROUP BY sensor, lane",
    "distinct over a join": "SELECT DISTINCT t.sensor FROM traffic WINDOW(RANGE 9 US) AS t, weather WINDOW(RANGE 9 US) AS w "
    "WHERE t.sensor = w.sensor",
    "union all": "SELECT sensor FROM traffic WINDOW(RANGE 5 US) UNION ALL SELECT sensor FROM weather WINDOW(RANGE 6 US)",
    "union": "SELECT sensor FROM traffic WINDOW(RANGE 5 US) UNION SELECT sensor FROM weather WINDOW(RANGE 6 US)",
    "except": "SELECT sensor FROM traffic WINDOW(RANGE 9 US) EXCEPT SELECT sensor FROM weather WINDOW(RANGE 4 US)",
    "except all": "SELECT sensor FROM traffic WINDOW(RANGE 9 US) EXCEPT ALL SELECT sensor FROM weather WINDOW(RANGE 9 US)",
    "intersect": "SELECT sensor FROM traffic WINDOW(RANGE 9 US) INTERSECT SELECT sensor FROM weather WINDOW(RANGE 9 US)",
    "intersect all": "SELECT sensor FROM traffic WINDOW(RANGE 9 US) INTERSECT ALL SELECT sensor FROM weather WINDOW(RANGE 9 US)",
    # joins
    "join": "SELECT t.sensor, t.speed, w.wind FROM traffic WINDOW(RANGE 8 US) AS t, weather WINDOW(RANGE 8 US) AS w "
    "WHERE t.sensor = w.sensor",
    "join of some": "SELECT t.sensor, t.speed, w.wind FROM traffic WINDOW(RANGE 8 US) AS t, weather WINDOW(RANGE 8 US) AS w "
    "WHERE t.sensor = w.sensor AND t.lane = 1",
    "join at equal instants": "SELECT t.sensor, w.sensor AS other FROM traffic AS t, weather AS w WHERE t.lane > w.wind",
    "join with itself": "SELECT a.lane, b.lane AS other FROM traffic WINDOW(RANGE 4 US) AS a, traffic WINDOW(RANGE 4 US) AS b "
    "WHERE a.sensor = b.sensor AND a.lane < b.lane",
    "join without equality": "SELECT t.speed, w.gust FROM traffic WINDOW(RANGE 5 US) AS t, weather WINDOW(RANGE 5 US) AS w "
    "WHERE t.speed > w.gust",
    "join of three": "SELECT a.sensor, b.wind, c.lane FROM traffic WINDOW(RANGE 3 US) AS a, weather WINDOW(RANGE 6 US) AS b, "
    "traffic WINDOW(RANGE 4 US) AS c WHERE a.sensor = b.sensor AND b.sensor = c.sensor AND a.open",
    "join of aggregates": f"SELECT a.sensor, a.n, b.wind FROM (SELECT sensor, COUNT(*) AS n FROM traffic {W} GROUP BY sensor) AS a, "
    f"(SELECT sensor, MAX(wind) AS wind FROM weather {W} GROUP BY sensor) AS b WHERE a.sensor = b.sensor",
    "aggregate of a join": "SELECT t.sensor, COUNT(*) AS n, AVG(w.gust) AS x FROM traffic WINDOW(RANGE 6 US) AS t, "
    "weather WINDOW(RANGE 6 US) AS w WHERE t.sensor = w.sensor GROUP BY t.sensor",
    "exists": "SELECT sensor, lane FROM traffic WINDOW(RANGE 6 US) AS t WHERE EXISTS "
    "(SELECT 1 FROM weather WINDOW(RANGE 6 US) AS w WHERE w.sensor = t.sensor AND w.wind > 1)",
    "not exists": "SELECT sensor, lane FROM traffic WINDOW(RANGE 6 US) AS t WHERE NOT EXISTS "
    "(SELECT 1 FROM weather WINDOW(RANGE 6 US) AS w WHERE w.sensor = t.sensor)",
    "in a stream": "SELECT speed FROM traffic WHERE sensor IN (SELECT sensor FROM weather WINDOW(RANGE 6 US))",
    "not in a stream": "SELECT speed FROM traffic WHERE lane NOT IN (SELECT wind FROM weather WINDOW(RANGE 6 US) WHERE wind > 1)",
    # relations
    "lookup": "SELECT t.sensor, t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor",
    "lookup in a window": "SELECT t.sensor, p.name FROM traffic WINDOW(RANGE 6 US) AS t, places AS p WHERE t.sensor = p.sensor",
    "lookup of some": "SELECT t.sensor, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor AND p.closed",
    "lookup in two": "SELECT t.sensor, p.name, l.fastest FROM traffic AS t, places AS p, limits AS l "
    "WHERE t.sensor = p.sensor AND p.segment = l.segment",
    "lookup without equality": "SELECT t.speed, l.fastest FROM traffic AS t, limits AS l WHERE t.speed > l.fastest",
    "lookup with more conditions": "SELECT t.segment, l.fastest FROM traffic AS t, limits AS l "
    "WHERE t.segment = l.segment AND t.speed > l.fastest",
    "lookup by what is computed": "SELECT t.lane, l.fastest FROM traffic AS t, limits AS l WHERE t.lane % 2 + 1 = l.segment",
    "left lookup by what is computed": "SELECT t.lane, l.fastest FROM traffic AS t LEFT JOIN limits AS l "
    "ON t.speed * 2 = l.segment AND t.lane < l.fastest",
    "not in a relation by what is computed": "SELECT sensor, lane FROM traffic AS t WHERE NOT EXISTS "
    "(SELECT 1 FROM places AS p WHERE UPPER(p.name) = UPPER(t.sensor) OR p.name = t.sensor || 'orth')",
    "join by what is computed": "SELECT t.lane, w.wind FROM traffic AS t WINDOW(RANGE 9 US), weather AS w WINDOW(RANGE 6 US) "
    "WHERE t.lane * 2 = w.wind + 1",
    "exists by what is computed": "SELECT sensor, lane FROM traffic AS t WINDOW(RANGE 5 US) WHERE EXISTS "
    "(SELECT 1 FROM weather AS w WINDOW(RANGE 6 US) WHERE w.wind % 3 = t.lane)",
    "full join by what is computed": "SELECT t.lane, w.wind FROM traffic AS t WINDOW(RANGE 4 US) FULL JOIN weather AS w "
    "WINDOW(RANGE 5 US) ON t.lane / 2 = w.wind / 2 AND t.speed < w.gust",
    "left lookup": "SELECT t.sensor, t.lane, p.name FROM traffic AS t LEFT JOIN places AS p ON t.sensor = p.sensor",
    "left lookup with a condition": "SELECT t.sensor, p.name FROM traffic AS t LEFT JOIN places AS p "
    "ON t.sensor = p.sensor AND p.closed",
    "left lookup of nothing": "SELECT t.lane FROM traffic AS t LEFT JOIN limits AS l ON t.segment = l.segment WHERE l.segment IS NULL",
    "in a relation": "SELECT speed FROM traffic WHERE segment IN (SELECT segment FROM limits WHERE segment IS NOT NULL)",
    "not in a relation": "SELECT speed, segment FROM traffic WHERE segment NOT IN (SELECT segment FROM incidents WHERE segment > 1)",
    "exists in a relation": "SELECT sensor FROM traffic AS t WHERE EXISTS (SELECT 1 FROM limits AS l "
    "WHERE l.segment = t.segment AND l.fastest > t.speed)",
    "not exists in a relation": "SELECT sensor, segment FROM traffic AS t WHERE NOT EXISTS "
    "(SELECT 1 FROM incidents AS i WHERE i.segment = t.segment)",
    "aggregate by what was looked up": f"SELECT p.name, AVG(t.speed) AS speed FROM traffic AS t {W}, places AS p "
    "WHERE t.sensor = p.sensor GROUP BY p.name",
    "lookup of an aggregate": f"SELECT s.segment, s.n, l.fastest FROM (SELECT segment, COUNT(*) AS n FROM traffic {W} "
    "GROUP BY segment) AS s, limits AS l WHERE s.segment = l.segment",
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
    # changes, and zipper joins
    # what comes first
    "first groups": f"SELECT segment, MAX(speed) AS top FROM traffic {W} GROUP BY segment ORDER BY top DESC, segment LIMIT 2",
    "first of a set": "(SELECT sensor, speed FROM traffic WINDOW(RANGE 7 US) UNION SELECT sensor, gust FROM weather WINDOW(RANGE 5 US)) "
    "ORDER BY speed DESC NULLS FIRST, sensor FETCH FIRST 2 ROWS ONLY",
    "second on": "SELECT lane, open FROM traffic WINDOW(RANGE 9 US) ORDER BY speed, lane OFFSET 1",
    "first of each lane": "SELECT lane, speed FROM (SELECT lane, speed, ROW_NUMBER() OVER (PARTITION BY lane ORDER BY speed DESC) AS n "
    "FROM traffic WINDOW(RANGE 12 US)) AS t WHERE n <= 2",
    "records": "SELECT sensor, speed FROM traffic WINDOW(RANGE UNBOUNDED) QUALIFY ROW_NUMBER() OVER (PARTITION BY sensor ORDER BY speed) = 1",
    "ranks": "SELECT sensor, lane, RANK() OVER (ORDER BY lane) AS r, DENSE_RANK() OVER (ORDER BY lane DESC) AS d FROM traffic WINDOW(ROWS 4)",
    "maximum of the first": "SELECT MAX(speed) AS m, COUNT(*) AS n FROM (SELECT speed FROM traffic WINDOW(RANGE 11 US) ORDER BY speed LIMIT 3) AS t",
    "first in a relation": "SELECT t.sensor, p.name FROM traffic AS t, (SELECT segment, name FROM places ORDER BY name, segment LIMIT 3) AS p "
    "WHERE t.segment = p.segment",
    "ranks in a relation": "SELECT t.sensor FROM traffic AS t WHERE t.segment IN (SELECT segment FROM (SELECT segment, ROW_NUMBER() OVER "
    "(PARTITION BY closed ORDER BY name) AS n FROM places) AS p WHERE n = 1)",
    "above the first": "SELECT sensor FROM traffic WHERE speed > (SELECT gust FROM weather WINDOW(RANGE 9 US) ORDER BY gust DESC LIMIT 1)",
    "insertions": "SELECT sensor FROM ISTREAM((SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 6 US))) AS i",
    "deletions": "SELECT sensor FROM DSTREAM((SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 6 US))) AS d",
    "zip": "SELECT t.sensor, t.speed, w.wind, apart_us FROM traffic AS t ZIP JOIN weather AS w WITHIN 2 US ON t.sensor = w.sensor",
    "zip at equal stamps": "SELECT t.lane, w.wind FROM traffic AS t ZIP JOIN weather AS w ON t.sensor = w.sensor",
    "left zip": "SELECT t.sensor, t.lane, w.gust, apart_us FROM traffic AS t LEFT ZIP JOIN weather AS w "
    "WITHIN 0 SECONDS TO 4 US ON t.sensor = w.sensor",
    "full zip": "SELECT t.sensor, t.lane, w.sensor AS other, w.wind FROM traffic AS t FULL ZIP JOIN weather AS w "
    "WITHIN 3 US ON t.sensor = w.sensor",
    # joins by stamps
    "asof": "SELECT t.sensor, t.speed, w.wind FROM traffic AS t ASOF JOIN weather AS w ON t.sensor = w.sensor",
    "asof within": "SELECT t.sensor, t.lane, w.wind, w.gust FROM traffic AS t ASOF LEFT JOIN weather AS w WITHIN 4 US "
    "ON t.sensor = w.sensor",
    "asof before": "SELECT t.sensor, t.lane, w.wind FROM traffic AS t ASOF LEFT JOIN weather AS w "
    "MATCH_CONDITION (STAMP(t) > STAMP(w)) ON t.sensor = w.sensor WHERE t.lane > 1",
    "asof without keys": "SELECT t.sensor, w.wind FROM traffic AS t ASOF JOIN (SELECT wind FROM weather WHERE wind > 1) AS w",
    "near": "SELECT t.sensor, t.lane, w.wind FROM traffic AS t JOIN weather AS w WITHIN 2 US ON t.sensor = w.sensor",
    "near of some": "SELECT t.lane, w.wind FROM traffic AS t JOIN weather AS w WITHIN -2 US TO 5 US "
    "ON t.sensor = w.sensor AND t.speed <= w.gust WHERE t.lane > 0",
    "left near": "SELECT t.sensor, t.lane, w.wind FROM traffic AS t LEFT JOIN weather AS w WITHIN 0 US TO 3 US ON t.sensor = w.sensor",
    "right near": "SELECT t.lane, w.* FROM traffic AS t RIGHT JOIN weather AS w WITHIN 1 US ON t.sensor = w.sensor",
    "full near": "SELECT t.sensor, t.lane, w.sensor AS other, w.wind FROM traffic AS t FULL JOIN weather AS w "
    "WITHIN -2 US TO 1 US ON t.sensor = w.sensor",
    "aggregate of near pairs": "SELECT sensor, COUNT(*) AS n FROM (SELECT t.sensor FROM traffic AS t JOIN weather AS w "
    "WITHIN 2 US ON t.sensor = w.sensor) AS z WINDOW(RANGE 12 US SLIDE 6 US) GROUP BY sensor",
    "aggregate of a zip": "SELECT sensor, COUNT(*) AS n FROM (SELECT t.sensor FROM traffic AS t ZIP JOIN weather AS w "
    "WITHIN 3 US ON t.sensor = w.sensor) AS z WINDOW(RANGE 12 US SLIDE 6 US) GROUP BY sensor",
    # patterns of rows
    "pattern": "SELECT * FROM traffic MATCH_RECOGNIZE (PARTITION BY segment ORDER BY STAMP() MEASURES FIRST(A.speed) AS high, "
    "LAST(B.speed) AS low, COUNT(B.*) AS n PATTERN (A B+) WITHIN 15 US DEFINE A AS A.speed > 1, B AS B.speed < LAST(A.speed) / 1.5) AS m",
    "pattern of all rows": "SELECT n, most FROM traffic MATCH_RECOGNIZE (ORDER BY STAMP() MEASURES COUNT(*) AS n, MAX(up.lane) AS most "
    "ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (up{2,4}? down) WITHIN 9 US DEFINE up AS lane >= PREV(lane), down AS lane < up.lane)",
    "pattern of so many rows": "SELECT sensor, a, b FROM (SELECT * FROM traffic WHERE lane > 1) MATCH_RECOGNIZE (PARTITION BY sensor "
    "ORDER BY STAMP() MEASURES A.speed AS a, B.speed AS b PATTERN (A B) DEFINE B AS NOT open OR B.speed > PREV(speed)) AS m",
    # families of panes
    # tuples of devices that publish by their own rules
    "published": "SELECT * FROM doors",
    "published every so often": "SELECT door, n FROM doors SAMPLE EVERY 5 US",
    "published rarely of some": "SELECT door, n FROM doors SAMPLE EVERY 16 US WHERE open",
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
    return difference_of_rows(near, meaning.snapshots, meaning.granule)


@cache
def _meaning(name: str) -> RelatedMeaning:
    node = translate(CASES[name], CATALOG).node
    streams = {each: [row for batch, _ in ARRIVING for row in batch[each]] for each in STREAMS}
    meaning = evaluate_with_relations(node, streams, ROWS, horizon_of(node, LAST + ZIPPED_US))
    assert any(meaning.snapshots), f"{name} answers nothing"
    return meaning
