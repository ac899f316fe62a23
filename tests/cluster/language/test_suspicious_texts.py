"""Texts that are right, and probably not what was meant: they run, with a warning."""

from __future__ import annotations

import pytest

from cluster.language.catalog import StaticRelation
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.operators.columns import Column
from protocols.wire.streams import FieldType
from tests.cluster.language.example_catalog import CATALOG

PLACES = StaticRelation("places", "1", (Column("sensor", FieldType.TEXT), Column("segment", FieldType.INTEGER)))
KNOWN = CATALOG.with_stream(PLACES)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("SELECT lane FROM traffic LEFFT JOIN places AS p ON p.sensor = lefft.sensor", "did you mean LEFT?"),
        ("SELECT lane FROM traffic ZPI JOIN weather AS w ON zpi.sensor = w.sensor", "did you mean ZIP?"),
        ("SELECT lane speed FROM traffic", "lane speed is lane under the name speed: a comma may be missing"),
        ("SELECT STAMP() sensor FROM traffic", "STAMP() sensor is STAMP() under the name sensor"),
        ("SELECT lane FROM traffic WHERE speed = NULL", "speed = NULL is never true"),
        ("SELECT lane FROM traffic WHERE NULL <> speed", "IS NOT NULL"),
        ("SELECT lane FROM traffic WHERE sensor -> 'a' = 'open'", "sensor -> 'a' is JSON, in which texts have quotes"),
        ("SELECT lane FROM traffic WHERE 'on' <> JSON_EXTRACT(sensor, '$.a')", "write ->> or JSON_VALUE"),
    ],
)
def test_what_is_suspicious_gets_a_warning(text, warning):
    (found,) = translate(text, KNOWN).warnings
    assert warning in found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT lane FROM traffic whre",
        "SELECT lane form FROM traffic",
        "SELECT form.lane FROM traffic form WHERE form.lane = 1",
        "SELECT lane gruop, COUNT(*) havin FROM traffic sampel WINDOW(RANGE 1 HOUR) GROUP BY lane",
        "SELECT lane AS speed FROM traffic",
        "SELECT MAX(speed) speed FROM traffic WINDOW(RANGE 1 HOUR)",
        "SELECT t.lane lane, w.wind winds FROM traffic t JOIN weather w ON t.sensor = w.sensor",
        "SELECT lane FROM traffic AS lefft JOIN weather AS w ON lefft.sensor = w.sensor",
        "SELECT lane FROM traffic WHERE speed IS NULL",
        "SELECT lane FROM traffic WHERE sensor ->> 'a' = 'open' AND sensor -> 'b' = '\"on\"' ",
        "SELECT lane FROM traffic WHERE sensor -> 'c' <> 'null'",
        "SELECT lane FROM traffic WHERE sensor -> 'd' = '[1,2]' OR sensor -> 'e' = '-1.5'",
        "SELECT lane FROM traffic WHERE COALESCE(speed, NULL) > 3",
    ],
)
def test_names_that_resemble_words_of_the_language_are_names(text):
    assert translate(text, KNOWN).warnings == ()


MINUTES = "SELECT AVG(speed) AS a FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE)"
EXTENTS = "SELECT s.sensor FROM traffic WINDOW(RANGE 2 MINUTES) COALESCE(lane BY sensor) AS s"
UNTIL_NEXT = "SELECT s.sensor FROM traffic VALID UNTIL NEXT BY sensor MAX 10 MINUTES AS s"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "SELECT sensor, AVG(speed) AS a FROM traffic WHERE lane = 1 GROUP BY sensor",
            "AVG(speed) AS a FROM traffic WINDOW(RANGE 1 HOUR SLIDE 1 HOUR) WHERE lane = 1 GROUP BY sensor",
        ),
        (
            "SELECT a FROM (SELECT MAX(t.speed) AS a FROM traffic AS t) AS x",
            "write SELECT MAX(t.speed) AS a FROM traffic AS t WINDOW(RANGE 1 HOUR SLIDE 1 HOUR)",
        ),
        (
            f"SELECT MAX(a) AS m FROM ({MINUTES}) AS x WINDOW(RANGE 1 HOUR SLIDE 1 HOUR)",
            f"a window counts in it, too. To count each only where it begins, write ISTREAM(({MINUTES}))",
        ),
        (f"{EXTENTS} WHERE DURATION(VALID(s)) > INTERVAL '5' MINUTE", "which are less than 2 MINUTES apart"),
        (f"{EXTENTS} WHERE INTERVAL '2' MINUTE <= DURATION(VALID())", "which are less than 2 MINUTES apart"),
        (
            f"{UNTIL_NEXT} WHERE s.lane = 1 AND DURATION(VALID(s)) > INTERVAL '600' SECOND",
            "DURATION(VALID(s)) > INTERVAL '600' SECOND is never true: VALID UNTIL NEXT ends after MAX 10 MINUTES",
        ),
    ],
)
def test_what_means_something_else_than_it_seems_gets_a_warning(text, warning):
    found = translate(text, KNOWN).warnings
    assert any(warning in each for each in found), found
    # Texts that run are not judged again.
    assert translate(text, KNOWN, registered=True).warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT AVG(speed) AS a FROM traffic WINDOW(RANGE 1 MINUTE)",
        "SELECT AVG(speed) AS a FROM traffic SAMPLE EVERY 10 SECONDS",
        "SELECT COUNT(*) AS n FROM traffic AS t JOIN weather AS w ON t.sensor = w.sensor",
        f"SELECT MAX(a) AS m FROM ISTREAM(({MINUTES})) AS x WINDOW(RANGE 1 HOUR SLIDE 1 HOUR)",
        f"SELECT MAX(a) AS m FROM ({MINUTES}) AS x",
        f"{EXTENTS} WHERE DURATION(VALID(s)) > INTERVAL '119' SECOND",
        f"{UNTIL_NEXT} WHERE DURATION(VALID(s)) >= INTERVAL '10' MINUTE",
        f"{UNTIL_NEXT} WHERE DURATION(VALID(s)) < INTERVAL '15' MINUTE",
    ],
)
def test_what_is_meant_gets_none(text):
    assert translate(text, KNOWN).warnings == ()


def test_a_function_in_qualify_that_lacks_over_is_named():
    with pytest.raises(FjordSqlError, match="behind CHANGED stands OVER") as caught:
        translate("SELECT lane FROM traffic QUALIFY CHANGED(lane)", KNOWN)
    assert caught.value.hint == "it is written CHANGED(x) OVER (PARTITION BY k ORDER BY STAMP())"
