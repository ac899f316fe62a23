"""Errors of queries: the reason, the place, and the hint."""

from __future__ import annotations

import pytest

from cluster.errors import ClusterError
from cluster.language.errors import FjordSqlError
from cluster.language.parsing import FjordSqlParser
from cluster.language.translation import parse_statement, translate
from tests.cluster.functions.declared import FUNCTIONS
from tests.cluster.language.example_catalog import CATALOG

# In every text, the part that the error must underline stands between » and «.
NAMES = [
    ("SELECT »speeed« FROM traffic", "no column 'speeed'", "did you mean speed?"),
    ("SELECT »t.altitude« FROM traffic t", "no column 'altitude'", "columns are: sensor, lane"),
    ("SELECT »x«.speed FROM traffic t", "no stream 'x'", "it has: t"),
    ("SELECT »traffic«.speed FROM traffic t", "no stream 'traffic'", "it has: t"),
    ("SELECT speed FROM »trafic«", "no stream 'trafic'", "did you mean traffic?"),
    ("SELECT speed\nFROM traffic\nWHERE »lame« = 1", "no column 'lame'", "did you mean lane?"),
    ("SELECT »sensor« FROM traffic, weather", "ambiguous", "write traffic.sensor"),
    ("SELECT itemID FROM OpenAuction WHERE »ts > 3«", "timestamp and integer", "TIMESTAMP_MICROS"),
    ("SELECT »STAMP()« FROM traffic, weather", "STAMP() is ambiguous", "write STAMP(traffic) or STAMP(weather)"),
    ("SELECT STAMP(»w«) FROM traffic", "no stream 'w'", "it has: traffic"),
    ("SELECT STAMP(»5«) FROM traffic", "takes the name of a stream", "STAMP(t)"),
    ("SELECT STAMP(»traffic.speed«) FROM traffic", "takes the name of a stream", "STAMP(t)"),
    ("SELECT »STAMP()« FROM (SELECT * FROM traffic) AS t", "the rows here have none", "select STAMP() AS at"),
    ("SELECT COUNT(*), »STAMP()« FROM traffic WINDOW(RANGE 1 HOUR)", "neither grouped nor aggregated", "MAX(STAMP())"),
    ("SELECT SUM(»ts«) FROM OpenAuction WINDOW(RANGE 1 HOUR)", "a number was expected here", None),
    ("SELECT lane FROM traffic WHERE »STAMP() = 'x'«", "timestamp and text", None),
    ("SELECT »CAST(STAMP() AS INTEGER)« AS x FROM traffic", "cannot be converted to integer", "CAST(x AS TEXT)"),
    ("SELECT »AVGG(speed)« FROM traffic", "no function 'AVGG'", "did you mean AVG?"),
    ("SELECT »SOUNDEX(sensor)« FROM traffic", "SOUNDEX is not part", None),
    ("SELECT a.speed FROM traffic a, »weather a«", "two streams called 'a'", "alias"),
    ("SELECT lane AS x, speed AS »X« FROM traffic", "two columns are called 'X'", None),
    ("SELECT lane FROM traffic WHERE lane > 1 AND»:v«", "':v' is not part of FjordSQL", "write a space before :v"),
    ("SELECT lane AS »fjord_lane« FROM traffic", "no name for a column", "fjord_"),
    ("SELECT lane FROM traffic WINDOW(PARTITION BY »sensr« ROWS 3)", "no column 'sensr'", "did you mean sensor?"),
    ("SELECT »y.*« FROM traffic t", "no stream 'y'", "it has t"),
    (
        "SELECT lane FROM traffic t WHERE EXISTS (SELECT »nosuch« FROM weather w WHERE w.sensor = t.sensor)",
        "no column 'nosuch'",
        "columns are",
    ),
    (
        "SELECT lane FROM traffic t WHERE EXISTS (SELECT »y.*« FROM weather w WHERE w.sensor = t.sensor)",
        "no stream 'y'",
        "it has w",
    ),
    (
        "SELECT lane FROM traffic t WHERE EXISTS (SELECT COUNT(»nosuch«) FROM weather w WHERE w.sensor = t.sensor)",
        "no column 'nosuch'",
        "columns are",
    ),
    (
        "SELECT lane FROM traffic t WHERE EXISTS (»SELECT FROM weather w WHERE w.sensor = t.sensor«)",
        "nothing is selected",
        None,
    ),
    ("WITH »traffic« AS (SELECT lane FROM traffic) SELECT lane FROM traffic", "already a stream", "another name"),
]
TYPES = [
    ("SELECT speed + »sensor« FROM traffic", "a number was expected here, but this is text", None),
    ("SELECT lane FROM traffic WHERE »speed«", "a boolean was expected here, but this is real", None),
    ("SELECT lane FROM traffic WHERE »speed = sensor«", "real and text", "CAST"),
    ("SELECT lane FROM traffic WHERE »lane IN (1, 'a')«", "integer and text", "CAST"),
    ("SELECT »CASE WHEN open THEN 1 ELSE 'a' END« FROM traffic", "integer and text", "CAST"),
    ("SELECT UPPER(»lane«) FROM traffic", "text was expected here, but this is integer", None),
    ("SELECT SUBSTRING(sensor, »1.5«) FROM traffic", "an integer was expected", None),
    ("SELECT AVG(»sensor«) FROM traffic", "a number was expected here, but this is text", None),
    ("SELECT »NULL« AS x FROM traffic", "NULL has no type", "CAST(NULL AS real)"),
    ("SELECT »CAST(lane AS DATE)« FROM traffic", "DATE is no type", "TIMESTAMP: a day"),
    ("SELECT lane + »99999999999999999999« FROM traffic", "64 bits", "real"),
    ("SELECT lane FROM traffic UNION ALL »SELECT sensor FROM traffic«", "integer and text", "CAST"),
    ("SELECT lane FROM traffic UNION ALL »SELECT lane, speed FROM traffic«", "2 columns, but the first one 1", None),
    ("SELECT lane FROM traffic WHERE »speed« IS TRUE", "a boolean was expected", None),
]
CONSTANTS = [
    ("SELECT ROUND(speed, »lane«) FROM traffic", "decimals must be written out", "ROUND(x, 2)"),
    ("SELECT lane FROM traffic WHERE sensor LIKE »sensor«", "must be written out", None),
    ("SELECT lane FROM traffic WHERE sensor LIKE 'a' ESCAPE »'ab'«", "one character", None),
]
GROUPS = [
    ("SELECT »sensor«, AVG(speed) FROM traffic GROUP BY lane", "neither grouped nor aggregated", "add it to GROUP BY"),
    ("SELECT lane FROM traffic WHERE »AVG(speed)« > 3", "AVG cannot stand in WHERE", "HAVING"),
    ("SELECT AVG(»MAX(speed)«) FROM traffic", "cannot stand inside another", "subquery"),
    ("SELECT lane FROM traffic GROUP BY »2«", "no column 2: SELECT has 1 column", "from 1"),
    ("SELECT lane, speed FROM traffic GROUP BY 1, (»0«)", "no column 0: SELECT has 2 columns", "from 1"),
    ("SELECT lane, 1 + COUNT(*) AS n FROM traffic GROUP BY lane, »2«", "computed by an aggregate", "from 1"),
    ("SELECT lane FROM traffic GROUP BY »1.0«", "a value is no key", "GROUP BY 1"),
    ("SELECT lane FROM traffic GROUP BY »'lane'«", "a value is no key", "name a column"),
    ("SELECT »COMPLETENESS() FILTER (WHERE lane = 1)« FROM traffic", "not known for which", "leave FILTER out"),
    ("SELECT ERROR_BOUND(»AVG(speed) FILTER (WHERE lane = 1)«) FROM traffic", "without FILTER", "WHERE"),
    ("SELECT »ABS(speed) FILTER (WHERE open)« FROM traffic", "directly behind an aggregate", "SUM(x)"),
    ("SELECT COUNT(*), »ABS(speed) FILTER (WHERE open)« FROM traffic", "directly behind an aggregate", "SUM(x)"),
    ("SELECT SUM(speed) FILTER (WHERE »lane«) FROM traffic", "a boolean was expected", None),
    ("SELECT SUM(speed) FILTER (WHERE »AVG(speed)« > 1) FROM traffic", "about single rows", "HAVING"),
    ("SELECT BOOL_AND(»lane«) FROM traffic", "a boolean was expected", None),
    ("SELECT »*« FROM traffic GROUP BY lane", "* cannot be selected from groups", None),
    ("SELECT »*«, COUNT(*) FROM traffic", "* cannot be selected beside aggregates", None),
    ("SELECT lane FROM traffic HAVING »lane > 3«", "HAVING needs GROUP BY", "WHERE"),
    ("SELECT »ARRAY_AGG(lane)« FROM traffic", "no bound", None),
    ("SELECT »COMPLETENESS(speed)« FROM traffic", "takes no argument", "COMPLETENESS()"),
    ("SELECT »COMPLETENESS(*)« FROM traffic", "takes no argument", "COMPLETENESS()"),
    ("SELECT lane FROM traffic WHERE »COMPLETENESS()« > 0.5", "cannot stand in WHERE", "HAVING"),
    ("SELECT »ERROR_BOUND(speed)« FROM traffic", "takes one aggregate", "ERROR_BOUND(AVG(speed))"),
    ("SELECT »ERROR_BOUND(AVG(speed), 1)« FROM traffic", "takes one aggregate", "ERROR_BOUND(AVG(speed))"),
    ("SELECT »ERROR_BOUND(COMPLETENESS())« FROM traffic", "never off", "leave"),
    ("SELECT »ERROR_BOUND(STDDEV(speed WITHIN 1))« FROM traffic", "STDDEV may be off is not known", "known for COUNT"),
    ("SELECT »ERROR_BOUND(AVG(2 * speed WITHIN 1))« FROM traffic", "AVG may be off is not known", "field as it is"),
    ("SELECT »ERROR_BOUND(COUNT(*))« FROM traffic WHERE speed WITHIN 1 > 3", "which samples count", "conditions"),
    ("SELECT »ERROR_BOUND(COUNT(NULLIF(speed WITHIN 1, 5)))« FROM traffic", "this COUNT may be off", "of a field"),
    ("SELECT »ERROR_BOUND(COUNT(x))« FROM (SELECT 1 / (speed WITHIN 1) AS x FROM traffic) t", "this COUNT", "a field"),
    (
        "SELECT »ERROR_BOUND(COUNT(*))« FROM traffic t LEFT JOIN weather w ON t.speed WITHIN 1 = w.wind",
        "which samples count",
        "conditions",
    ),
    ("SELECT »ERROR_BOUND(COUNT(*))« FROM traffic GROUP BY FLOOR(speed WITHIN 1)", "in which group", "GROUP BY"),
    ("SELECT APPROX_QUANTILE(speed, »2«) FROM traffic", "share from 0 to 1", None),
    ("SELECT »SUM(speed) OVER (PARTITION BY lane)« FROM traffic", "without an order", "add ORDER BY STAMP()"),
]
WINDOWS = [
    ("SELECT lane FROM traffic WINDOW(RANGE 5 »MINTUES«)", "no unit of time", "did you mean MINUTES?"),
    ("SELECT lane FROM traffic WINDOW(RANGE 5 »FORTNIGHTS«)", "no unit of time", "units are"),
    ("SELECT lane FROM traffic WINDOW(RANGE »0 SECONDS«)", "not positive", None),
    ("SELECT lane FROM traffic WINDOW(RANGE »0.5 US«)", "whole number of microseconds", None),
    ("SELECT lane FROM traffic WINDOW(RANGE »-«5 SECONDS)", "a positive number was expected", None),
    ("SELECT lane FROM traffic WINDOW(ROWS 10 »SECONDS«)", "takes no unit", "RANGE 10 SECONDS"),
    ("SELECT lane FROM traffic WINDOW(ROWS »1.5«)", "positive whole number", None),
    ("SELECT lane FROM traffic WINDOW(ROWS 10 SLIDE 2 »SECONDS«)", "takes no unit", None),
    (
        "SELECT lane FROM traffic WINDOW(»LAST« 10)",
        "RANGE, ROWS, SESSION or RESET was expected",
        "WINDOW(RANGE 5 MINUTES",
    ),
    ("SELECT lane FROM traffic WINDOW(RANGE »UNBOUNDED SLIDE 1 SECOND«)", "cannot slide", None),
    ("SELECT lane FROM traffic WINDOW(RANGE 1 HOUR) »WINDOW«(ROWS 3)", "two window clauses", None),
    ("SELECT lane FROM traffic »WINDWO«(RANGE 1 HOUR)", "no clause of FROM", "WINDOW(RANGE"),
    ("SELECT lane FROM traffic WHERE lane = 1 »WINDOW«(ROWS 3)", "belongs to a stream in FROM", "FROM stream WINDOW"),
    ("SELECT COUNT(*) FROM traffic WINDOW(RANGE »UNBOUNDED«)", "an aggregate over an unbounded window", "1 DAY"),
    ("SELECT DISTINCT lane FROM traffic WINDOW(ROWS »UNBOUNDED«)", "DISTINCT over an unbounded window", None),
    ("SELECT a.lane FROM traffic a, traffic b WINDOW(RANGE »UNBOUNDED«)", "a join over an unbounded window", None),
    ("SELECT lane FROM Istream(»traffic«)", "no past", "WINDOW(RANGE UNBOUNDED)"),
    ("SELECT lane FROM traffic UNION ALL »VALUES (1)«", "a query was expected", "SELECT"),
    ("SELECT lane FROM (SELECT lane FROM traffic UNION »VALUES (1)«) x", "a query was expected", "SELECT"),
    ("SELECT lane FROM traffic »|«> WHERE lane = 1", "was not expected", None),
    ("SELECT lane FROM traffic »GROUP BY«", "GROUP BY has nothing behind it", "leave GROUP BY away"),
    ("SELECT COUNT(*) FROM traffic »GROUP BY« HAVING COUNT(*) > 1", "GROUP BY has nothing behind it", "name columns"),
    ("SELECT lane FROM traffic GRANULARITY(5 »PARSECS«)", "no unit of time", None),
    ("SELECT lane FROM traffic WINDOW(RANGE MIN 1 »FORTNIGHT«, MAX 2 HOURS)", "no unit of time", None),
    ("SELECT lane FROM traffic WINDOW(RANGE MIN »3 HOURS, MAX 2 HOURS«)", "wrong way round", "MIN a, MAX b"),
    (
        "SELECT lane FROM traffic GRANULARITY(COARSEST »1 SECOND, FINEST 2 HOURS«)",
        "wrong way round",
        "COARSEST a, FINEST b",
    ),
    ("SELECT lane FROM traffic WINDOW(PARTITION BY »x«.sensor ROWS 3)", "have no other name in front", "write sensor"),
]
ACQUISITION = [
    ("SELECT lane FROM traffic SAMPLE RATE 10 »SECONDS«", "no unit of frequency", "HZ"),
    ("SELECT lane FROM traffic SAMPLE RATE »10«", "a rate needs a unit", "HZ"),
    ("SELECT lane FROM traffic SAMPLE RATE »3 HZ«", "whole number of microseconds", "SAMPLE EVERY"),
    (
        "SELECT x.lane FROM (SELECT lane FROM traffic) x »SAMPLE EVERY 1 SECOND«",
        "only a stream that sensors feed",
        None,
    ),
    ("SELECT »x.lane WITHIN 1« FROM (SELECT lane FROM traffic) x", "on a field of a stream only", "where the stream"),
    ("SELECT »sensor WITHIN 1« FROM traffic", "'sensor' is text", None),
    ("SELECT speed WITHIN 1, »speed WITHIN 2« FROM traffic", "already has an error of 1", None),
    ("SELECT speed WITHIN »1e999« FROM traffic", "must be finite", None),
    (
        "SELECT lane FROM traffic SAMPLE EVERY 30 SECONDS AT LEAST »EVERY 50 SECONDS«",
        "50 SECONDS is no whole multiple of 30 SECONDS",
        "1 MINUTE",
    ),
    (
        "SELECT lane FROM traffic SAMPLE EVERY 30 SECONDS AT LEAST »EVERY 10 SECONDS«",
        "10 SECONDS is no whole multiple of 30 SECONDS",
        "30 SECONDS",
    ),
    ("SELECT lane FROM traffic SAMPLE EVERY 30 SECONDS AT LEAST »5« MINUTES", "EVERY or RATE was expected", "AT LEAST"),
    ("SELECT lane FROM traffic SAMPLE EVERY 1 SECOND AT LEAST RATE »1«", "a rate needs a unit", "HZ"),
    ("SELECT lane FROM traffic WHERE lane = 1 LIFETIME 90 »DASY«", "no unit of time", "did you mean DAYS?"),
    ("SELECT lane FROM traffic LIFETIME »-«90 DAYS", "a positive number was expected", None),
    ("SELECT lane FROM traffic WHERE lane = 1 »LIFETIM« 90 DAYS", "was not expected here", "did you mean LIFETIME?"),
    ("SELECT lane FROM traffic »LIFETIME« 90 DAYS WHERE lane = 1", "at the end of a query", "LIFETIME 90 DAYS"),
    ("SELECT a.lane FROM traffic a »LIFETIME« 90 DAYS, weather w", "at the end of a query", "LIFETIME 90 DAYS"),
    ("SELECT lane FROM traffic LIFETIME 90 DAYS »LIFETIME« 30 DAYS", "two lifetime clauses", None),
    ("(SELECT lane FROM traffic) »LIFETIME« 1 DAY UNION SELECT 1 AS x FROM traffic", "at the end of a query", None),
    ("SELECT lane FROM traffic WHERE lane = 1 SAMPLE RATE 1 HZ »SAMPLE« RATE 1 HZ", "two sample clauses", None),
]
EVENTS = [
    ("SELECT sensor FROM traffic EVENTS(»sped« ABOVE 1)", "no field 'sped'", "did you mean speed?"),
    ("SELECT sensor FROM traffic EVENTS(»altitude« ABOVE 1)", "no field", "it samples: lane, speed, flow"),
    ("SELECT sensor FROM traffic EVENTS(»sensor« ABOVE 1)", "'sensor' is fixed", "can be seen in lane, speed, flow"),
    ("SELECT sensor FROM traffic EVENTS(»open« ABOVE 1)", "'open' is boolean", "can be seen in lane, speed, flow"),
    ("SELECT id FROM Person EVENTS(»name« ABOVE 1)", "'name' is text", "can be seen in id"),
    ("SELECT sensor FROM traffic EVENTS(speed ABOVE 1 BELOW »1.5«)", "which is higher", "BELOW is at most ABOVE"),
    ("SELECT sensor FROM traffic EVENTS(speed ABOVE »1e999«)", "too large", None),
    ("SELECT sensor FROM traffic EVENTS(speed ABOVE 0 BELOW »-1e999«)", "too large", None),
    ("SELECT sensor FROM traffic EVENTS(speed »>« 1)", "ABOVE was expected", "EVENTS(level ABOVE"),
    ("SELECT sensor FROM traffic EVENTS(speed »BELOW« 1)", "ABOVE was expected", "EVENTS(level ABOVE"),
    ("SELECT sensor FROM traffic EVENTS(speed ABOVE »lane«)", "a number was expected", "EVENTS(level ABOVE"),
    ("SELECT sensor FROM traffic EVENTS(speed ABOVE 1»,« 2)", "closing parenthesis", "EVENTS(level ABOVE"),
    ("SELECT sensor FROM traffic EVENTS(»)«", "a field was expected", "EVENTS(level ABOVE"),
    ("SELECT sensor FROM traffic »EVNTS«(speed ABOVE 1)", "no clause of FROM", "EVENTS(level ABOVE"),
    ("SELECT sensor FROM traffic EVENTS(speed ABOVE 1) »EVENTS«(lane ABOVE 1)", "two events clauses", None),
    (
        "SELECT lane FROM (SELECT lane FROM traffic) x »EVENTS(lane ABOVE 1)«",
        "only a stream that sensors feed has events",
        "put EVENTS where",
    ),
    ("SELECT »speed« FROM traffic EVENTS(speed ABOVE 1)", "no column 'speed'", "columns are: sensor, passing_us"),
    ("SELECT »passing_us WITHIN 5« FROM traffic EVENTS(speed ABOVE 1)", "belongs to an event", "samples of speed"),
]
ZIPS = [
    ("SELECT t.lane FROM traffic t ZIP JOIN weather w WINDOW(RANGE »1 HOUR«)", "no window", "put the window above"),
    ("SELECT lane FROM traffic »GRANULARITY(1 HOUR«) ZIP JOIN weather w", "no window", "put the window above"),
    (
        "SELECT x.n FROM (»SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR)) x« ZIP JOIN weather w",
        "lasts longer than an instant",
        "ISTREAM(...)",
    ),
    ("SELECT lane FROM traffic »RIGHT« ZIP JOIN weather", "RIGHT ZIP JOIN is not part", "write LEFT"),
    ("SELECT lane FROM traffic »CROSS« ZIP JOIN weather", "CROSS ZIP JOIN is not part", "a ZIP JOIN b"),
    ("SELECT lane FROM traffic ZIP JOIN weather WITHIN »-5 MS«", "is not negative", "TO 0 SECONDS"),
    ("SELECT lane FROM traffic ZIP JOIN weather »WITHIN 2 S TO 1 S«", "above the upper one", "low TO high"),
    ("SELECT lane FROM traffic ZIP JOIN weather WITHIN »TO« 1 S", "a duration was expected", "WITHIN 0 SECONDS TO"),
    ("SELECT lane FROM traffic ZIP JOIN weather WITHIN 0 S TO»«", "a duration was expected", "WITHIN 0 SECONDS TO"),
    ("SELECT lane FROM traffic ZIP JOIN weather WITHIN - »x«", "a duration was expected", "WITHIN 50"),
    ("SELECT lane FROM traffic ZIP JOIN weather WITHIN 5 »MINTUES«", "no unit of time", "did you mean MINUTES?"),
    ("SELECT lane FROM traffic ZIP JOIN weather WITHIN »0.5 US«", "whole number of microseconds", None),
    ("SELECT lane FROM traffic ZIP JOIN weather WITHIN »99999999 WEEKS«", "too long", None),
    ("SELECT lane FROM traffic ZIP JOIN weather WITHIN 1 S »WITHIN« 2 S", "two WITHIN", "WITHIN 50"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w ON t.sensor = w.sensor WITHIN »2« S", "before ON", "a ZIP JOIN b"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w »USING« (sensor)", "USING is not part", "ON a.pair = b.pair"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w ON »t.lane = w.sensor«", "integer and text", "CAST"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w ON »t.lane = w.wind«", "integer and real", "CAST"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w ON »t.speed < w.wind«", "which column of the left", "WHERE"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w ON t.sensor = w.sensor AND »lane = 1«", "which column", "WHERE"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w ON »t.sensor = t.sensor«", "which column of the left", "WHERE"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w ON »t.lane + 1 = w.wind«", "which column of the left", "subquery"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w ON t.sensor = »w.sensr«", "no column 'sensr'", "sensor?"),
    ("SELECT lane FROM traffic t ZIP JOIN weather w ON »sensor« = w.sensor", "ambiguous", "t.sensor"),
    ("SELECT lane FROM traffic t ZIP JOIN »weather t«", "two streams called 't'", "alias"),
    (
        "SELECT p.id FROM Person p JOIN traffic t ON p.id = t.lane »ZIP JOIN weather w«",
        "not what other joins have made",
        "write it first",
    ),
    (
        "SELECT lane FROM traffic t JOIN »weather w« WITHIN 5 S",
        "a join WITHIN a time needs a condition",
        "ON a.x = b.x",
    ),
]
PAST = [
    ("SELECT lane FROM traffic SINCE 2 »HUORS« AGO", "no unit of time", "did you mean HOURS?"),
    ("SELECT lane FROM traffic SINCE »0 HOURS« AGO", "not positive", None),
    ("SELECT lane FROM traffic SINCE »-«2 HOURS AGO", "a positive number was expected", None),
    ("SELECT lane FROM traffic SINCE 2 HOURS»«", "AGO was expected", "SINCE 2 HOURS AGO"),
    ("SELECT lane FROM traffic SINCE 2 HOURS »WINDOW«(RANGE 1 HOUR)", "AGO was expected", "SINCE 2 HOURS AGO"),
    ("SELECT lane FROM traffic SINCE 1 HOUR AGO »SINCE« BEGINNING", "two since clauses", None),
    ("SELECT lane FROM traffic WHERE lane = 1 »SINCE« 2 HOURS AGO", "behind a stream in FROM", "SINCE 2 HOURS AGO"),
    (
        "SELECT lane FROM (SELECT lane FROM traffic) x »SINCE 1 HOUR AGO«",
        "only a stream has a past",
        "where the stream",
    ),
    ("SELECT lane FROM ISTREAM(traffic WINDOW(ROWS 9)) x »SINCE BEGINNING«", "only a stream has a past", "where the"),
]
REFUSED = [
    ("SELECT lane FROM traffic »ORDER BY« lane", "ORDER BY needs LIMIT", "sort where you receive"),
    ("SELECT lane FROM traffic »LIMIT« 5", "LIMIT needs ORDER BY", "ROWS"),
    ("SELECT lane FROM traffic »OFFSET« 5", "OFFSET needs ORDER BY", "ORDER BY speed"),
    ("SELECT t.lane FROM traffic t LEFT JOIN »weather w«", "LEFT JOIN needs a condition", "ON a.x = b.x"),
    ("SELECT t.lane FROM traffic t NATURAL JOIN »weather«", "NATURAL JOIN is not part", None),
    ("SELECT lane FROM traffic WHERE speed > »(SELECT speed FROM traffic)«", "can have several rows", "ANY or ALL"),
    ("SELECT lane FROM traffic WHERE speed > 1 + »(SELECT speed FROM traffic)«", "can have several rows", "GROUP BY"),
    ("SELECT »(SELECT speed FROM traffic)« AS x FROM traffic", "can have several rows", "without GROUP BY"),
    ("SELECT lane FROM traffic WHERE sensor IN (»SELECT sensor, wind FROM weather«)", "selects 2", None),
    ("»SELECT 1 AS x«", "reads at least one stream", "FROM"),
    ("»EXPLAIN« SELECT 1", "a statement begins with", None),
    ("»SELCT« lane FROM traffic", "a statement begins with", "did you mean SELECT?"),
    ("»INSERT« INTO traffic VALUES (1)", "a statement begins with", None),
]
SYNTAX = [
    ("SELECT lane FROM traffic t »GROPU« BY lane", "'GROPU' was not expected here", "did you mean GROUP BY?"),
    ("SELECT lane»,« FROM traffic", "missing after this comma", None),
    ("SELECT lane > »FROM« traffic", "'FROM' was not expected here", None),
    ("SELECT lane FROM»«", "a stream was expected here", None),
    ("SELECT lane FROM traffic WHERE»«", "", None),
    ("SELECT (lane »FROM« traffic", "parentheses", None),
    ("SELECT lane FROM traffic WHERE sensor = »'abc«", "opened here and never closed", None),
    ("SELECT lane FROM traffic; »SELECT lane FROM traffic«", "more than one statement", "one statement"),
    ("»«", "there is no statement", None),
    ("SELECT lane FROM (»traffic«)", "query was expected", "FROM (SELECT"),
    ("SELECT lane FROM traffic».«x", "no dots", None),
]


def _marked(marked: str) -> tuple[str, int, str]:
    start = marked.index("»")
    end = marked.index("«") - 1
    text = marked.replace("»", "").replace("«", "")
    return text, start, text[start:end]


@pytest.mark.parametrize(
    ("marked", "reason", "hint"),
    [*NAMES, *TYPES, *CONSTANTS, *GROUPS, *WINDOWS, *ACQUISITION, *EVENTS, *ZIPS, *PAST, *REFUSED, *SYNTAX],
)
def test_error_says_what_where_and_what_instead(marked, reason, hint):
    text, start, offending = _marked(marked)
    with pytest.raises(FjordSqlError) as caught:
        translate(text, CATALOG)
    error = caught.value
    assert reason in error.reason
    assert (error.start, error.offending) == (start, offending)
    assert hint is None or hint in (error.hint or "")


def test_error_counts_lines_and_columns_from_one():
    with pytest.raises(FjordSqlError) as caught:
        translate("SELECT lane,\n\tspeeed\nFROM traffic", CATALOG)
    error = caught.value
    assert (error.line, error.column, error.offending) == (2, 2, "speeed")
    assert str(error) == "there is no column 'speeed', at line 2, column 2 (did you mean speed?)"
    assert error.underlined() == "2 |  speeed\n  |  ^^^^^^"
    assert isinstance(error, ClusterError)


@pytest.mark.parametrize(
    ("text", "place", "underlined"),
    [
        ("SELECT lane,\r\n\tspeeed\r\nFROM traffic", (2, 2), "2 |  speeed\n  |  ^^^^^^"),
        ("SELECT 'Straße' AS s, speeed FROM traffic", (1, 23), None),
        ("SELECT '道路' AS s, speeed FROM traffic", (1, 19), None),
        ("SELECT 'e\u0301' AS s, speeed FROM traffic", (1, 19), None),
        ("SELECT '🚗' AS s,\n 'x\x1b' AS b, speeed FROM traffic", (2, 13), None),
    ],
)
def test_carets_stand_below_what_is_meant(text, place, underlined):
    with pytest.raises(FjordSqlError) as caught:
        translate(text, CATALOG)
    error = caught.value
    assert (error.line, error.column, error.offending) == (*place, "speeed")
    shown, carets = error.underlined().split("\n")
    assert underlined is None or error.underlined() == underlined
    wide = sum(letter in "道路🚗" for letter in shown) - shown.count("\u0301")
    assert carets.index("^") == shown.index("speeed") + wide
    assert carets.count("^") == len("speeed")
    assert shown.isprintable()


def test_wide_characters_get_wide_carets():
    with pytest.raises(FjordSqlError) as caught:
        translate('SELECT "道路" FROM traffic', CATALOG)
    assert caught.value.underlined().endswith("| " + " " * 7 + "^" * 6)


def test_of_a_long_line_the_part_around_is_shown():
    values = ", ".join(str(number) for number in range(500))
    with pytest.raises(FjordSqlError) as caught:
        translate(f"SELECT speeed FROM traffic WHERE lane IN ({values})", CATALOG)
    assert len(caught.value.underlined().split("\n")[0]) < 180
    with pytest.raises(FjordSqlError) as caught:
        translate(f"SELECT lane FROM traffic WHERE lane IN ({values}) AND speeed = 1", CATALOG)
    shown, carets = caught.value.underlined().split("\n")
    assert shown[carets.index("^") : carets.rindex("^") + 1] == "speeed"
    assert len(shown) < 180
    assert caught.value.column == 40 + len(values) + 7


def test_a_statement_has_a_longest_length():
    with pytest.raises(FjordSqlError, match="longer than 100000 characters"):
        translate("SELECT lane FROM traffic" + " " * 100_000, CATALOG)


@pytest.mark.parametrize("trip", [ValueError, TypeError, IndexError, KeyError, AttributeError])
def test_where_sqlglot_trips_is_said(monkeypatch, trip):
    def tripping(*_):
        raise trip

    monkeypatch.setattr(FjordSqlParser, "_parse_group", tripping)
    with pytest.raises(FjordSqlError, match="this cannot be read as SQL") as caught:
        translate("SELECT lane FROM traffic WHERE lane = 1 GROUP BY lane", CATALOG)
    assert (caught.value.start, caught.value.offending) == (40, "GROUP BY")


def test_error_in_a_derived_stream_points_into_the_whole_statement():
    with pytest.raises(FjordSqlError) as caught:
        parse_statement("CREATE STREAM x AS SELECT FROM WHERE")
    assert caught.value.column == 32


@pytest.mark.parametrize(
    ("marked", "reason", "hint"),
    [
        ("CREATE »TABLE« x (a INT)", "STREAM was expected", "CREATE STREAM"),
        ("CREATE STREAM x (a »INTT«) SOURCE mqtt()", "no type 'INTT'", "types are"),
        ("CREATE STREAM x (a TEXT) »FROM« mqtt()", "SOURCE was expected", None),
        ('CREATE STREAM »"a b"« (a TEXT) SOURCE mqtt()', "'a b' is no name for a stream", "letters"),
        ('CREATE STREAM »"1a"« AS SELECT lane FROM traffic', "'1a' is no name for a stream", "letters"),
        ("CREATE RELATION »\"é b\"« FROM 'b' REFRESH EVERY 1 HOUR", "'é b' is no name for a relation", "letters"),
        (
            "CREATE STREAM x (a TEXT, ts TIMESTAMP) SOURCE mqtt() ORDERED BY »tss«",
            "no column 'tss'",
            "did you mean ts?",
        ),
        ("CREATE STREAM x (»a TEXT«, A TEXT) SOURCE mqtt()", "two fields named", None),
        ("CREATE STREAM x (ts »TEXT«) SOURCE mqtt() ORDERED BY ts", "TIMESTAMP or an integer", None),
        ("CREATE STREAM »x« (ts TIMESTAMP) SOURCE mqtt() ORDERED BY ts", "besides its stamp", None),
        ("CREATE STREAM x»«", "columns or AS", None),
        ("CREATE STREAM x »SELECT« lane FROM traffic", "columns or AS", None),
        ("DROP »TABLE« x", "STREAM was expected", None),
        ("DROP STREAM»«", "name of a stream", None),
    ],
)
def test_error_in_a_declaration(marked, reason, hint):
    text, start, offending = _marked(marked)
    with pytest.raises(FjordSqlError) as caught:
        parse_statement(text)
    error = caught.value
    assert reason in error.reason
    assert (error.start, error.offending) == (start, offending)
    assert hint is None or hint in (error.hint or "")


@pytest.mark.parametrize("place", ["SELECT {} AS x FROM traffic", "SELECT lane FROM traffic WHERE {} > 3"])
def test_a_query_as_an_argument_of_a_function_of_users_has_parentheses_of_its_own(place):
    catalog = CATALOG.with_functions(FUNCTIONS)
    with pytest.raises(FjordSqlError, match="in parentheses of its own") as caught:
        translate(place.format("halved(SELECT MAX(speed) FROM traffic)"), catalog)
    assert caught.value.hint.casefold() == "it is written halved((select ...))"
    translate(place.format("halved((SELECT MAX(speed) FROM traffic))"), catalog)
