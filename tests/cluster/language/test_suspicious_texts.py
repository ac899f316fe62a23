"""Texts that are right, and probably not what was meant: they run, with a warning."""

from __future__ import annotations

import pytest

from cluster.language.catalog import StaticRelation
from cluster.language.columns import Column
from cluster.language.translation import translate
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
        "SELECT MAX(speed) speed FROM traffic",
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
