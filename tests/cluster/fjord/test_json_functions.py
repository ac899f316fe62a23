"""JSON documents: known values, random documents against Python's own reader, limits, and how work grows."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.expressions.nodes import Call, Column, Literal
from cluster.fjord.scalars import function_of
from cluster.scalars import json_documents as documents
from cluster.scalars.json_documents import DEEPEST_DOCUMENT, MOST_STEPS, path_text
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType
from tests.cluster.fjord.document_definition import OF_DOCUMENTS, document_of
from tests.counted_calls import calls
from tests.peak_memory import growth_kib

FUNCTIONS = {
    "JsonValue": documents.scalars, "JsonQuery": documents.containers, "JsonExists": documents.presence,
    "JsonExtract": documents.parts, "JsonExtractString": documents.texts,
}  # fmt: skip
DEFINED = {kind.__name__: definition for kind, definition in OF_DOCUMENTS.items()}
NOTHING = (None, None, False, None, None)
ARRAY, ESCAPED, LARGE = '[1.50,{"b":"x  y"}]', r'"x\n\u00e9\ud83d\ude00\/"', "12345678901234567890123"
MALFORMED = (None,) * 5


def found(text: str | None, path: str) -> tuple[Any, ...]:
    """What all five functions give: value, query, exists, extract, text."""
    return tuple(function(path)(pl.Series([text], dtype=pl.String)).item() for function in FUNCTIONS.values())


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('{"a": {"b": [10, 20]}}', "$.a.b[1]", ("20", None, True, "20", "20")),
        ('{"a": {"b": [10, 20]}}', "$.a.b[-1]", ("20", None, True, "20", "20")),
        ('{"a": {"b": [10, 20]}}', "$.a.b[2]", NOTHING),
        ('{"a": {"b": [10, 20]}}', "$.a.b[-3]", NOTHING),
        ('{"a": {"b": [10, 20]}}', "$.a[0]", NOTHING),
        ('[{"a": 1}]', "$.a", NOTHING),  # no array is unwrapped
        ('{"a": [ 1.50 , {"b" : "x  y"} ]}', "$.a", (None, ARRAY, True, ARRAY, ARRAY)),
        ('{"a": null}', "$.a", (None, None, True, "null", None)),
        (f'{{"a": {ESCAPED}}}', "$.a", ("x\né😀/", None, True, ESCAPED, "x\né😀/")),
        ('{"a": true}', "$.a", ("true", None, True, "true", "true")),
        (f'{{"a": {LARGE}}}', "$.a", (LARGE, None, True, LARGE, LARGE)),
        ('{"a": 1E+400}', "$.a", ("1E+400", None, True, "1E+400", "1E+400")),
        ('{"a": 1, "a": 2}', "$.a", ("2", None, True, "2", "2")),
        ('{"\\u0061": 1}', "$.a", ("1", None, True, "1", "1")),
        ('{"": {"b c": 1}}', '$[""]["b c"]', ("1", None, True, "1", "1")),
        ('"a"', "$", ("a", None, True, '"a"', "a")),
        (" 7 ", "$", ("7", None, True, "7", "7")),
        ('{"a": 1', "$.a", MALFORMED),
        ('{"a": 1} x', "$.a", MALFORMED),
        ('{"a": 1, "b": NaN}', "$.a", MALFORMED),
        ('{"a": 1, "b": "\\ud800"}', "$.a", MALFORMED),
        ('{"a": 1, "b": 01}', "$.a", MALFORMED),
        ("{'a': 1}", "$.a", MALFORMED),
        ("", "$", MALFORMED),
        (None, "$", MALFORMED),
    ],
)  # fmt: skip
def test_known_values(text: str | None, path: str, expected: tuple[Any, ...]) -> None:
    assert found(text, path) == expected


KEYS = st.sampled_from(["a", "b", "é", "a b", '"', "\\", "$a", "", "0"])
SPACES = st.text(" \t\r\n", max_size=2)
NUMBERS = st.sampled_from(
    ["0", "-0", "7", "1.50", "-1e5", "1E+400", "1e-400", "12345678901234567890123", "01", "1.", "+1", ".5", "NaN", "-"]
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=4).flatmap(
    lambda text: st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False)])
) | st.sampled_from(['"\\ud800"', '"\\ud83d\\ude00"', '"\\x"', '"a\tb"', "'a'", '"\\u00e"', '"\\/"', '"\\u0000"'])
LEAVES = NUMBERS | TEXTS | st.sampled_from(["true", "false", "null", "nul", ""])


@st.composite
def written_documents(draw: Any, depth: int = 3) -> str:
    """A document as devices write them; sometimes none, sometimes with a key twice."""
    before, behind = draw(SPACES), draw(SPACES)
    kind = draw(st.integers(0, 2)) if depth else 0
    if kind == 0:
        return f"{before}{draw(LEAVES)}{behind}"
    inner = written_documents(depth - 1)
    if kind == 1:
        return f"{before}[{','.join(draw(st.lists(inner, max_size=3)))}]{behind}"
    pairs = draw(st.lists(st.tuples(KEYS, inner), max_size=4))
    return f"{before}{{{','.join(f'{draw(SPACES)}{json.dumps(key)}:{value}' for key, value in pairs)}}}{behind}"


PATHS = st.lists(KEYS | st.integers(-3, 3), max_size=4).map(lambda steps: path_text(tuple(steps)))


@settings(max_examples=600, deadline=None)
@given(text=written_documents(), path=PATHS, cut=st.none() | st.integers(0, 40))
def test_random_documents_are_read_as_python_reads_them(text: str, path: str, cut: int | None) -> None:
    text = text if cut is None else text[:cut] + text[cut + 1 :]
    expected = tuple(DEFINED[name](text, path) for name in FUNCTIONS)
    ours = found(text, path)
    for one, other in zip(ours, expected, strict=True):
        if one != other:  # only escapes are written otherwise, and stay as they are in the document
            assert isinstance(one, str)
            assert isinstance(other, str)
            assert one in without_spaces(text)
            assert document_of(one) == document_of(other)


def without_spaces(text: str) -> str:
    """Return a document without spaces between its marks."""
    kept, within, escaped = [], False, False
    for letter in text:
        if within or letter not in " \t\r\n":
            kept.append(letter)
        within ^= letter == '"' and not escaped
        escaped = within and letter == "\\" and not escaped
    return "".join(kept)


def test_documents_as_deep_as_the_limit_are_read_and_deeper_ones_are_not() -> None:
    deep = "[" * DEEPEST_DOCUMENT + "]" * DEEPEST_DOCUMENT
    assert found(deep, "$")[3] == deep
    assert found(f"[{deep}]", "$") == MALFORMED
    assert found("[" * 10**6 + "]" * 10**6, "$") == MALFORMED
    wide = json.dumps([["[{" * 400], *[{}] * 400])
    assert found(wide, "$[1]")[3] == "{}"
    assert found('{"a":"' + "[" * 500 + '\\"[","b":1}', "$.b")[0] == "1"


@pytest.mark.parametrize("piece", ['\\"', '"', "\\", '"\\', '\\\\"', "[]", '"["'])
def test_each_letter_of_a_document_is_looked_at_once(piece: str) -> None:
    """A text without an end, full of escaped quotes, took minutes: a device could send it."""
    text = "[]" * (DEEPEST_DOCUMENT + 1) + '"' + piece * 40_000
    places = [each.span() for each in documents._NESTING.finditer(text)]
    assert all(start < end for start, end in places)
    seen = sum(end - start for start, end in places)
    assert seen >= len(text) - text.count("\\"), "nothing is tried and left"
    assert found(text, "$") == MALFORMED


def test_a_part_that_is_too_long_is_null_and_the_rest_of_its_document_is_not() -> None:
    long, longer = "x" * LONGEST_TEXT, "x" * (LONGEST_TEXT + 1)
    text = json.dumps({"a": long, "b": longer, "c": 1})
    assert found(text, "$.a") == (long, None, True, None, long)
    assert found(text, "$.b") == (None, None, True, None, None)
    assert found(text, "$.c")[0] == "1"
    assert found(text, "$") == (None, None, True, None, None)
    numbers = json.dumps([10**100] * 100)
    assert found(numbers, "$")[1] is None


def test_the_longest_path_is_work_that_grows_with_the_text_and_little_memory() -> None:
    text = '{"a":' * 40 + json.dumps(["é" * 10] * 3_000) + "}" * 40
    series = pl.Series([text] * 10)
    one, many = documents.parts("$.a"), documents.parts("$" + ".a" * MOST_STEPS)
    assert calls(lambda: many(series)) < 20 * MOST_STEPS * calls(lambda: one(series))
    assert growth_kib(lambda: many(series)) < 20_000


def test_the_path_of_a_plan_is_a_constant() -> None:
    call = Call("JSON_VALUE", (Column("s"), Literal(FieldType.TEXT, "$.a")))
    function, identity = function_of(call)
    assert function(pl.Series(['{"a":1}'])).to_list() == ["1"]
    assert identity == ("JSON_VALUE", "$.a")


def test_no_text_gives_none() -> None:
    assert documents.presence("$")(pl.Series([], dtype=pl.String)).dtype == pl.Boolean
    assert documents.scalars("$")(pl.Series([None], dtype=pl.Null)).to_list() == [None]
