"""One-shot queries in SQL over the catalog: their results, and that nothing else is accepted."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.language.errors import FjordSqlError
from cluster.service.http.sensor_sql import select, where

SENSORS = pl.DataFrame({
    "sensor": ["a", "b", "c", "d"],
    "type": ["loop", "it's", "loop", "x\\"],
    "segment": [3, 4, 5, None],
    "battery": [0.5, None, 0.1, 0.9],
    "position": ["mile 1", None, None, None],
})  # fmt: skip


def kept(condition):
    return "".join(where(SENSORS, condition)["sensor"].to_list())


@pytest.mark.parametrize(
    ("condition", "sensors"),
    [
        ("type = 'loop' AND segment IN (3, 4)", "a"),
        ("TYPE = 'loop' AND Sensors.Segment > 3", "c"),
        ("battery < 0.2 OR battery IS NULL", "bc"),
        ("NOT type LIKE 'l%'", "bd"),
        ("type NOT LIKE 'l%'", "bd"),
        ("NOT type NOT LIKE 'l%'", "ac"),
        ("NOT segment NOT IN (3)", "a"),
        ("segment NOT BETWEEN 4 AND 5", "a"),
        ("segment IS NOT NULL", "abc"),
        ("battery BETWEEN .5 AND 1e0", "ad"),
        ("segment NOT IN (3)", "bc"),
        ("segment / 2 = 1.5", "a"),
        ("segment / 0 IS NULL", "abcd"),
        ("segment + 1 = 4 -- a comment", "a"),
        ("position = 'mile 1'", "a"),
        ("CAST(battery * 10 AS INTEGER) = 5", "a"),
        ("CAST(type AS INTEGER) IS NULL", "abcd"),
        ("UPPER(type) || '!' = 'LOOP!'", "ac"),
        ("COALESCE(segment, 0) = 0", "d"),
        ("CASE WHEN segment IS NULL THEN TRUE ELSE FALSE END", "d"),
        ("(segment > 3) IS TRUE", "bc"),
        ("(segment > 3) IS NOT TRUE", "ad"),
        ("(segment > 3) IS FALSE", "a"),
        ("(segment > 3) IS NOT FALSE", "bcd"),
        ("(segment > 3) IS UNKNOWN", "d"),
        ("segment > 3 IS NOT TRUE", "ad"),
        ("NOT segment > 3 IS NULL", "abc"),
        ("CAST(segment - 3 AS BOOLEAN) IS FALSE", "a"),
        ("segment IS DISTINCT FROM 3", "bcd"),
        ("battery IS NOT DISTINCT FROM NULL", "b"),
        ("type ILIKE 'L%'", "ac"),
        ("type NOT ILIKE 'L%'", "bd"),
        # Texts mean the same here and in Polars.
        ("type = 'it''s'", "b"),
        ("type = 'x\\'", "d"),
        ("type = 'a'' OR 1=1 --'", ""),
        ("type = '\\'' OR 1=1 --'", ""),
    ],
)
def test_a_condition_selects_the_sensors_for_which_it_is_true(condition, sensors):
    assert kept(condition) == sensors


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT sensor, segment AS s FROM sensors WHERE segment > 4", [("c", 5)]),
        ("SELECT sensor FROM sensors ORDER BY battery", [("c",), ("a",), ("d",), ("b",)]),
        ("SELECT sensor FROM sensors ORDER BY battery DESC LIMIT 2;", [("d",), ("a",)]),
        ("SELECT sensor FROM sensors ORDER BY battery NULLS FIRST LIMIT 1 OFFSET 1", [("c",)]),
        ("SELECT s.sensor FROM sensors AS s WHERE s.segment = 3", [("a",)]),
        (
            "SELECT sensor FROM sensors ORDER /* by two */ BY type ASC NULLS LAST, battery DESC NULLS FIRST LIMIT 2",
            [("b",), ("a",)],
        ),
        ("SELECT DISTINCT type FROM Sensors ORDER BY type LIMIT 2", [("it's",), ("loop",)]),
        ("SELECT type, COUNT(*) AS n FROM sensors GROUP BY type HAVING N > 1", [("loop", 2)]),
        ("SELECT COUNT(DISTINCT type), MIN(battery), MAX(segment), SUM(segment) FROM sensors", [(3, 0.1, 5, 12)]),
        ("SELECT COUNT(*) FROM sensors WHERE FALSE", [(0,)]),
        ("SELECT segment * 1.5 FROM sensors LIMIT 1", [(4.5,)]),
        ("SELECT CAST(3000000000 AS INTEGER), CAST(0.1 AS REAL) FROM sensors LIMIT 1", [(3_000_000_000, 0.1)]),
    ],
)
def test_a_select_over_sensors_answers_these_rows(sql, rows):
    assert select(SENSORS, sql).rows() == rows


def test_outputs_are_named_as_in_fjordsql():
    answer = select(SENSORS, "SELECT COUNT(*), AVG(battery), AVG(battery), 1 + 1, MAX(segment) AS top FROM sensors")
    assert answer.columns == ["count", "avg_battery", "avg_battery_2", "column_4", "top"]


def test_real_numbers_never_become_decimals():
    assert select(SENSORS, "SELECT 99999999999999999999999 AS n FROM sensors LIMIT 1").schema == {"n": pl.Float64}


def test_the_relation_is_left_as_it_was():
    before = SENSORS.clone()
    where(SENSORS, "segment = 3")
    assert SENSORS.equals(before)


def refusal(sql):
    with pytest.raises(FjordSqlError) as caught:
        select(SENSORS, sql)
    return caught.value


def test_an_unknown_column_is_underlined_and_the_hint_names_the_closest_and_all():
    error = refusal("SELECT segmnt FROM sensors")
    assert (error.offending, error.column) == ("segmnt", 8)
    assert error.hint is not None
    assert "did you mean segment?" in error.hint
    assert "the columns are sensor, type, segment, battery, position" in error.hint


@pytest.mark.parametrize("condition", ["type = loop", 'type = "loop"'])
def test_texts_without_single_quotes_are_explained(condition):
    with pytest.raises(FjordSqlError, match=r"there is no column 'loop'.*texts go into single quotes"):
        where(SENSORS, condition)


def test_names_given_in_select_are_not_known_in_where():
    assert refusal("SELECT segment AS s FROM sensors WHERE s = 3").offending == "s"


@pytest.mark.parametrize(
    "sql",
    [
        # not numbers
        "SELECT 10E FROM sensors",
        "SELECT sensor FROM sensors WHERE segment > 10E",
        "SELECT sensor FROM sensors LIMIT 10E",
        # other tables, and files
        "SELECT * FROM other",
        'SELECT * FROM "/etc/passwd"',
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM scan_parquet('x')",
        "SELECT * FROM sensors, read_csv('/etc/passwd')",
        "SELECT * FROM sensors JOIN sensors AS b ON TRUE",
        "SELECT * FROM sensors LEFT JOIN read_json('x') ON TRUE",
        "SELECT * FROM LATERAL read_csv('x')",
        "SELECT * FROM sensors UNION SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM (SELECT * FROM sensors)",
        "SELECT * FROM (VALUES (1)) AS sensors",
        "SELECT * FROM db.sensors",
        "SELECT db.sensors.segment FROM sensors",
        "SELECT other.segment FROM sensors",
        "SELECT sensors.segment FROM sensors AS s",
        "WITH sensors AS (SELECT * FROM read_csv('x')) SELECT * FROM sensors",
        "SELECT read_csv('/etc/passwd') FROM sensors",
        "SELECT sensor FROM sensors WHERE segment IN (SELECT 1)",
        "SELECT sensor FROM sensors WHERE EXISTS (SELECT * FROM read_csv('x'))",
        "SELECT (SELECT MAX(segment) FROM sensors) FROM sensors",
        "FROM read_csv('x')",
        "TABLE sensors",
        # other statements
        "SELECT * FROM sensors; SELECT * FROM sensors",
        "SELECT * FROM sensors; DROP TABLE sensors",
        "DROP STREAM sensors",
        "DROP TABLE sensors",
        "DELETE FROM sensors",
        "TRUNCATE TABLE sensors",
        "CREATE STREAM mine AS SELECT * FROM sensors",
        "CREATE TABLE mine AS SELECT * FROM sensors",
        "EXPLAIN SELECT * FROM sensors",
        "SHOW TABLES",
        "SELECT * INTO mine FROM sensors",
        # syntax of streams
        "SELECT * FROM sensors WINDOW(RANGE 5 MINUTES)",
        "SELECT * FROM sensors SAMPLE EVERY 1 SECOND",
        "SELECT * FROM Istream(sensors)",
        "SELECT segment WITHIN 2 FROM sensors",
        # patterns that Polars would match with several columns
        'SELECT "^.*$" FROM sensors',
        'SELECT segment AS "^.*$" FROM sensors ORDER BY "^.*$"',
        "SELECT COLUMNS('.*') FROM sensors",
        "SELECT * EXCLUDE (type) FROM sensors",
        # expressions that amplify, or are useless here
        "SELECT REPEAT(type, 1000000000) FROM sensors",
        "SELECT LPAD(type, 1000000000, 'x') FROM sensors",
        "SELECT REGEXP_REPLACE(type, '.', 'xx') FROM sensors",
        "SELECT sensor FROM sensors WHERE REGEXP_LIKE(type, 'a')",
        "SELECT sensor FROM sensors WHERE type ~ 'a'",
        "SELECT sensor FROM sensors WHERE type !~* 'a'",
        "SELECT sensor FROM sensors WHERE type RLIKE 'a'",
        "SELECT SUM(segment) OVER () FROM sensors",
        "SELECT SUM(segment) FILTER (WHERE TRUE) FROM sensors",
        "SELECT ARRAY_AGG(type) FROM sensors",
        "SELECT [1, 2] FROM sensors",
        "SELECT CAST(segment AS DATE) FROM sensors",
        "SELECT CAST(segment AS SMALLINT) FROM sensors",
        "SELECT NOW() FROM sensors",
        "SELECT ? FROM sensors",
        "SELECT 1",
        "SELECT sensor FROM sensors WHERE COUNT(*) > 1",
        # refused by Polars
        "SELECT sensor, COUNT(*) FROM sensors",
        "SELECT segment, segment FROM sensors",
        "SELECT sensor FROM sensors WHERE segment = '3'",
        "SELECT sensor FROM sensors WHERE segment",
        "SELECT * FROM sensors LIMIT -1",
        "SELECT * FROM sensors LIMIT 99999999999999999999",
        "SELECT * FROM sensors WHERE * = 1",
        # not SQL
        "",
        ";",
        "SELECT",
        "SELECT 'open FROM sensors",
        "SELECT /* open FROM sensors",
        "SELECT * FROM sensors WHERE segment =",
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000 + " FROM sensors",
        "SELECT " + "(" * 60 + "1" + ")" * 60 + " FROM sensors",
        "SELECT " + "NOT " * 2_000 + "TRUE FROM sensors",
        "SELECT " + "1 + " * 3_000 + "1 FROM sensors",
        "SELECT " + "1, " * 10_000 + "1 FROM sensors",
        "SELECT \x00 FROM sensors",
    ],
)
def test_anything_but_a_select_over_sensors_is_refused(sql):
    assert refusal(sql).message


@pytest.mark.parametrize(
    "condition",
    [
        "TRUE LIMIT 1",
        "TRUE ORDER BY segment",
        "TRUE GROUP BY type",
        "TRUE; SELECT 1",
        "TRUE UNION SELECT * FROM sensors",
        "TRUE) OR (TRUE",
        "segment IN (SELECT segment FROM sensors)",
        "read_csv('/etc/passwd')",
        "",
        "-- nothing",
    ],
)
def test_anything_but_a_condition_is_refused(condition):
    with pytest.raises(FjordSqlError):
        where(SENSORS, condition)


# Syntax that would be ignored is between » and «.
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sensor FROM sensors@»5«",
        "SELECT sensor FROM sensors »FINAL«",
        "SELECT ABS(»ALL« segment) FROM sensors",
        "SELECT CAST(segment AS REAL FORMAT »'x'«) FROM sensors",
        "SELECT CAST(segment AS REAL DEFAULT »1« ON CONVERSION ERROR) FROM sensors",
        "SELECT sensor FROM sensors LIMIT 2»,« 1",
        "SELECT sensor FROM sensors LIMIT »'2'«",
        "SELECT type, COUNT(*) FROM sensors GROUP BY »ALL«",
        "SELECT type, COUNT(*) FROM sensors GROUP BY type WITH »TOTALS«",
        "SELECT sensor FROM sensors WHERE segment BETWEEN »SYMMETRIC« 5 AND 4",
        "SELECT sensor FROM sensors WHERE »segment« IS TRUE",
        "SELECT sensor FROM sensors WHERE »type« IS NOT FALSE",
        "SELECT sensor FROM sensors WHERE »segment + 1« IS FALSE OR TRUE",
        "SELECT sensor FROM sensors WHERE segment < »1e400«",
        "SELECT MAX(segment, »5«) FROM sensors",
        "SELECT 'a' »'b'« FROM sensors",
        "SELECT »+«segment FROM sensors",
        "SELECT »{«fn ABS(segment)} FROM sensors",
        "SELECT »nosuch«.sensors.sensor FROM sensors",
        "»;« SELECT sensor FROM sensors",
    ],
)
def test_no_syntax_is_parsed_and_ignored(sql):
    before, offending, after = sql.replace("«", "»").split("»")
    error = refusal(f"{before}{offending}{after}")
    assert (error.start, error.offending) == (len(before), offending)
