"""Expressions as text: byte for byte what sqlglot wrote before there were nodes, and read back to themselves."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import pytest

from cluster.expressions import reading
from cluster.expressions.nodes import Binary, Call, Column, Expression, Group, Negative, chain, grouped
from cluster.expressions.reading import expression_of
from cluster.expressions.storing import restored, stored
from cluster.expressions.text import LONGEST_WRITTEN, letters, text_of
from cluster.expressions.walks import substituted
from cluster.language.dialect import parse_scalar
from cluster.operators.columns import Scalar
from protocols.wire.streams import FieldType
from tests.cluster.expressions.drawing import drawn
from tests.cluster.language.sqlglot_text import canonical


@pytest.mark.parametrize("number", range(400))
def test_any_expression_is_written_as_it_always_was_and_read_back(number: int) -> None:
    expression, *_ = drawn(f"text {number}", 4)
    text = text_of(expression)
    tree = parse_scalar(text)
    assert canonical(tree) == text
    assert expression_of(tree) == expression
    assert len(text) == letters(expression)
    assert restored(stored(expression)) == expression


@pytest.mark.parametrize(
    "text",
    [
        "a * MOD(b, c)", "c % MOD(a + 1, b)", "a - MOD(b, c)", "- - 5", "-(-5)", "-a + 3", "- -a = 3", "a::int",
        "x <> 'it''s'", '"say ""a""" = 3', "1.50 + .5e3", "a = b = c", "a || b || (c || d)", "NOT NOT a",
        "a AND b AND (c AND d) OR NOT e IS NULL", "(a) IN ((1))", "SUBSTRING(a FROM 1 FOR 2)", "POW(a, b) * 2",
        "x IS TRUE", "CASE a WHEN 1 THEN 2 END", "CASE WHEN a THEN b ELSE c END", "a NOT BETWEEN 1 AND 2",
        "a LIKE 'x''!%%' ESCAPE '!'", "CONCAT(a)", "TRY_CAST(a AS TEXT)", "'a\nb\\'",
    ],
)  # fmt: skip
def test_what_people_write(text: str) -> None:
    tree = parse_scalar(text)
    assert text_of(expression_of(tree)) == canonical(tree)
    assert expression_of(parse_scalar(canonical(tree))) == expression_of(tree)


def doubled(levels: int) -> Expression:
    once = expression_of(parse_scalar('"x" || "x"'))
    found = once
    for _ in range(levels):
        found = substituted(once, {"x": grouped(found)})
    return found


def test_what_would_be_too_long_has_each_shared_part_once() -> None:
    found = doubled(30)
    assert letters(found) > LONGEST_WRITTEN
    assert text_of(found).startswith('#30 || #30 WITH #1 = ("x" || "x"), #2 = (#1 || #1), ')
    assert len(text_of(found)) < 1_000
    assert text_of(found) == text_of(doubled(30))
    assert text_of(found) != text_of(doubled(31))
    assert text_of(doubled(2)) == '(("x" || "x") || ("x" || "x")) || (("x" || "x") || ("x" || "x"))'


def test_equal_expressions_are_equal_however_deep_and_however_often_parts_stand_in_them() -> None:
    assert doubled(1_000) == doubled(1_000)
    assert doubled(1_000) != doubled(999)
    deep: list[Expression] = []
    for _ in range(2):
        found: Expression = Column("a")
        for _ in range(50_000):
            found = Binary("+", Negative(Group(found)), Column("a"))
        deep.append(found)
    assert deep[0] == deep[1]
    assert text_of(deep[0]) == text_of(deep[1])
    assert restored(stored(deep[0])) == deep[0]


def test_reading_a_chain_takes_work_that_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six thousand ANDs once took eighteen million looks at their operands."""
    seen: list[int] = []

    def counted(word: str, parts: tuple[Expression, ...]) -> Expression:
        found = chain(word, parts)
        seen.append(len(found.operands))
        return found

    monkeypatch.setattr(reading, "chain", counted)
    for word in ("AND", "OR", "||"):
        seen.clear()
        read = expression_of(parse_scalar(f" {word} ".join(f"c{place}" for place in range(500))))
        assert read.operands == tuple(Column(f"c{place}") for place in range(500))
        assert sum(seen) <= 1_000


def test_chains_have_no_chains_of_the_same_word_in_them() -> None:
    a, b, c = map(Column, "abc")
    assert chain("AND", (chain("AND", (a, b)), c)) == chain("AND", (a, chain("AND", (b, c))))
    assert chain("AND", (a, chain("OR", (b, c)))) != chain("AND", (a, b, c))
    assert chain("AND", (a, Group(chain("AND", (b, c))))) != chain("AND", (a, b, c))


def test_an_expression_that_is_shown_in_an_error_is_no_longer_than_its_parts() -> None:
    found: Expression = Column("a")
    for _ in range(100):
        found = chain("||", (Group(found), Group(found)))
    assert len(repr(found)) < 20_000
    assert repr(Call("ABS", (Column("a"),))) == "Call(function='ABS', arguments=(Column(name='a'),))"


def test_an_expression_is_made_again_in_another_process() -> None:
    """Where the hashes of its names are others."""
    scalar = Scalar(doubled(60), FieldType.TEXT)
    code = """
import pickle, sys
found = pickle.load(sys.stdin.buffer)
print({found: 1}[type(found)(found.expression, found.type)])
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(scalar),
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        check=True,
    )
    assert ran.stdout == b"1\n"
    assert pickle.loads(pickle.dumps(scalar)) == scalar
    assert copy.deepcopy(scalar) == scalar
