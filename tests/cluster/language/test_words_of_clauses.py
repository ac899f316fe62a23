"""Every word that statements are written with is known as one, so that hints take none of them for a misspelling."""

from __future__ import annotations

import pytest

from cluster.language.dialect import FjordSQL
from cluster.language.functions import FUNCTION_NAMES
from cluster.language.parsing import FjordSqlParser
from cluster.language.spelling import CANONICAL_NAMES, written_words
from cluster.language.words import CALLED_CLAUSES, FOLLOWED, LANGUAGE
from tests.cluster.language.valid_statements import CATALOG, STATEMENTS

KNOWN = {*LANGUAGE, *CANONICAL_NAMES, *FUNCTION_NAMES, *(name.upper() for name in CATALOG.functions)}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_word_of_a_statement_is_a_word_of_the_language(statement: str) -> None:
    tree = FjordSqlParser(dialect=FjordSQL()).parse_one(FjordSQL().tokenize(statement), statement)
    phrases = [phrase for node in tree.walk() for phrase in written_words(node, node.parent)]
    words = {word for phrase in phrases for word in phrase.split() if word.isalpha()}
    assert words - KNOWN == set()


def test_every_clause_that_is_written_like_a_call_is_a_name_without_its_parenthesis() -> None:
    assert set(CALLED_CLAUSES) - {"WINDOW"} <= set(FOLLOWED)
