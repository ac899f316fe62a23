"""Tests that take NULL for a value, and rows in lists: every combination of values, by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from cluster.fjord.scalars import compile_scalar
from cluster.language.translation import translate, translate_derived
from cluster.operators import Project
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.language.example_catalog import CATALOG

BOOLEAN, TEXT = FieldType.BOOLEAN, FieldType.TEXT
ROWS = pl.DataFrame({"b": [True, False, None], "s": ["Ab", "ß", None], "i": [1, 2, None], "r": [1.0, 3.5, None]})


def found(sql: str, kind: FieldType = BOOLEAN) -> list[Any]:
    return ROWS.select("b", compile_scalar(read_scalar(sql, kind)).alias("#x"))["#x"].to_list()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("b IS TRUE", [True, False, False]),
        ("b IS FALSE", [False, True, False]),
        ("NOT b IS TRUE", [False, True, True]),
        ("NOT b IS FALSE", [True, False, True]),
        ("b IS NULL", [False, False, True]),
        ("(i > 1) IS TRUE", [False, True, False]),
        ("CAST(NULL AS BOOLEAN) IS FALSE", [False, False, False]),
        ("i IS DISTINCT FROM r", [False, True, False]),
        ("i IS NOT DISTINCT FROM r", [True, False, True]),
        ("i IS DISTINCT FROM NULL", [True, True, False]),
        ("NULL IS NOT DISTINCT FROM s", [False, False, True]),
        ("s IS NOT DISTINCT FROM 'Ab'", [True, False, False]),
        ("9007199254740993 IS NOT DISTINCT FROM 9007199254740992.0 AND b IS NULL", [False, False, True]),
        ("s ILIKE 'aB'", [True, False, None]),
        ("s ILIKE 'ẞ'", [False, True, None]),
        ("s ILIKE 'ss'", [False, False, None]),
        ("NOT s ILIKE 'A_'", [False, True, None]),
        ("s ILIKE 'A!b' ESCAPE '!'", [True, False, None]),
        ("s LIKE 'aB'", [False, False, None]),
    ],
)
def test_of_every_value(sql: str, expected: list[bool | None]) -> None:
    assert found(sql) == expected


def of_query(text: str, kind: FieldType) -> list[Any]:
    derived = "CREATE STREAM x AS SELECT open AS b, sensor AS s, lane AS i, speed AS r FROM traffic"
    stream = translate_derived(derived, CATALOG)
    node = translate(f"SELECT {text} AS x FROM x", CATALOG.with_stream(stream)).node
    assert isinstance(node, Project)
    names = {"open": "b", "sensor": "s", "lane": "i", "speed": "r"}
    scalar = node.outputs[0].scalar
    rows = ROWS.with_columns(ROWS[name].alias(column) for column, name in names.items())
    assert scalar.type is kind
    return rows.with_row_index("#").select("#", compile_scalar(scalar).alias("#x"))["#x"].to_list()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("(i, b) IN ((1, TRUE))", [True, False, None]),
        ("(i, b) NOT IN ((1, TRUE))", [False, True, None]),
        ("(i, b) IN ((2, TRUE), (1, NULL))", [None, False, None]),
        ("(i, b) NOT IN ((2, TRUE), (1, NULL))", [None, True, None]),
        ("(i, 5) IN ((NULL, 6))", [False, False, False]),
        ("(i, r) IN ((1, 1), (2, 3.5))", [True, True, None]),
    ],
)
def test_a_row_is_in_a_list_if_all_its_values_are_equal(sql: str, expected: list[bool | None]) -> None:
    assert of_query(sql, BOOLEAN) == expected


def test_concat_takes_what_cast_gives_and_leaves_nulls_out() -> None:
    assert of_query("CONCAT(i, '|', b, '|', r, NULL, s)", TEXT) == ["1|true|1.0Ab", "2|false|3.5ß", "||"]
