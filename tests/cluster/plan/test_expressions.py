"""Expressions of plans: which side of an equality reads what, and what may be substituted."""

from __future__ import annotations

import pytest

from cluster.expressions.walks import node_count
from cluster.operators.columns import Scalar
from cluster.operators.scalar_expressions import MOST_NODES, column_uses, columns_of, conjunction_of, substituted
from cluster.plan.expressions import joins_by_equality, split_by_side, tidy_equality, without_alternatives
from tests.cluster.plan.plans import condition

LEFT, RIGHT = frozenset({"x", "y"}), frozenset({"u", "v"})
X, U, EQ, OTHER = (condition(sql) for sql in ('"x" > 1', '"u" > 1', '"x" = "u"', '"y" = "v"'))


@pytest.mark.parametrize(("given", "tidy"), [
    ('"u" = "x"', '"x" = "u"'), ('"u" + "v" = "x"', '"x" = "u" + "v"'), ('"u" = "x" + "v"', '"x" + "v" = "u"'),
    ('"x" = "u"', '"x" = "u"'), ('"u" = "v"', '"u" = "v"'), ('3 = "x"', '3 = "x"'), ('"u" = 3', '"u" = 3'),
    ('"x" + "u" = "y"', '"x" + "u" = "y"'), ('"u" < "x"', '"u" < "x"'),
])  # fmt: skip
def test_equalities_are_turned_so_that_the_right_input_stands_right(given: str, tidy: str) -> None:
    assert tidy_equality(condition(given), RIGHT) == condition(tidy)


@pytest.mark.parametrize(("sql", "joins"), [
    ('"x" = "u"', True), ('"u" = "x"', True), ('"x" + "y" = "u" * 2', True), ('"x" = "y"', False),
    ('"u" = "v"', False), ('"x" = 1', False), ('1 = "u"', False), ('"x" < "u"', False), ('"x" + "u" = "v"', False),
    ('"x" = "u" + "y"', False), ('"x" = "z"', False), ('"z" = "u"', False),
])  # fmt: skip
def test_an_equality_joins_if_each_side_reads_another_input(sql: str, *, joins: bool) -> None:
    assert joins_by_equality(condition(sql), LEFT, RIGHT) is joins


def test_conditions_are_split_by_what_they_read() -> None:
    true = condition("TRUE")
    assert split_by_side([X, U, EQ, true], LEFT, RIGHT) == ([X, true], [U], [EQ])


def test_a_conjunction_names_equal_conditions_once() -> None:
    assert conjunction_of([]) is None
    assert conjunction_of([X, X]) == X
    assert conjunction_of([X, U, X]) == condition('"x" > 1 AND "u" > 1')
    assert conjunction_of([condition('"x" > 1 OR "y" > 1'), U]) == condition('("x" > 1 OR "y" > 1) AND "u" > 1')


def test_alternatives_are_taken_apart_where_one_of_them_can_be_looked_up() -> None:
    either = condition('("x" = "u" OR "x" IS NULL) AND "v" > 1')
    assert without_alternatives(either, LEFT, RIGHT) == (
        condition('"v" > 1 AND "x" = "u"'), condition('"v" > 1 AND "x" IS NULL'),
    )  # fmt: skip
    for whole in (None, EQ, condition('"x" > "u" OR "x" IS NULL')):
        assert without_alternatives(whole, LEFT, RIGHT) == (whole,)


def test_what_would_grow_too_large_is_not_substituted() -> None:
    def summed(count: int) -> Scalar:
        return condition(" + ".join([f'"x" * {number}' for number in range(count)]))

    large = summed(MOST_NODES // 3 - 2)
    assert substituted(large, {"x": condition('"y" + 1')}) is not None
    assert substituted(large, {"x": summed(10)}) is None
    already = summed(MOST_NODES)
    assert substituted(already, {"x": condition('"y"')}) is not None


def test_what_stands_in_several_places_counts_once() -> None:
    doubled, levels = condition('"x" || "x"'), 40
    found = doubled
    for _ in range(levels):
        again = substituted(doubled, {"x": found})
        assert again is not None
        found = again
    assert node_count(found.expression) == 2 * levels + 2
    assert column_uses(found) == {"x": 2 ** (levels + 1)}
    assert columns_of(found) == {"x"}
    assert len(found.sql) < 2_000
