"""Whether an expression may be NULL: one that is taken for certain would be compared wrongly by NOT IN and ALL."""

from __future__ import annotations

import pytest

from cluster.language.catalog import Catalog
from cluster.language.context import Context
from cluster.language.dialect import parse_scalar
from cluster.language.expressions import Checker
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.translation import translate
from cluster.plan.explain import explain
from protocols.wire.streams import FieldType
from tests.cluster.language.example_catalog import CATALOG

TYPES = {"i": FieldType.INTEGER, "r": FieldType.REAL, "t": FieldType.TEXT, "b": FieldType.BOOLEAN}
COLUMNS = tuple(
    ScopeColumn(f"{letter}{number}", f"{letter}{number}", kind, nullable=maybe)
    for letter, kind in TYPES.items()
    for number, maybe in (("", False), ("0", True))
)
SCOPE = Scope((ScopeItem("q", COLUMNS),))
OF_TWO = (
    "{b} AND {b}", "{b} OR {b}", "{i} = {i}", "{t} < {t}", "{i} + {i}", "{i} * {i}", "{t} || {t}", "{i} IN ({i}, 1)",
    "{i} BETWEEN {i} AND 5", "{i} BETWEEN 1 AND 0 + {i} OR {b}", "SUBSTRING({t}, {i})", "NOT ({b} AND {b})",
    "CASE WHEN {b} THEN {i} ELSE {i} END", "LEAST({i}, {i})", "({b} OR {b}) AND b",
)  # fmt: skip


def nullable(sql: str) -> bool:
    return Checker(SCOPE, Context(sql, Catalog())).check(parse_scalar(sql)).nullable


def written(form: str, *maybe: int) -> str:
    """Return a form in which the columns at some places may be NULL."""
    parts = form.split("{")
    holes = [f"{part[0]}{'0' if place in maybe else ''}{part[2:]}" for place, part in enumerate(parts[1:])]
    return "".join((parts[0], *holes))


@pytest.mark.parametrize("form", OF_TWO)
def test_what_is_made_of_certain_values_is_certain(form: str) -> None:
    assert not nullable(written(form))


@pytest.mark.parametrize("form", [each for each in OF_TWO if not each.startswith(("CASE", "LEAST"))])
@pytest.mark.parametrize("place", [0, 1])
def test_one_value_that_may_be_null_makes_all_of_it_uncertain(form: str, place: int) -> None:
    assert nullable(written(form, place))


def test_a_choice_is_as_certain_as_its_results() -> None:
    assert not nullable("CASE WHEN b0 THEN i ELSE i END")
    assert nullable("CASE WHEN b THEN i0 ELSE i END")
    assert nullable("CASE WHEN b THEN i ELSE i0 END")
    assert nullable("CASE WHEN b THEN i END")


@pytest.mark.parametrize(
    "sql", ["b0 IS TRUE", "NOT b0 IS FALSE", "i0 IS DISTINCT FROM i", "r0 IS NOT DISTINCT FROM NULL"]
)
def test_what_takes_null_for_a_value_is_certain(sql: str) -> None:
    assert not nullable(sql)


def test_a_row_in_a_list_is_as_certain_as_all_its_values() -> None:
    assert not nullable("(i, t) IN ((1, 'a'), (i, t))")
    assert nullable("(i, t0) IN ((1, 'a'))")
    assert nullable("(i, t) IN ((1, 'a'), (i0, t))")


def test_nulls_do_not_count_among_the_least_of_several() -> None:
    assert not nullable("LEAST(i0, i)")
    assert nullable("LEAST(i0, i0)")


@pytest.mark.parametrize(("join", "maybe"), [("", False), ("LEFT", False), ("RIGHT", True), ("FULL", True)])
@pytest.mark.parametrize("way_round", [False, True])
def test_columns_of_the_side_that_may_be_missing_are_uncertain(join: str, maybe: bool, way_round: bool) -> None:
    counted = "(SELECT lane, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY lane) AS q"
    side = {"LEFT": "RIGHT", "RIGHT": "LEFT"}.get(join, join) if way_round else join
    items = ("weather AS w", counted) if way_round else (counted, "weather AS w")
    where = "WHERE q.n >= ALL (SELECT COUNT(*) FROM traffic WINDOW(RANGE 1 HOUR))"
    query = f"SELECT w.wind FROM {items[0]} {side} JOIN {items[1]} ON q.lane = w.wind {where}"
    plan = explain(translate(query, CATALOG).node)
    assert ("n IS NULL" in plan) == maybe
