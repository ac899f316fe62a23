"""What AND and OR connect: found in expressions as people write them, and in graphs too large to be written out."""

from __future__ import annotations

import pytest

from cluster.expressions.conditions import all_of, conjuncts, disjuncts, equal_sides, repeats_itself
from cluster.expressions.nodes import Chain, Column, Expression, Group
from cluster.expressions.text import text_of
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType


def condition(text: str) -> Expression:
    return read_scalar(text, FieldType.BOOLEAN).expression


@pytest.mark.parametrize(
    ("text", "parts", "repeated"),
    [
        ("a", ["a"], False),
        ("a AND b AND a", ["a", "b"], True),
        ("a AND (b AND (c OR d)) AND NOT (e AND a)", ["a", "b", "c OR d", "NOT (e AND a)"], False),
        ("(a AND b) AND ((b))", ["a", "b"], True),
        ("a BETWEEN 1 AND 2 AND b", ["a BETWEEN 1 AND 2", "b"], False),
        ("CASE WHEN b AND c THEN d END", ["CASE WHEN b AND c THEN d END"], False),
        ("a OR b AND c", ["a OR b AND c"], False),
    ],
)  # fmt: skip
def test_what_and_connects(text: str, parts: list[str], repeated: bool) -> None:
    assert conjuncts(condition(text)) == tuple(map(condition, parts))
    assert repeats_itself(condition(text)) is repeated


def test_what_or_connects() -> None:
    found = disjuncts(condition("a OR (b OR a) OR c AND (a OR b)"))
    assert [text_of(each) for each in found] == ['"a"', '"b"', '"a"', '"c" AND ("a" OR "b")']


def test_all_of_several_conditions() -> None:
    a, either = condition("a"), condition("a OR b")
    assert all_of([]) is None
    assert all_of([a, a]) is a
    assert all_of([either]) is either
    assert all_of([a, either, condition("b AND c")]) == condition("a AND (a OR b) AND b AND c")


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_a_condition_that_stands_in_itself_again_and_again_is_taken_apart_once(word: str) -> None:
    found: Expression = Chain(word, (Column("a"), Column("b")))
    for _ in range(60):
        found = Chain(word, (Group(found), Group(found)))
    assert (conjuncts if word == "AND" else disjuncts)(found) == (Column("a"), Column("b"))
    assert repeats_itself(found) is (word == "AND")


def test_sides_of_an_equality() -> None:
    assert equal_sides(condition("a = b + 1")) == (condition("a"), condition("b + 1"))
    assert equal_sides(condition("a < b")) is None
