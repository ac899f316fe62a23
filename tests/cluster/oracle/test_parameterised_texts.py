"""Wherever a literal stands in a random text, a parameter may: bound to the same value, it gives the same plan."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.dialect import FjordSQL
from cluster.language.parameters import bind
from protocols.errors import FjordError
from tests.cluster import specimens
from tests.cluster.oracle.text_leaves import Turns
from tests.cluster.oracle.text_queries import random_text
from tests.cluster.oracle.text_running import accepted
from tests.cluster.oracle.text_spelling import FREQUENCIES, UNITS, text
from tests.cluster.oracle.text_writing import written
from tests.examples import some_of

SEED = 20_261_125
TEXTS = some_of(250)
QUANTITIES = (
    "RANGE",
    "SLIDE",
    "SLIDES",
    "EVERY",
    "RATE",
    "WITHIN",
    "TO",
    "MIN",
    "MAX",
    "COARSEST",
    "FINEST",
    "LIFETIME",
)
SIGNED = ("ABOVE", "BELOW", "WITHIN", "TO")
KEYED = ("GROUP BY", "ORDER BY")
KEYS = (*KEYED, "GROUPING SETS", "ROLLUP", "CUBE", ",", "(")  # words before a key, or a list of them
CLAUSES = (
    *KEYED, "HAVING", "QUALIFY", "UNION", "EXCEPT", "INTERSECT", "LIFETIME", "SAMPLE", "SELECT", "LIMIT", "OFFSET",
    "FETCH",
)  # fmt: skip
UNIT_WORDS = {*FREQUENCIES, *(name for _, names in UNITS.values() for name in names)}
WORDS = {TokenType.TRUE: True, TokenType.FALSE: False, TokenType.NULL: None}


@pytest.mark.examples
def test_a_parameter_may_stand_wherever_a_literal_may_and_means_the_same() -> None:
    kinds, pairs = Counter[str](), 0
    turns = Turns()
    for number in range(TEXTS):
        dice = random.Random(f"{SEED}/{number}")
        derived, query = written(random_text(random.Random(f"{SEED}/{number}"), turns, plain=False))
        try:
            accepted(derived, query)
        except FjordError:
            continue
        template, literal, values = parameterised(query, dice)
        kinds.update(type(each).__name__ for each in values.values())
        pairs += bool(values)
        assert accepted(derived, bind(template, values).text).node == accepted(derived, literal).node, template
    assert pairs > TEXTS // 2
    assert all(kinds[kind] > TEXTS // 13 for kind in ("int", "float", "str", "bool", "NoneType")), kinds


def parameterised(query: str, dice: random.Random) -> tuple[str, str, dict[str, object]]:
    """Return a text with parameters for its literals, one with literals as Python writes them, and their values."""
    template, literal, values, done = [], [], {}, 0
    for start, end, value, spelled in literals(query, dice):
        name = f"p{len(values)}"
        values[name] = value
        template += [query[done:start], f" :{name} "]
        literal += [query[done:start], f" {spelled} "]
        done = end
    return "".join((*template, query[done:])), "".join((*literal, query[done:])), values


def literals(query: str, dice: random.Random) -> Iterator[tuple[int, int, object, str]]:
    """Yield the place, the value and a spelling of each literal."""
    tokens = FjordSQL().tokenize(query)
    words = [" ".join(token.text.upper().split()) for token in tokens]
    lists = [""]  # in which clause each open parenthesis stands, if it is of one of its items
    for place, token in enumerate(tokens):
        before = words[place - 1] if place else ""
        start, end = token.start, token.end + 1
        if token.token_type == TokenType.L_PAREN:
            lists.append(lists[-1] if before in KEYS else "")
        elif token.token_type == TokenType.R_PAREN:
            lists.pop()
        elif token.token_type != TokenType.IDENTIFIER and words[place] in CLAUSES:
            lists[-1] = words[place]
        if lists[-1] in KEYED and before in KEYS:
            continue  # what is written as a key may be more than a value
        if before == "INTERVAL":
            continue  # a duration is written out
        if token.token_type in WORDS:
            value = WORDS[token.token_type]
            yield start, end, value, str(value).upper().replace("NONE", "NULL")
        elif token.token_type == TokenType.STRING:
            yield start, end, token.text, text(token.text)
        elif token.token_type == TokenType.NUMBER:
            number = _number(token)
            if before == "-" and words[place - 2] in SIGNED:
                start, number = tokens[place - 1].start, -number
                before = words[place - 2]
            unit = words[place + 1] if place + 1 < len(words) else ""
            clause = (
                before in QUANTITIES or (before == "(" and words[place - 2] in specimens.CLAUSES) or before == "SINCE"
            )
            if clause and unit in UNIT_WORDS and dice.random() < 0.5:
                yield start, tokens[place + 1].end + 1, f"{number} {unit}", f"{number} {unit}"
            else:
                yield start, end, number, str(number)


def _number(token: Token) -> int | float:
    return int(token.text) if token.text.isdigit() else float(token.text)
