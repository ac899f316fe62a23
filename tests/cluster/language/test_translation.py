"""Every construct of the language, as pairs of query and plan in fixtures/*.sql; and what trees do not show."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.language.catalog import Catalog
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.operators import Aggregate, Node, Source
from cluster.operators.columns import AggregateCall, Column
from cluster.operators.source import Detector
from cluster.plan import stored_plans
from cluster.plan.explain import explain
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.language.example_catalog import CATALOG
from tests.cluster.language.fixture_files import pairs

PAIRS = pairs(Path(__file__).parent / "fixtures")


@pytest.mark.parametrize(("query", "expected"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS])
def test_query_becomes_plan(query, expected):
    assert explain(translate(query, CATALOG).node) == expected


@pytest.mark.parametrize("query", [pair[1] for pair in PAIRS], ids=[pair[0] for pair in PAIRS])
def test_plan_is_well_formed(query):
    def check(node: Node) -> None:
        names = [column.name.casefold() for column in node.schema]
        assert len(set(names)) == len(names)
        for each in node.inputs:
            check(each)
        if hasattr(node, "right") and type(node).__name__ in ("Union", "Difference", "Intersection"):
            assert node.left.schema == node.right.schema

    node = translate(query, CATALOG).node
    check(node)
    assert stored_plans.read(stored_plans.written(node)) == node


@pytest.mark.parametrize(
    ("expression", "type_", "unit"),
    [
        ("speed", FieldType.REAL, "mph"),
        ("speed + speed", FieldType.REAL, "mph"),
        ("speed * 2", FieldType.REAL, ""),
        ("-lane", FieldType.INTEGER, ""),
        ("lane + 1", FieldType.INTEGER, ""),
        ("lane + 1.0", FieldType.REAL, ""),
        ("lane / 2", FieldType.REAL, ""),
        ("lane % 2", FieldType.INTEGER, ""),
        ("ROUND(speed)", FieldType.REAL, "mph"),
        ("ABS(lane)", FieldType.INTEGER, ""),
        ("COALESCE(NULL, lane, 0.5)", FieldType.REAL, ""),
        ("speed > lane", FieldType.BOOLEAN, ""),
        ("sensor || 'x'", FieldType.TEXT, ""),
        ("LENGTH(sensor)", FieldType.INTEGER, ""),
        ("CAST(speed AS integer)", FieldType.INTEGER, "mph"),
        ("CAST(speed AS text)", FieldType.TEXT, ""),
        ("CASE WHEN open THEN 1 WHEN NOT open THEN 2.5 END", FieldType.REAL, ""),
        ("CASE lane WHEN 1 THEN 'a' ELSE sensor END", FieldType.TEXT, ""),
        ("AVG(lane)", FieldType.REAL, ""),
        ("SUM(lane)", FieldType.INTEGER, ""),
        ("SUM(speed)", FieldType.REAL, "mph"),
        ("COUNT(DISTINCT speed)", FieldType.INTEGER, ""),
        ("MAX(sensor)", FieldType.TEXT, ""),
        ("MEDIAN(lane)", FieldType.REAL, ""),
        ("STDDEV_POP(speed)", FieldType.REAL, "mph"),
        ("VAR_POP(lane)", FieldType.REAL, ""),
        ("BOOL_OR(open)", FieldType.BOOLEAN, ""),
        ("ARG_MAX(speed, sensor)", FieldType.REAL, "mph"),
        ("MIN_BY(sensor, speed)", FieldType.TEXT, ""),
        ("MODE(speed)", FieldType.REAL, "mph"),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY speed)", FieldType.REAL, "mph"),
        ("PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY lane)", FieldType.INTEGER, ""),
        ("SUM(speed) FILTER (WHERE open)", FieldType.REAL, "mph"),
        ("COUNT(*) FILTER (WHERE open)", FieldType.INTEGER, ""),
        ("FIRST(open)", FieldType.BOOLEAN, ""),
        ("COMPLETENESS()", FieldType.REAL, ""),
        ("APPROX_QUANTILE(speed, 0.5)", FieldType.REAL, "mph"),
    ],
)
def test_expression_has_type_and_unit(expression, type_, unit):
    node = translate(f"SELECT {expression} AS x FROM traffic WINDOW(RANGE 1 HOUR)", CATALOG).node
    assert node.schema == (Column("x", type_, unit),)


@pytest.mark.parametrize(
    ("query", "warning"),
    [
        ("SELECT lane FROM traffic WINDOW(ROWS 10)", "arbitrary"),
        ("SELECT lane FROM traffic WINDOW(PARTITION BY sensor ROWS 10)", "arbitrary"),
        ("SELECT speed + flow AS x FROM traffic", "mixes mph and vehicles/h"),
        ("SELECT lane FROM traffic WHERE speed < flow", "mixes mph and vehicles/h"),
        ("SELECT speed FROM traffic UNION ALL SELECT wind FROM weather", "mixes mph and km/h"),
        ("SELECT lane FROM traffic WINDOW(PARTITION BY sensor RANGE 1 DAY)", "PARTITION BY changes nothing"),
        (
            "SELECT COUNT(*) AS n FROM traffic WINDOW(SESSION GAP 5 MINUTES) GRANULARITY(1 MINUTE)",
            "GRANULARITY leaves almost nothing of sessions",
        ),
        (
            "SELECT n FROM (SELECT COUNT(*) AS n FROM traffic WINDOW(SESSION GAP 1 HOUR)) AS s GRANULARITY(1 MINUTE)",
            "GRANULARITY leaves almost nothing of sessions",
        ),
        ("SELECT lane FROM traffic WINDOW(PARTITION BY sensor RANGE UNBOUNDED)", "PARTITION BY changes nothing"),
        ("SELECT lane FROM traffic WINDOW(PARTITION BY sensor ROWS UNBOUNDED)", "PARTITION BY changes nothing"),
    ],
)
def test_author_is_warned(query, warning):
    warnings = translate(query, CATALOG).warnings
    assert len(warnings) == 1
    assert warning in warnings[0]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT lane FROM traffic",
        "SELECT lane FROM traffic WINDOW(RANGE 1 US)",
        "SELECT lane FROM traffic WINDOW(RANGE MIN 1 HOUR, MAX 2 HOURS)",
        "SELECT AVG(speed) AS s FROM traffic WINDOW(RANGE 1 HOUR) WHERE speed > 3",
    ],
)
def test_author_of_a_plain_query_is_not_warned(query):
    assert translate(query, CATALOG).warnings == ()


def test_query_says_which_streams_it_reads():
    text = "WITH q AS (SELECT sensor FROM TRAFFIC) SELECT * FROM q WHERE sensor IN (SELECT sensor FROM weather)"
    assert translate(text, CATALOG).reads == {"traffic", "weather"}


def test_two_spellings_of_a_query_are_one_plan():
    one = "SELECT t.speed AS s FROM traffic t WINDOW(RANGE 60 SECONDS) WHERE ((t.speed) > 3);"
    other = "select SPEED s from Traffic window(range 1 minute) as x where (x.speed > 3)"
    assert translate(one, CATALOG).node == translate(other, CATALOG).node


def test_stamps_of_a_stream_are_no_columns():
    node = translate("SELECT * FROM OpenAuction", CATALOG).node
    assert isinstance(node, Source)
    assert [column.name for column in node.columns] == ["itemID", "sellerID", "start_price"]


def test_source_holds_what_its_sensors_should_know():
    text = (
        "SELECT * FROM traffic EVENTS(Speed ABOVE 60 BELOW 40) LIFETIME 1 DAY SAMPLE EVERY 10 MS AT LEAST EVERY 50 MS"
    )
    assert translate(text, CATALOG).node == Source(
        "traffic",
        (Column("sensor", FieldType.TEXT), Column("passing_us", FieldType.INTEGER, "us")),
        sample_period_us=10_000,
        slowest_us=50_000,
        lifetime_us=86_400_000_000,
        detector=Detector("speed", 60.0, 40.0),
        fixed=("sensor",),
    )


def test_the_column_of_events_cannot_be_a_fixed_field_too():
    fields = (Field("passing_us", FieldType.INTEGER, fixed=True), Field("level", FieldType.REAL))
    with pytest.raises(FjordSqlError, match="an event has a column 'passing_us', and so has the stream"):
        translate("SELECT * FROM road EVENTS(level ABOVE 1)", Catalog.of([StreamSchema("road", fields)]))


def test_completeness_has_no_argument():
    node = translate("SELECT COMPLETENESS() FROM traffic WINDOW(RANGE 1 HOUR)", CATALOG).node
    assert isinstance(node, Aggregate)
    assert node.calls == (AggregateCall("completeness", "completeness", None, FieldType.REAL),)


def test_a_plan_written_before_there_were_events_is_read():
    old = b'{"type":"Source","stream":"s","columns":[],"sample_period_us":null,"tolerances":[],"occurrence":0}'
    assert stored_plans.read(old) == Source("s", ())
