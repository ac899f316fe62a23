"""Parameters: each value is one literal, whatever is in it; and errors have their place in the template."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from cluster.language.errors import FjordSqlError
from cluster.language.parameter_values import value_of_word
from cluster.language.parameters import bind, check_names, names_in
from cluster.language.statement_trees import statement_tree
from cluster.language.tokens import marks_in
from cluster.language.translation import parse_statement, translate
from tests.cluster.language.example_catalog import CATALOG

FROM = "SELECT sensor FROM traffic"


def bound(text: str, **values: object) -> str:
    """Return a text with its values, which must mean something."""
    found = bind(text, values)
    with found.placed():
        translate(found.text, CATALOG)
    return found.text


def refused(text: str, **values: object) -> FjordSqlError:
    with pytest.raises(FjordSqlError) as caught:
        bound(text, **values)
    return caught.value


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("{} WHERE speed < :limit", {"limit": 40}, "{} WHERE speed < 40"),
        ("{} WHERE speed < :limit", {"LIMIT": 1.5}, "{} WHERE speed < 1.5"),
        ("{} WHERE speed < :Limit OR speed > :limit", {"limit": 1e300}, "{} WHERE speed < 1e+300 OR speed > 1e+300"),
        ("{} WHERE sensor = :road", {"road": "A 7"}, "{} WHERE sensor = 'A 7'"),
        ("{} WHERE sensor = :road", {"road": "it's"}, "{} WHERE sensor = 'it''s'"),
        ("{} WHERE sensor = :road -- :no", {"road": "x' OR TRUE --"}, "{} WHERE sensor = 'x'' OR TRUE --' -- :no"),
        ("{} WHERE sensor = ':road' AND open = :b", {"b": True}, "{} WHERE sensor = ':road' AND open = TRUE"),
        ("{} WHERE lane IN (1, :a,:b)", {"a": 2, "b": None}, "{} WHERE lane IN (1, 2,NULL)"),
        ("{} WHERE speed -:a<3", {"a": -5}, "{} WHERE speed - -5<3"),
        ("{} WHERE speed -:a<3", {"a": -0.0}, "{} WHERE speed - -0.0<3"),
        ("{} WHERE lane = :a", {"a": -(2**63)}, "{} WHERE lane = -9223372036854775808"),
        (
            "{} WHERE sensor ~ :a AND REGEXP_EXTRACT(sensor, :a, :b) = REGEXP_REPLACE(sensor, :a, :c)",
            {"a": "(a)'", "b": 1, "c": r"\1"},
            r"{} WHERE sensor ~ '(a)''' AND REGEXP_EXTRACT(sensor, '(a)''', 1) = REGEXP_REPLACE(sensor, '(a)''', '\1')",
        ),
        (
            "{} WHERE JSON_VALUE(sensor, :a) = sensor -> :b ->> :c",
            {"a": "$.a", "b": "it's", "c": -1},
            "{} WHERE JSON_VALUE(sensor, '$.a') = sensor -> 'it''s' ->> -1",
        ),
        ("{} WHERE sensor LIKE :a ESCAPE :b", {"a": "5$%", "b": "$"}, "{} WHERE sensor LIKE '5$%' ESCAPE '$'"),
        ("{} WHERE lane BETWEEN :a AND\n:b", {"a": 1, "b": 2}, "{} WHERE lane BETWEEN 1 AND\n2"),
        ("{} WINDOW(RANGE :a SLIDE :b)", {"a": "5 MINUTES", "b": "30s"}, "{} WINDOW(RANGE 5 MINUTES SLIDE 30 s)"),
        ("{} WINDOW(RANGE :a MINUTES)", {"a": 1.5}, "{} WINDOW(RANGE 1.5 MINUTES)"),
        ("{} WINDOW(RANGE :a MINUTES)", {"a": "1.5"}, "{} WINDOW(RANGE 1.5 MINUTES)"),
        ("{} WINDOW(ROWS :a)", {"a": 10}, "{} WINDOW(ROWS 10)"),
        ("{} SINCE :a AGO", {"a": "2 HOURS"}, "{} SINCE 2 HOURS AGO"),
        ("{} SAMPLE RATE :a AT LEAST EVERY :b", {"a": "1 HZ", "b": "4 S"}, "{} SAMPLE RATE 1 HZ AT LEAST EVERY 4 S"),
        ("{} SAMPLE EVERY :a t", {"a": "1 S"}, "{} SAMPLE EVERY 1 S t"),
        ("{} WHERE speed WITHIN :a < 5 LIFETIME :b", {"a": 0.5, "b": "9 DAYS"},
         "{} WHERE speed WITHIN 0.5 < 5 LIFETIME 9 DAYS"),
        ("{} t WINDOW(RANGE 1 HOUR) GRANULARITY(:a)", {"a": "1 MINUTE"},
         "{} t WINDOW(RANGE 1 HOUR) GRANULARITY(1 MINUTE)"),
        ("SELECT lane FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY lane HAVING COUNT(*) > :n", {"n": 3},
         "SELECT lane FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY lane HAVING COUNT(*) > 3"),
        ("SELECT :a AS x, ROUND(speed, :b) AS y FROM traffic", {"a": "x", "b": 1},
         "SELECT 'x' AS x, ROUND(speed, 1) AS y FROM traffic"),
        ("SELECT HYSTERESIS(speed - :c ABOVE :a BELOW :b) OVER () FROM traffic", {"a": 5, "b": -0.5, "c": -1},
         "SELECT HYSTERESIS(speed - -1 ABOVE 5 BELOW -0.5) OVER () FROM traffic"),
        ("SELECT sensor FROM traffic EVENTS(speed ABOVE :a BELOW :b)", {"a": 5, "b": -0.5},
         "SELECT sensor FROM traffic EVENTS(speed ABOVE 5 BELOW -0.5)"),
        ("SELECT a.sensor FROM traffic a ZIP JOIN weather b WITHIN :a TO :b ON a.sensor = b.sensor",
         {"a": "-1 S", "b": "1 S"},
         "SELECT a.sensor FROM traffic a ZIP JOIN weather b WITHIN -1 S TO 1 S ON a.sensor = b.sensor"),
        ("{} WHERE lane = :order EMIT FINAL;", {"order": 1}, "{} WHERE lane = 1 EMIT FINAL;"),
    ],
)  # fmt: skip
def test_a_value_stands_as_a_literal_in_place_of_its_parameter(
    template: str, values: dict[str, object], text: str
) -> None:
    assert bound(template.replace("{}", FROM), **values) == text.replace("{}", FROM)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_whatever_is_in_a_text_it_stays_one_value(value: str) -> None:
    found = bind(f"{FROM} WHERE sensor =:a OR sensor=:a/* '*/ AND lane < 3 -- :a'", {"a": value})
    where = statement_tree(found.text).args["where"].this
    assert [each.this for each in where.find_all(exp.Literal) if each.is_string] == [value, value]
    assert isinstance(where, exp.Or)
    assert isinstance(where.expression, exp.And)


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_are_read_back_as_they_were(value: float) -> None:
    (column,) = statement_tree(bind("SELECT 2 *:a AS x FROM traffic", {"a": value}).text).expressions
    number = column.this.expression
    read = type(value)(number.name) if isinstance(number, exp.Literal) else -type(value)(number.this.name)
    assert read == value
    assert math.copysign(1, read) == math.copysign(1, value)


@pytest.mark.parametrize(
    ("text", "values", "message", "hint", "offending"),
    [
        ("{} WHERE speed < :limit", {}, "the parameter :limit has no value", "--set limit=VALUE", ":limit"),
        ("{} WHERE speed < :a + :b + :a", {}, "the parameters :a, :b have no values", "--set a=VALUE", ":a"),
        ("{} WHERE speed < :limit", {"limt": 1}, "there is no parameter 'limt'", "did you mean limit?", ""),
        (FROM, {"limit": 1}, "there is no parameter 'limit'", "one is written :name", ""),
        ("{} WHERE open AND:a", {"A": True}, "there is no parameter 'A'", "write a space before :A", ":a"),
        ("{} WHERE speed > 1:a", {"a": 1}, "there is no parameter 'a'", "write a space before :a", ":a"),
        ("{} WHERE sensor = 'x:a'", {"a": 1}, "there is no parameter 'a'", "one is written :name", ""),
        ("{} WHERE speed < :a", {"a": 1, "A": 2}, "the parameter 'a' has two values", "have no case", ""),
        ("{} WHERE speed < :a", {"a": "fast"}, "real and text do not go together", ":a is the TEXT 'fast'",
         "speed < :a"),
        ("{} WHERE sensor = :a", {"a": 7}, "text and integer do not go together", ":a is the INTEGER 7", "sensor = :a"),
        ("{} WHERE sensor = :a", {"a": True}, "text and boolean do not go together", ":a is the BOOLEAN TRUE",
         "sensor = :a"),
        ("{} WHERE lane = :a", {"a": 2**63}, "does not fit 64 bits", ":a is the INTEGER 9223372036854775808", ":a"),
        ("{} WHERE speed = :a", {"a": math.inf}, "is larger than any REAL", "about 1.8e308", ":a"),
        ("{} WHERE speed = :a", {"a": math.nan}, "nan is no number of FjordSQL", "write NULL", ":a"),
        ("{} WHERE sensor = :a", {"a": "x\0"}, "a NUL cannot stand in a statement", ":a is the TEXT 'x", ":a"),
        ("{} WINDOW(RANGE :a)", {"a": "soon"}, "a number was expected here, perhaps with a unit", "5 MINUTES", ":a"),
        ("{} WINDOW(RANGE :a)", {"a": None}, "perhaps with a unit, not NULL", "5 MINUTES", ":a"),
        ("{} WINDOW(RANGE :a)", {"a": "5 MINUTS"}, "'MINUTS' is no unit of time", "did you mean MINUTES?", ":a"),
        ("{} WINDOW(RANGE :a)", {"a": 5}, "a duration needs a unit", ":a is the INTEGER 5", ":a"),
        ("{} WINDOW(RANGE :a MINUTES)", {"a": "5 S"}, "cannot stand before MINUTES", "leave MINUTES out", ":a"),
        ("{} WINDOW(ROWS :a)", {"a": -1}, "a positive number was expected", ":a is the INTEGER -1", ":a"),
        ("{} WINDOW(ROWS :a)", {"a": 1.5}, "not a positive whole number", ":a is the REAL 1.5", ":a"),
        ("{} WINDOW(ROWS :a)", {"a": True}, "not the BOOLEAN TRUE", "such as 10", ":a"),
        ("{} EVENTS(speed ABOVE :a)", {"a": "5"}, "a number was expected here, not the TEXT '5'", None, ":a"),
        ("{} EVENTS(speed ABOVE -:a)", {"a": 5}, "a sign cannot stand before a parameter", "into the value", "-"),
        ("SELECT speed FROM :a", {"a": "traffic"}, "a parameter cannot stand here", "names and words", ":a"),
        ("SELECT :a FROM :b", {"a": 1, "b": "traffic"}, "a parameter cannot stand here", "names and words", ":b"),
        ("SELECT lane AS :a FROM traffic", {"a": "x"}, "a parameter cannot stand here", "names and words", ":a"),
        ("{} WHERE :a.lane = 1", {"a": "traffic"}, "a parameter cannot stand here", "names", ":a"),
        ("{} WHERE traffic.:a = 1", {"a": "lane"}, "a parameter cannot stand here", "names", ":a"),
        ("SELECT CAST(lane AS :a) AS x FROM traffic", {"a": "TEXT"}, "a parameter cannot stand here", "names", ":a"),
        ("SELECT lane FROM traffic WINDOW(RANGE 5 :a)", {"a": "MINUTES"}, "a parameter cannot stand", "names", ":a"),
        ("SELECT lane FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY (:a)", {"a": 1}, "cannot stand here", "names", ":a"),
        ("{} WHERE lane IN :a", {"a": "1, 2"}, "a parameter cannot stand here", "names and words", ":a"),
        ("{} WHERE sensor = :a 'x'", {"a": "y"}, "\"'x'\" was not expected here", None, "'x'"),
        ("{} WHERE sensor = 'x' :a", {"a": "y"}, "a parameter cannot stand here", "names and words", ":a"),
        ("{} WHERE speed < ?", {}, "'?' is not part of FjordSQL", None, "?"),
        ("CREATE STREAM x AS SELECT :a FROM traffic", {"a": 1}, "a declaration has no parameters", "write the", ":a"),
    ],
)  # fmt: skip
def test_an_error_names_the_place_in_the_template_and_what_to_do(
    text: str, values: dict[str, object], message: str, hint: str | None, offending: str
) -> None:
    text = text.replace("{}", FROM)
    error = refused(text, **values)
    assert message in error.message
    assert hint is None or hint in (error.hint or "")
    assert (error.text, error.offending) == (text, offending)


def test_places_behind_values_are_those_of_the_template() -> None:
    text = f"{FROM}\nWHERE sensor = :a OR\n  sensor=:a OR sped = 1"
    error = refused(text, a="a long 'text'\nof two lines")
    assert (error.line, error.column, error.offending) == (3, 16, "sped")


def test_a_value_cannot_change_the_shape_of_a_query() -> None:
    error = refused("SELECT :a::TEXT AS x FROM traffic", a=-3)
    assert error.reason == "with this value the query would have another shape"
    assert bound("SELECT (:a)::TEXT AS x FROM traffic", a=-3)


def test_a_text_with_parameters_is_refused_where_nothing_is_bound() -> None:
    for read in (lambda text: translate(text, CATALOG), parse_statement):
        with pytest.raises(FjordSqlError, match="the parameter :a has no value"):
            read(f"{FROM} WHERE lane = :a")


def test_a_colon_begins_a_parameter_only_before_a_name_and_behind_no_name() -> None:
    assert [each.name for each in marks_in(":a x=:b_1 c:d e::f 5:g ':h' \":i\" -- :j\n/*:k*/ : l :5 'm':n :ß :o")] == [
        *("a", "b_1", "ß", "o"),
    ]
    assert names_in(":a :B :A") == ("a", "b")


def test_a_text_that_is_never_closed_is_refused_as_such() -> None:
    assert "never closed" in refused(f"{FROM} WHERE lane = :a AND sensor = 'x", a=1).message


def test_names_may_be_those_of_any_text() -> None:
    check_names(["SELECT :a", "SELECT :b"], ["A", "b"])
    with pytest.raises(FjordSqlError, match="there is no parameter 'c'"):
        check_names(["SELECT :a", "SELECT :b"], ["c"])


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *(("40", 40), ("-40", -40), ("1.50", 1.5), (".5", 0.5), ("1e3", 1000.0), ("false", False), ("Null", None)),
        *(("", ""), ("A 7", "A 7"), ("'7'", "7"), ("'it''s'", "it's"), ("'it's'", "'it's'"), ("it's", "it's")),
        *(("'", "'"), ("''", ""), ("5 MINUTES", "5 MINUTES"), ("0x10", "0x10"), ("1_000", "1_000"), ("nan", "nan")),
        *(("9" * 200, "9" * 200), ("\u0664", "\u0664")),
    ],
)
def test_a_word_of_the_command_line_is_a_literal_or_a_text(word: str, value: object) -> None:
    found = value_of_word(word)
    assert (found, type(found)) == (value, type(value))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.integers(300, 5_000).map(lambda n: 10**n),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
PLACES = (
    "{} WHERE speed < :v",
    "{} WHERE sensor LIKE :v",
    "{} WHERE lane IN (1, :v)",
    "{} WINDOW(RANGE :v)",
    "{} WINDOW(ROWS :v)",
    "{} WHERE speed WITHIN :v < 5",
)


@given(template=st.sampled_from(PLACES), value=JSON, sign=st.sampled_from((1, -1)))
def test_any_value_is_bound_or_refused_by_an_error_of_ours(template: str, value: Any, sign: int) -> None:
    if isinstance(value, int) and not isinstance(value, bool):
        value *= sign
    try:
        found = bind(template.format(FROM), {"v": value})
    except FjordSqlError as error:
        assert error.reason
    else:
        assert isinstance(value, bool | int | float | str | None)
        assert ":v" not in found.text.replace(str(value), "")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (10**400, "an integer of this many digits is no number of FjordSQL"),
        (-(10**9_000), "an integer of this many digits is no number of FjordSQL"),
        ([1], "a parameter is a number, a text, TRUE, FALSE or NULL, not a list"),
        ({"a": 1}, "a parameter is a number, a text, TRUE, FALSE or NULL, not an object"),
    ],
    ids=["long integer", "longest integer", "list", "object"],
)
@pytest.mark.parametrize("template", PLACES)
def test_what_is_no_value_is_refused_at_its_parameter(template: str, value: Any, reason: str) -> None:
    text = template.format(FROM)
    error = refused(text, v=value)
    assert error.reason == reason
    assert text[error.start : error.end] == ":v"
