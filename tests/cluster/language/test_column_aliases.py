"""Which words may name a column without AS: none that goes on with an operand, or begins another."""

from __future__ import annotations

import pytest

from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from tests.cluster.language.example_catalog import CATALOG

OPERATORS = [
    "ALL",
    "ANY",
    "CASE",
    "DIV",
    "ESCAPE",
    "EXISTS",
    "FALSE",
    "IN",
    "IS",
    "ISNULL",
    "NULL",
    "OVER",
    "OVERLAPS",
    "SOME",
    "TRUE",
]


@pytest.mark.parametrize("word", OPERATORS)
def test_an_operator_without_its_operand_names_no_column(word):
    for text in (f"SELECT open {word} FROM traffic", f"SELECT lane + 1 {word.lower()}, open FROM traffic"):
        with pytest.raises(FjordSqlError):
            translate(text, CATALOG)


@pytest.mark.parametrize("word", OPERATORS)
def test_after_as_an_operator_may_name_a_column(word):
    for written in (word, f'"{word}"'):
        assert translate(f"SELECT open AS {written} FROM traffic", CATALOG).node.outputs[0].name == word


@pytest.mark.parametrize("word", ["desc", "end", "first", "date", "state", "x"])
def test_ordinary_words_need_no_as(word):
    assert translate(f"SELECT open {word} FROM traffic", CATALOG).node.outputs[0].name == word
