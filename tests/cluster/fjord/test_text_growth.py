"""Texts made of others are bounded: what would be too long is NULL, and never made; what doubles is refused."""

from __future__ import annotations

import polars as pl
import pytest
from sqlglot import exp

from cluster.fjord.scalars import compile_scalar
from cluster.fjord.text_growth import TextGrowthError, check_text
from cluster.language.dialect import parse_scalar
from cluster.language.translation import translate
from cluster.plan.scalar_texts import read_scalar
from cluster.scalars import texts as text_functions
from cluster.scalars.texts import LONGEST_TEXT, longest_bytes
from cluster.service.catalog.planning import PlanningContext
from protocols.wire.streams import FieldType
from tests.cluster.fjord.scalar_definition import value_of
from tests.cluster.language.example_catalog import CATALOG

HALF = LONGEST_TEXT // 2
TEXTS = {
    "s": ["a" * HALF, "ß" * HALF, "a" * HALF, "", None, "a", "\N{GRINNING FACE}" * LONGEST_TEXT, "b" * LONGEST_TEXT],
    "t": ["b" * HALF, "ß" * HALF, "b" * (HALF + 1), "x" * LONGEST_TEXT, "b", None, "", "b"],
}
EXPRESSIONS = (
    "s || t", "CONCAT(s, t)", "CONCAT(s, t, '')", "CONCAT(s, NULL, t, 'x')", "s || t || s", "s || ('x' || t)",
    "'y' || s", "COALESCE(s || t, 'too long')", "LENGTH(CONCAT(s, t))", "CONCAT(s || t, s || t)", "UPPER(s) || t",
)  # fmt: skip


@pytest.mark.parametrize("sql", EXPRESSIONS)
def test_what_would_be_too_long_is_null(sql: str) -> None:
    kind = FieldType.INTEGER if sql.startswith("LENGTH") else FieldType.TEXT
    frame = pl.DataFrame(TEXTS)
    found = frame.select(x=compile_scalar(read_scalar(sql, kind)))["x"].to_list()
    tree = parse_scalar(sql)
    assert found == [value_of(tree, row) for row in frame.iter_rows(named=True)]
    assert None in found or sql.startswith(("CO", "'y'", "LENGTH"))


@pytest.mark.parametrize("sql", ["s || s", "CONCAT(s, s)"])
def test_doubling_takes_no_more_than_the_longest_text(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """28 of them once made 1.5 GiB of one letter."""
    made = []
    add = text_functions.operator.add

    def watched(left: pl.Series, right: pl.Series) -> pl.Series:
        found = add(left, right)
        if found.dtype == pl.String:
            made.append(longest_bytes(found))
        return found

    monkeypatch.setattr("cluster.scalars.texts.operator.add", watched)
    frame = pl.DataFrame({"s": ["a"]})
    for _ in range(28):
        frame = frame.select(s=compile_scalar(read_scalar(sql, FieldType.TEXT)))
    assert len(made) == 28
    assert max(made) <= LONGEST_TEXT


def test_constants_are_bounded_too() -> None:
    long = exp.Literal.string("a" * HALF).sql()
    kind = FieldType.TEXT
    assert pl.select(x=compile_scalar(read_scalar(f"{long} || {long} || 'b'", kind))).item() is None
    assert pl.select(x=compile_scalar(read_scalar(f"{long} || {long}", kind))).item() == "a" * LONGEST_TEXT


def doubled(times: int, last: str = "SELECT sensor AS x FROM traffic", made: str = "CONCAT(x, x)") -> str:
    for _ in range(times):
        last = f"SELECT {made} AS x FROM ({last})"
    return last


@pytest.mark.parametrize(
    "sql",
    [
        doubled(14),
        doubled(28),
        doubled(14, made="x || x"),
        doubled(14, made="UPPER(COALESCE(x, 'a')) || CASE WHEN x = 'a' THEN x ELSE x || x END"),
        doubled(7, f"SELECT MAX(x) AS x FROM ({doubled(7)}) WINDOW(RANGE 1 MINUTE)"),
        f"SELECT x FROM ({doubled(14)}) WHERE x LIKE 'a%'",
    ],
)
def test_what_is_doubled_again_and_again_is_refused(sql: str) -> None:
    with pytest.raises(TextGrowthError, match=r"x would be a text of [\d,]+ parts") as caught:
        PlanningContext(CATALOG, {}, frozenset()).rewritten(sql)
    assert "10,000 characters" in (caught.value.hint or "")
    PlanningContext(CATALOG, {}, frozenset()).rewritten(sql, registered=True)


@pytest.mark.parametrize(
    "sql",
    [
        doubled(13),
        doubled(40, made="UPPER(x)"),
        doubled(40, made="CASE WHEN LENGTH(x || x) > 3 THEN x ELSE SUBSTRING(x, 1, 3) END"),
        doubled(20, made="CAST(LENGTH(x || x) AS TEXT)"),
    ],
)
def test_what_stays_small_is_accepted(sql: str) -> None:
    check_text(translate(sql, CATALOG).node)
