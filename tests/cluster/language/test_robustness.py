"""Whatever text comes in, the answer is a plan or a FjordSqlError that points into the text."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.language.errors import FjordSqlError
from cluster.language.translation import parse_statement, translate, translate_derived
from tests.cluster.language.example_catalog import CATALOG
from tests.cluster.language.fixture_files import pairs

QUERIES = [pair[1] for pair in pairs(Path(__file__).parent / "fixtures")]
WORDS = sorted({word for query in QUERIES for word in query.replace("(", " ( ").replace(")", " ) ").split()})
MORE = [
    *("ORDER BY", "LIMIT", "OVER (", "::", "->", "[", "]", "{", "@x", ":y", "?", "''", '"', "'", "--", "/*", "\\", ";"),
    *("LATERAL", "UNNEST(", "VALUES", "INTERVAL '1' DAY", "DATE '2020-01-01'", "x'00'", "1e999", "$1", "NATURAL"),
    *("PIVOT", "QUALIFY", "TABLESAMPLE", "GROUPING SETS", "ROLLUP", "FILTER (WHERE", "WITHIN GROUP", "AT TIME ZONE"),
    *("SELECT", "AS", "IS DISTINCT FROM", "COLLATE", "STRUCT(", "ARRAY[1]", "NOT", "ALL", "ANY", "LAMBDA x : x", "DIV"),
    *("~", "#", "&", "<<", "é", "\x00", "\t", "FOR UPDATE", "INTO x", "TOP 3", "CASE", "END", "WHEN", "TABLE", "ILIKE"),
]


@st.composite
def damaged(draw):
    words = draw(st.sampled_from(QUERIES)).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(" ")
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(words) - 1, 0)))
        match draw(st.sampled_from(["drop", "replace", "insert", "swap", "cut"])):
            case "drop":
                words = words[:place] + words[place + 1 :]
            case "replace":
                words = [*words[:place], draw(st.sampled_from(WORDS + MORE)), *words[place + 1 :]]
            case "insert":
                words = [*words[:place], draw(st.sampled_from(WORDS + MORE)), *words[place:]]
            case "swap":
                words = words[:place] + words[place : place + 2][::-1] + words[place + 2 :]
            case "cut":
                words = words[: place + 1]
    return " ".join(words)


def _answer(text: str) -> None:
    for ask in (lambda: translate(text, CATALOG), lambda: parse_statement(text)):
        try:
            ask()
        except FjordSqlError as error:
            assert 0 <= error.start <= error.end <= len(text)
            assert error.line >= 1
            assert error.column >= 1
            assert "^" in error.underlined()


@settings(max_examples=600, deadline=None)
@given(damaged())
def test_a_damaged_query_gets_an_answer(text):
    _answer(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
@example("'")
@example("/*")
@example("SELECT")
@example("((((")
@example("SELECT * FROM traffic WHERE " + "(" * 200 + "1" + ")" * 200)
@example("SELECT " + "-" * 300 + "1 AS x FROM traffic")
@example("SELECT " + "1 + " * 3000 + "1 AS x FROM traffic")
@example("SELECT " + "NOT " * 3000 + "open AS x FROM traffic")
@example("SELECT " + "(" * 3000)
def test_any_text_gets_an_answer(text):
    _answer(text)


@settings(max_examples=200, deadline=None)
@given(damaged())
def test_a_damaged_derived_stream_gets_an_answer(text):
    try:
        translate_derived(f"CREATE STREAM fresh AS {text}", CATALOG)
    except FjordSqlError as error:
        assert error.offending in error.text
