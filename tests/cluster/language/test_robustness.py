"""Whatever text comes in, the answer is a plan or a FjordSqlError that points into the text."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from cluster.language.errors import FjordSqlError
from cluster.language.parsing import FjordSqlParser
from cluster.language.translation import SelectStatement, parse_statement, translate, translate_derived
from cluster.operators import NODES
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


WORD = re.compile(r"\w+")
INTERNAL = {
    *NODES,
    *(name for name in vars(exp) if isinstance(getattr(exp, name), type) and not name.istitle()),
    *(word for each in vars(exp).values() if isinstance(each, type) and issubclass(each, exp.Expression)
      for slot in each.arg_types if "_" in slot for word in (slot, slot.upper())),
    *("sqlglot", "mypyc", "Tokenizing", "tokenizing"),
} - {"Istream", "Dstream", "JSON", "JSON_QUERY", "STARTS_WITH"}  # fmt: skip
"""What the code calls its own parts: no user knows these words."""


def _answer(text: str) -> None:
    asked = (
        lambda: translate(text, CATALOG),
        lambda: translate_derived(text, CATALOG),
        lambda: parse_statement(text),
    )
    for ask in asked:
        try:
            ask()
        except FjordSqlError as error:
            words = WORD.findall(f"{error.reason} {error.hint}")
            assert set(words) & INTERNAL <= set(WORD.findall(text))
            assert 0 <= error.start <= error.end <= len(text)
            assert error.line >= 1
            assert error.column >= 1
            assert "^" in error.underlined()
            f"{error} {error.underlined()} {error.hint} {error.text}".encode()


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


PLACES = [
    "SELECT {} AS x FROM traffic",
    "SELECT speed + {} AS x FROM traffic WHERE lane IN (1, {})",
    "SELECT ROUND(speed, {}) AS x FROM traffic",
    "SELECT SUBSTRING(sensor, {}, {}) AS x FROM traffic",
    "SELECT sensor FROM traffic WHERE lane BETWEEN {} AND {}",
    "SELECT APPROX_QUANTILE(speed, {}) AS x FROM traffic WINDOW(RANGE 1 HOUR)",
    "SELECT speed WITHIN {} AS x FROM traffic",
    "SELECT sensor FROM traffic EVENTS(speed ABOVE {} BELOW {})",
    "SELECT sensor FROM traffic WINDOW(ROWS {})",
    "SELECT '{}' AS x FROM traffic WHERE sensor LIKE '{}'",
    "SELECT lane AS {} FROM traffic",
    'SELECT "{}" FROM traffic "{}"',
    "CREATE STREAM roads (lane INTEGER) SOURCE mqtt({}, '{}')",
    "CREATE RELATION roads (lane INTEGER) FROM '{}' WHERE lane > {} REFRESH EVERY 1 MINUTE",
    "CREATE STREAM fresh AS SELECT {} AS x FROM traffic",
    "{}",
]
DIGITS = st.builds(lambda digit, times: digit * times, st.sampled_from("0129"), st.integers(1, 6000))
NUMBERS = st.one_of(
    DIGITS,
    st.builds("{}.{}".format, DIGITS, DIGITS),
    st.builds("{}e{}".format, DIGITS, DIGITS),
    st.sampled_from(["1e", "1e-", "1e+5", ".5", "5.", "1e999", "0x1F", "1_000", "-0", "9223372036854775808"]),
)
ODD_TEXTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=5)
ODD_CHARACTERS = st.sampled_from(
    ["\0", "\ud800", "a\udfffb", "\ufeff", "\x1a", "\u202e", "\u2028", "\u0663", "\u00b2", "\x85"]
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), st.one_of(NUMBERS, ODD_TEXTS, ODD_CHARACTERS))
@example("SELECT {} AS x FROM traffic", "9" * 5000)
@example("CREATE STREAM roads (lane INTEGER) SOURCE mqtt({}, '{}')", "1e")
@example("CREATE RELATION roads (lane INTEGER) FROM '{}' WHERE lane > {} REFRESH EVERY 1 MINUTE", "9" * 5000)
@example("SELECT '{}' AS x FROM traffic WHERE sensor LIKE '{}'", "\ud800")
def test_odd_numbers_and_characters_get_an_answer(place, odd):
    _answer(place.replace("{}", odd))


@pytest.mark.parametrize(
    ("text", "offending", "reason"),
    [
        (f"SELECT {'9' * 5000} AS x FROM traffic", "9" * 5000, "longer than 400 characters"),
        (f"SELECT 0.{'9' * 5000} AS x FROM traffic", f"0.{'9' * 5000}", "longer than 400 characters"),
        ("SELECT 1e AS x FROM traffic", "1e", "'1e' is no number"),
        ("SELECT 'a\0b' AS x FROM traffic", "\ufffd", "a NUL cannot stand"),
        ("SELECT lane FROM traffic \0", "\ufffd", "a NUL cannot stand"),
        ("SELECT 'a\ud83d' AS x FROM traffic", "\ufffd", "half a character (U+D83D)"),
        ("CREATE STREAM a (x REAL) SOURCE mqtt(9223372036854775808)", "9223372036854775808", "does not fit 64 bits"),
        ("CREATE RELATION a FROM 'b' WHERE x > 1e999 REFRESH EVERY 1 HOUR", "1e999", "does not fit 64 bits"),
    ],
)
def test_odd_numbers_and_characters_are_underlined(text, offending, reason):
    with pytest.raises(FjordSqlError) as caught:
        (parse_statement if text.startswith("CREATE") else lambda text: translate(text, CATALOG))(text)
    assert reason in caught.value.reason
    assert caught.value.offending == offending


@pytest.mark.parametrize("arguments", ["", "sensor", "sensor, 'a'", "lane, lane, lane"])
def test_whatever_functions_there_are_elsewhere_each_gets_an_answer(arguments):
    for name in {**FjordSqlParser.FUNCTIONS, **FjordSqlParser.FUNCTION_PARSERS}:
        with contextlib.suppress(FjordSqlError):
            translate(f"SELECT {name}({arguments}) AS x FROM traffic", CATALOG)


def test_a_byte_order_mark_is_skipped():
    plain = "SELECT lane FROM traffic"
    assert translate(f"\ufeff{plain}", CATALOG) == translate(plain, CATALOG)
    assert parse_statement(f"\ufeff{plain}") == SelectStatement(plain)
    derived = f"CREATE STREAM a AS {plain}"
    assert translate_derived(f"\ufeff{derived}", CATALOG) == translate_derived(derived, CATALOG)
    with pytest.raises(FjordSqlError) as caught:
        translate("\ufeffSELECT nosuch FROM traffic", CATALOG)
    assert (caught.value.column, caught.value.offending) == (8, "nosuch")
