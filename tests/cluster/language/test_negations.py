"""NOT in front of a condition and NOT in the middle of it mean the same, and the opposite of neither."""

from __future__ import annotations

import pytest

from cluster.language.dialect import parse_scalar
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.operators import AntiJoin, Filter
from tests.cluster.language.example_catalog import CATALOG
from tests.cluster.language.sqlglot_text import canonical

HOUR = "WINDOW(RANGE 1 HOUR)"
PAIRS = [
    ("sensor NOT LIKE 'a%'", "sensor LIKE 'a%'"),
    (r"sensor NOT LIKE 'a\%' ESCAPE '\'", r"sensor LIKE 'a\%' ESCAPE '\'"),
    ("lane NOT IN (1, 2)", "lane IN (1, 2)"),
    ("lane NOT BETWEEN 1 AND 2", "lane BETWEEN 1 AND 2"),
    ("lane IS NOT NULL", "lane IS NULL"),
    (f"sensor NOT IN (SELECT sensor FROM weather {HOUR})", f"sensor IN (SELECT sensor FROM weather {HOUR})"),
    (f"NOT EXISTS (SELECT * FROM weather {HOUR})", f"EXISTS (SELECT * FROM weather {HOUR})"),
]


@pytest.mark.parametrize(("negated", "condition"), PAIRS)
@pytest.mark.parametrize("rest", ["{}", "lane > 1 AND {}", "lane > 1 OR {}"])
def test_not_within_a_condition_means_not_before_it(negated, condition, rest):
    def plan(condition: str) -> object:
        return translate(f"SELECT sensor FROM traffic {HOUR} WHERE {rest.format(condition)}", CATALOG).node

    assert plan(negated) == plan(f"NOT {condition}")
    assert plan(negated) != plan(condition)


@pytest.mark.parametrize(("negated", "condition"), PAIRS[:5])
def test_not_is_in_the_plan(negated, condition):
    node = translate(f"SELECT * FROM traffic WHERE {negated}", CATALOG).node
    assert isinstance(node, Filter)
    assert node.predicate.sql.startswith("NOT ")
    assert canonical(parse_scalar(node.predicate.sql)) == node.predicate.sql
    assert canonical(parse_scalar(negated)) == canonical(parse_scalar(f"NOT {condition}"))


def test_what_is_asked_of_a_query_is_an_anti_join():
    for negated, _ in PAIRS[5:]:
        node = translate(f"SELECT * FROM traffic {HOUR} WHERE {negated}", CATALOG).node
        assert isinstance(node, AntiJoin)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sensor NOT ILIKE 'a%'", "NOT sensor ILIKE 'a%'"),
        ("open IS NOT TRUE", "NOT open IS TRUE"),
        ("open IS NOT FALSE", "NOT open IS FALSE"),
        ("open IS UNKNOWN", "open IS NULL"),
        ("open IS NOT UNKNOWN", "NOT open IS NULL"),
        ("(lane, open) NOT IN ((1, TRUE))", "NOT (lane, open) IN ((1, TRUE))"),
    ],
)
def test_negated_tests_are_negations_of_tests(written, meant):
    found, wanted = (translate(f"SELECT lane FROM traffic WHERE {each}", CATALOG).node for each in (written, meant))
    assert found == wanted


@pytest.mark.parametrize(
    "condition",
    [
        "lane NOT NULL",
        "lane NOTNULL",
        "lane ISNULL",
        "! open",
    ],
)
def test_other_forms_of_negation_are_refused(condition):
    with pytest.raises(FjordSqlError) as caught:
        translate(f"SELECT lane FROM traffic WHERE {condition}", CATALOG)
    assert caught.value.offending in condition
