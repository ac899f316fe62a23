"""What belongs together without parentheses: as DuckDB reads it, and as earlier versions did in kept texts."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cluster.language.errors import FjordSqlError
from cluster.language.translation import CreateDerivedStream, parse_statement, translate, translate_derived
from cluster.operators import Project
from tests.cluster.language.example_catalog import CATALOG

BOOLEANS = ("TRUE", "FALSE", "CAST(NULL AS BOOLEAN)")
NUMBERS = ("1", "2", "CAST(NULL AS INTEGER)")
SIGNS = ("=", "<>", "<", ">=")
ASKED = ("IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE")
"""What stands behind a condition. DuckDB has no IS UNKNOWN."""


def read(condition: str, *, registered: bool = False) -> str:
    """Return a condition with the parentheses that the language reads into it."""
    node = translate(f"SELECT {condition} AS c FROM traffic", CATALOG, registered=registered).node
    assert isinstance(node, Project)
    return node.outputs[0].scalar.sql


ROWS = "".join(
    f"SELECT {lane}::INTEGER AS lane, {open_}::BOOLEAN AS open, {sensor}::VARCHAR AS sensor UNION ALL "
    for lane in (0, 1, 2, "NULL") for open_ in ("TRUE", "FALSE", "NULL") for sensor in ("'a'", "'ba'", "NULL")
).removesuffix(" UNION ALL ")  # fmt: skip


def values(condition: str) -> list[object]:
    """Return what DuckDB finds a condition to be, row by row."""
    condition = condition.replace("IS UNKNOWN", "IS NULL")
    return [row[0] for row in duckdb.sql(f"SELECT {condition} FROM ({ROWS})").fetchall()]


@pytest.mark.parametrize(
    ("condition", "whole"),
    [
        ("open = open IS NOT TRUE", "(open = open) IS NOT TRUE"),
        ("lane <> 1 IS NULL", "(lane <> 1) IS NULL"),
        ("lane < 1 IS UNKNOWN", "(lane < 1) IS UNKNOWN"),
        ("lane + 1 = 2 IS NULL AND open", "((lane + 1 = 2) IS NULL) AND open"),
        ("NOT lane = 1 IS NULL", "NOT ((lane = 1) IS NULL)"),
        ("lane = 1 IS DISTINCT FROM open", "(lane = 1) IS DISTINCT FROM open"),
        ("open IS NOT DISTINCT FROM lane = 1", "open IS NOT DISTINCT FROM (lane = 1)"),
        ("lane = 1 IS DISTINCT FROM lane = 2", "(lane = 1) IS DISTINCT FROM (lane = 2)"),
        ("lane IS NULL = open", "(lane IS NULL) = open"),
        ("lane IS NULL IS TRUE", "(lane IS NULL) IS TRUE"),
        ("lane BETWEEN 1 AND 2 IS FALSE", "(lane BETWEEN 1 AND 2) IS FALSE"),
        ("lane IN (1, 2) = open", "(lane IN (1, 2)) = open"),
        ("sensor LIKE 'a%' = open IS NULL", "((sensor LIKE 'a%') = open) IS NULL"),
        ("NOT open AND open OR open", "((NOT open) AND open) OR open"),
        ("- lane + 1 < 2 * 3 - 1", "((- lane) + 1) < ((2 * 3) - 1)"),
        ("sensor || 'a' LIKE 'b%'", "(sensor || 'a') LIKE 'b%'"),
    ],
)
def test_conditions_are_read_as_in_postgresql(condition, whole):
    assert values(read(condition)) == values(condition) == values(whole)
    assert values(read(whole)) == values(whole)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """Comparisons and what is asked about them, without a parenthesis but those of CAST."""

    def compared() -> str:
        kind = draw(st.sampled_from((BOOLEANS, NUMBERS)))
        one, other = draw(st.sampled_from(kind)), draw(st.sampled_from(kind))
        return draw(st.sampled_from((f"{one} {draw(st.sampled_from(SIGNS))} {other}", draw(st.sampled_from(BOOLEANS)))))

    parts = []
    for _ in range(draw(st.integers(1, 3))):
        text = compared()
        for _ in range(draw(st.integers(0, 2))):
            distinct = draw(st.sampled_from(("IS DISTINCT FROM", "IS NOT DISTINCT FROM")))
            text += f" {draw(st.sampled_from((*ASKED, f'{distinct} {compared()}')))}"
        parts.append(draw(st.sampled_from(("", "NOT "))) + text)
        parts.append(draw(st.sampled_from(("AND", "OR"))))
    return " ".join(parts[:-1])


@given(conditions())
def test_conditions_without_parentheses_have_the_value_that_they_have_in_duckdb(condition):
    try:
        wanted = values(condition)
    except duckdb.ParserException:  # it takes the comparisons around IS DISTINCT FROM for a chain of them
        assume(condition=False)
    assert values(read(condition)) == wanted, read(condition)


@given(conditions())
def test_a_kept_text_means_the_same_when_it_is_read_again(condition):
    query = translate(f"SELECT {condition} AS c FROM traffic", CATALOG)
    again = translate(query.text, CATALOG, registered=True)
    assert (again.node, again.warnings) == (query.node, query.warnings)
    assert translate(query.text, CATALOG).text == query.text


def test_a_text_that_was_kept_before_keeps_its_meaning_with_a_warning():
    text = "SELECT open = open IS NOT TRUE AS c FROM traffic"
    before = translate(text, CATALOG, registered=True)
    assert before.node == translate("SELECT open = (open IS NOT TRUE) AS c FROM traffic", CATALOG).node
    assert "IS was stronger" in before.warnings[0]
    assert before.text == text
    same_in_both = translate("SELECT lane IS NULL = open AS c FROM traffic", CATALOG, registered=True)
    assert same_in_both.warnings == ()


def test_a_derived_stream_is_kept_with_parentheses():
    text = "CREATE STREAM odd AS SELECT lane FROM traffic WHERE open = open IS NOT TRUE"
    statement = parse_statement(text)
    assert isinstance(statement, CreateDerivedStream)
    assert statement.text == "CREATE STREAM odd AS SELECT lane FROM traffic WHERE (open = open) IS NOT TRUE"
    assert statement.query == "SELECT lane FROM traffic WHERE (open = open) IS NOT TRUE"
    stream = translate_derived(text, CATALOG)
    assert stream.node == translate_derived(statement.text, CATALOG, registered=True).node
    assert stream.text == statement.text
    former = translate_derived(text, CATALOG, registered=True)
    assert former.text == text
    assert former.node != stream.node


def test_errors_have_places_in_the_text_as_it_was_written():
    text = "SELECT open = open IS NULL, nosuch FROM traffic"
    with pytest.raises(FjordSqlError) as caught:
        translate(text, CATALOG)
    assert caught.value.offending == "nosuch"
    assert caught.value.text == text
