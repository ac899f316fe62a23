"""Keys and aggregates are known by what they mean, not by how they are written."""

from __future__ import annotations

import pytest
from msgspec import structs

from cluster.language.acquisition import with_sources
from cluster.language.context import Context
from cluster.language.dialect import parse_scalar
from cluster.language.errors import FjordSqlError
from cluster.language.expressions import Checker
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.translation import translate
from cluster.operators import Aggregate, Node, Project, Source
from cluster.operators.columns import AggregateCall, Column
from cluster.operators.scalar_expressions import plain_column
from cluster.operators.source import Tolerance
from cluster.operators.walks import nodes_of
from cluster.plan.rewrite import rewrite
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.language.example_catalog import CATALOG

WINDOW = "FROM traffic AS t WINDOW(RANGE 1 HOUR)"
TWO = "FROM traffic AS t WINDOW(RANGE 1 HOUR), weather AS w WINDOW(RANGE 1 HOUR) WHERE t.sensor = w.sensor"


def calls(sql: str) -> tuple[AggregateCall, ...]:
    """The aggregates of a query."""
    node: Node = translate(sql, CATALOG).node
    while not isinstance(node, Aggregate):
        (node,) = node.inputs
    return node.calls


@pytest.mark.parametrize(
    ("selected", "key"),
    [
        ("t.lane % 2", "lane % 2"), ("lane % 2", "T.LANE % 2"), ("((lane)) % (2)", "lane % 2"),
        ("lane * 1E1", "lane * 1e1"), ("lane * 10.0", "lane * 1e1"),
        ("(t.lane % 2) + 1", "lane % 2"), ("1 - (lane % 2) * 2", "t.lane % 2"), ("lane + 1 + 2", "lane + 1"),
        ("POW(t.speed, 2)", "POWER(speed, 2)"), ("speed <> 1", "t.speed != 1"), ("IF(open, 1, 2)", "IF(t.open, 1, 2)"),
        ("IF(open, 1, 2)", "CASE WHEN t.open THEN 1 ELSE 2 END"), ("CAST(lane AS INT)", "CAST(t.lane AS BIGINT)"),
        ("upper(t.sensor) || '\"'", "UPPER(sensor)"), ("CEILING(speed)", "ceil(t.speed)"),
        ("((lane * 2)) + 1", "lane * 2 + 1"), ("CASE WHEN (open) THEN 1 END", "IF(t.open, (1))"),
        ("CASE WHEN open THEN 1 END", "IF(open, 1)"), ("speed IS NOT NULL", "NOT t.speed IS NULL"),
        ("lane NOT IN (1, 2)", "NOT (t.lane IN (1, 2))"), ("((lane) + ((1))) * 2", "(t.lane + 1) * 2"),
        ("REGEXP_LIKE(sensor, 'a')", "t.sensor ~ ('a')"), ("sensor ~* 'a'", "REGEXP_MATCHES(t.sensor, '(?i)a')"),
    ],
)  # fmt: skip
def test_a_key_is_known_however_it_is_written(selected: str, key: str) -> None:
    translate(f"SELECT {selected} AS x, COUNT(*) AS n {WINDOW} GROUP BY {key}", CATALOG)
    translate(f"SELECT COUNT(*) AS n {WINDOW} GROUP BY {key} HAVING COALESCE({selected}, NULL) IS NOT NULL", CATALOG)


@pytest.mark.parametrize(
    ("selected", "key"),
    [
        ("CAST(speed AS INTEGER)", "CAST(speed WITHIN 2 AS INTEGER)"),
        ("CAST(t.speed WITHIN 2 AS INTEGER)", "CAST(speed AS INTEGER)"),
        ("CAST(t.speed WITHIN 2 AS INTEGER)", "CAST(speed WITHIN 2.0 AS INTEGER)"),
        ("speed + 1", "speed WITHIN 2 + 1"), ("(speed WITHIN 2) + 1", "speed + 1"), ("speed WITHIN 2 + 1", "speed + 1"),
        ("speed", "speed WITHIN 2"), ("speed WITHIN 2", "t.speed"), ("(speed)", "(t.speed WITHIN 2)"),
        ("FLOOR(speed / 10) * 10 + speed", "FLOOR(speed / 10), speed WITHIN 2"),
    ],
)  # fmt: skip
def test_an_error_allowed_makes_no_other_key(selected: str, key: str) -> None:
    query = f"SELECT {selected} AS x, COUNT(*) AS n {WINDOW} GROUP BY {key}"
    node = translate(query, CATALOG).node
    (source,) = (each for each in nodes_of(node) if isinstance(each, Source))
    assert source.tolerances == (Tolerance("speed", 2.0),)
    without = translate(query.replace(" WITHIN 2.0", "").replace(" WITHIN 2", ""), CATALOG).node
    assert with_sources(node, lambda each: structs.replace(each, tolerances=())) == without
    translate(f"SELECT COUNT(*) AS n {WINDOW} GROUP BY {key} HAVING COALESCE({selected}, NULL) IS NOT NULL", CATALOG)


def test_a_key_is_known_by_its_alias() -> None:
    translate(f"SELECT lane % 2 AS p, COUNT(*) AS n {WINDOW} GROUP BY p HAVING p = 1 AND t.lane % 2 = 1", CATALOG)


@pytest.mark.parametrize(
    ("selected", "key"),
    [
        ("2 % lane", "lane % 2"), ("lane % 2.0", "lane % 2"), ("lane % 3", "lane % 2"), ("lane", "lane % 2"),
        ("lane + (1 + 2)", "lane + 1"), ("sensor = 'A'", "sensor = 'a'"), ("sensor = '\"'", "sensor = ''"),
        ("ROUND(speed, 1)", "ROUND(speed)"), ("speed > 1", "speed >= 1"), ("CAST(lane AS TEXT)", "CAST(lane AS REAL)"),
        ("sensor LIKE 'a!%' ESCAPE '!'", "sensor LIKE 'a!%'"),
        ("CASE WHEN open THEN 1 END", "CASE WHEN open THEN 2 END"),
        ("(lane + 1) * 2", "lane + 1 * 2"), ("lane - (lane - 1)", "lane - lane - 1"),
    ],
)  # fmt: skip
def test_what_means_something_else_is_no_key(selected: str, key: str) -> None:
    with pytest.raises(FjordSqlError, match="neither grouped nor aggregated"):
        translate(f"SELECT {selected} AS x, COUNT(*) AS n {WINDOW} GROUP BY {key}", CATALOG)


def test_columns_of_two_streams_are_two_keys() -> None:
    translate(f"SELECT LENGTH(t.sensor) AS x {TWO} GROUP BY LENGTH(t.sensor), LENGTH(w.sensor)", CATALOG)
    with pytest.raises(FjordSqlError, match="neither grouped nor aggregated"):
        translate(f"SELECT LENGTH(w.sensor) AS x {TWO} GROUP BY LENGTH(t.sensor)", CATALOG)
    with pytest.raises(FjordSqlError, match="grouped"):
        translate(f"SELECT LENGTH(sensor) AS x {TWO} GROUP BY LENGTH(t.sensor)", CATALOG)


def test_the_same_key_twice_is_one() -> None:
    node = translate(f"SELECT COUNT(*) AS n {WINDOW} GROUP BY lane % 2, t.lane % 2, (lane % 2)", CATALOG).node
    while not isinstance(node, Aggregate):
        (node,) = node.inputs
    assert node.keys == ("lane % 2",)


def test_looking_for_keys_in_a_long_expression_is_no_more_work_than_checking_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = 0
    check = Checker.check

    def counted(self: Checker, *arguments: object) -> object:
        nonlocal checked
        checked += 1
        return check(self, *arguments)  # type: ignore[arg-type] # handed on as they came

    monkeypatch.setattr(Checker, "check", counted)
    terms = " + ".join(f"MAX(lane + {n})" for n in range(30))
    translate(f"SELECT {terms} + (lane % 2) AS x {WINDOW} GROUP BY lane % 2", CATALOG)
    assert checked < 30 * 12


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("COUNT(CASE WHEN sensor = '\"' THEN 1 END)", "COUNT(CASE WHEN sensor = '' THEN 1 END)"),
        ("MAX(sensor || '\"a')", "MAX(sensor || 'a')"),
        ("MAX(sensor || 'a')", "MAX(sensor || 'A')"),
        ("MAX('\"lane\"' || sensor)", "MAX('lane' || sensor)"),
        ("ARG_MAX(sensor, speed)", "ARG_MAX(sensor, lane)"),
        ("APPROX_QUANTILE(speed, 0.99999991)", "APPROX_QUANTILE(speed, 0.99999992)"),
        ("COUNT(DISTINCT lane)", "COUNT(lane)"),
        ("SUM(lane)", "SUM(lane + 0)"),
        ("MAX(1)", "MAX(1.0)"),
    ],
)
def test_aggregates_that_differ_are_two(one: str, other: str) -> None:
    found = calls(f"SELECT {one} AS a, {other} AS b {WINDOW}")
    assert len(found) == 2
    assert len({call.name.casefold() for call in found}) == 2


def test_aggregates_that_mean_the_same_are_one() -> None:
    assert len(calls(f"SELECT MAX(t.speed) AS a, max((speed)) + 1 AS b {WINDOW} HAVING MAX(SPEED) > 1")) == 1


@pytest.mark.parametrize("key", ["count", "sensor"])
def test_a_column_with_the_name_of_an_aggregate_stays_itself(key: str) -> None:
    inner = f"SELECT sensor, lane AS count {WINDOW}"
    node = translate(f"SELECT {key}, COUNT(*) AS n FROM ({inner}) AS q GROUP BY {key}", CATALOG).node
    while not isinstance(node, Aggregate):
        (node,) = node.inputs
    assert len({*node.keys, *(call.name for call in node.calls)}) == 2


@pytest.mark.parametrize(
    ("sql", "nullable"),
    [
        ("n + 1", False), ("n * 1.5", True), ("n / 2", True), ("n % 2", True), ("EXP(n)", True), ("ABS(n)", False),
        ("-n", False), ("-9223372036854775808", False), ("CAST(n AS REAL)", False), ("n + 0.5", True),
    ],
)  # fmt: skip
def test_what_may_leave_the_reals_may_be_null(sql: str, nullable: bool) -> None:
    select = f"SELECT {sql} AS x FROM (SELECT COUNT(*) AS n {WINDOW}) AS q"
    context = Context(select, CATALOG)
    scope = Scope((ScopeItem("q", (ScopeColumn("n", "n", FieldType.INTEGER, nullable=False),)),))
    assert Checker(scope, context).check(parse_scalar(sql)).nullable is nullable
    translate(select, CATALOG)


@pytest.mark.parametrize("name", ["a", 'a"b', '"', '"a"', '""'])
def test_a_plain_column_is_one_whatever_its_name(name: str) -> None:
    quoted = name.replace('"', '""')
    column = read_scalar(f'"{quoted}"', FieldType.TEXT)
    assert plain_column(column) == name
    assert plain_column(read_scalar(f'"{quoted}" || "{quoted}"', FieldType.TEXT)) is None
    assert Column(name, FieldType.TEXT).name == name


ERRORS = [
    ("SELECT 1e999 AS x FROM traffic", "1e999", "larger than every real"),
    ("SELECT speed FROM traffic WHERE speed > -1e999", "1e999", "larger than every real"),
    ("SELECT 9223372036854775808 AS x FROM traffic", "9223372036854775808", "64 bits"),
    ("SELECT -9223372036854775809 AS x FROM traffic", "9223372036854775809", "64 bits"),
    ("SELECT ROUND(speed, 4294967296) AS x FROM traffic", "4294967296", "0 to 300 decimals"),
    ("SELECT ROUND(speed, 301) AS x FROM traffic", "301", "0 to 300 decimals"),
    ("SELECT ROUND(speed, -1) AS x FROM traffic", "-1", "written out"),
    ("SELECT lane FROM traffic WHERE sensor LIKE 'a!' ESCAPE '!'", "'a!'", "ends with '!'"),
    ("SELECT lane FROM traffic WHERE sensor LIKE '!!!' ESCAPE '!'", "'!!!'", "ends with '!'"),
    (f"SELECT lane FROM traffic WHERE sensor LIKE '{'_' * 1001}'", f"'{'_' * 1001}'", "1,000 characters"),
    (f"SELECT APPROX_QUANTILE(speed, 1e999) AS x {WINDOW}", "1e999", "share from 0 to 1"),
]


@pytest.mark.parametrize(("sql", "offending", "reason"), ERRORS)
def test_values_that_there_are_not_are_refused_with_their_place(sql: str, offending: str, reason: str) -> None:
    with pytest.raises(FjordSqlError, match=reason) as caught:
        translate(sql, CATALOG)
    assert caught.value.offending == offending


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT -9223372036854775808 AS x FROM traffic", "SELECT lane FROM traffic WHERE lane > -9223372036854775808",
        "SELECT ROUND(speed, 300) AS x, ROUND(speed, 0) AS y FROM traffic", "SELECT 1e-999 AS x FROM traffic",
        "SELECT lane FROM traffic WHERE sensor LIKE 'a!!' ESCAPE '!'",
        f"SELECT lane FROM traffic WHERE sensor LIKE '{'_' * 1000}'",
    ],
)  # fmt: skip
def test_values_at_the_ends_are_accepted(sql: str) -> None:
    translate(sql, CATALOG)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("(lane + 1) * 2", '("lane" + 1) * 2'), ("speed / (lane - 2.50)", '"speed" / ("lane" - 2.50)'),
        ("(open OR lane > 1) AND lane < 3", '("open" OR "lane" > 1) AND "lane" < 3'),
    ],
)  # fmt: skip
def test_a_key_is_computed_as_it_is_written_however_often_it_stands_in_the_query(key: str, text: str) -> None:
    select = f"SELECT {key} AS k, COUNT(*) AS n {WINDOW} GROUP BY {key} HAVING ({key}) IS NOT NULL"
    for node in (translate(select, CATALOG).node, rewrite(translate(select, CATALOG).node).node):
        outputs = [output for each in nodes_of(node) if isinstance(each, Project) for output in each.outputs]
        assert [each.scalar.sql for each in outputs if each.name == key] == [text]


def test_the_word_behind_is_is_no_key() -> None:
    (call,) = calls(f"SELECT COUNT(*) AS n {WINDOW} GROUP BY TRUE HAVING (COUNT(*) > 1) IS TRUE")
    assert call.function == "count"


@pytest.mark.parametrize(
    ("by_place", "by_name"),
    [
        (f"SELECT t.sensor, COUNT(*) AS n {WINDOW} GROUP BY 1",
         f"SELECT sensor, COUNT(*) AS n {WINDOW} GROUP BY sensor"),
        (f"SELECT COUNT(*) AS n, lane % 2 AS p {WINDOW} GROUP BY (2)",
         f"SELECT COUNT(*) AS n, lane % 2 AS p {WINDOW} GROUP BY p"),
        (f"SELECT open, lane AS l, MAX(speed) AS m {WINDOW} GROUP BY 2, 1, 2",
         f"SELECT open, lane AS l, MAX(speed) AS m {WINDOW} GROUP BY lane, open"),
    ],
)  # fmt: skip
def test_a_number_in_group_by_is_the_place_of_a_column(by_place: str, by_name: str) -> None:
    assert translate(by_place, CATALOG).node == translate(by_name, CATALOG).node


@pytest.mark.parametrize(
    ("selected", "key"), [("sensor", "t.sensor"), ("T.sensor", "Sensor"), ("t.sensor", "t.sensor")]
)
def test_a_column_is_a_key_with_or_without_the_name_of_its_stream(selected: str, key: str) -> None:
    node = translate(f"SELECT {selected} AS x, COUNT(*) AS n {WINDOW} GROUP BY {key}", CATALOG).node
    assert node == translate(f"SELECT sensor AS x, COUNT(*) AS n {WINDOW} GROUP BY sensor", CATALOG).node


@pytest.mark.parametrize(
    ("filtered", "chosen"),
    [
        ("SUM(speed) FILTER (WHERE lane = 1)", "SUM(IF(lane = 1, speed))"),
        ("COUNT(*) FILTER (WHERE open)", "COUNT(IF(open, 1))"),
        ("COUNT(DISTINCT sensor) FILTER (WHERE lane > 1 OR open)", "COUNT(DISTINCT IF(lane > 1 OR open, sensor))"),
        ("LAST(speed) FILTER (WHERE open)", "LAST(CASE WHEN open THEN speed END)"),
        ("BOOL_OR(open)", "MAX(open)"),
        ("EVERY(open) FILTER (WHERE lane = 1)", "MIN(IF(lane = 1, open))"),
        ("STDDEV_SAMP(speed)", "STDDEV(speed)"),
        ("PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY speed)", "QUANTILE(speed, 0.9)"),
        ("MAX_BY(lane, speed) FILTER (WHERE open)", "ARG_MAX(CASE WHEN open THEN lane END, speed)"),
        ("MODE(lane) FILTER (WHERE open)", "MODE(CASE WHEN open THEN lane END)"),
    ],
)  # fmt: skip
def test_aggregates_with_the_same_meaning_are_computed_once(filtered: str, chosen: str) -> None:
    (call,) = calls(f"SELECT {filtered} AS x, {chosen} AS y {WINDOW}")
    assert (call,) == calls(f"SELECT {chosen} AS y {WINDOW}")


def test_the_condition_of_filter_does_not_choose_the_stream_that_first_goes_by() -> None:
    (call,) = calls(f"SELECT FIRST(t.speed) FILTER (WHERE w.wind > 3) AS x {TWO}")
    (plain,) = calls(f"SELECT FIRST(t.speed) AS x {TWO}")
    assert call.order == plain.order
