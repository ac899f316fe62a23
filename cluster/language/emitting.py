"""EMIT EARLY and EMIT FINAL, the last words of a query: when its rows are published, not which.

They are taken off before the rest is parsed, so that a query means the same with and without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sqlglot.tokenizer_core import TokenType

from cluster.language.errors import FjordSqlError
from protocols.text.closeness import did_you_mean

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

EMIT, EARLY, FINAL = "EMIT", "EARLY", "FINAL"
EMIT_SHAPE = "SELECT ... FROM ... EMIT EARLY, or EMIT FINAL"

_NO_WORDS = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER)
_GOES_ON = (TokenType.R_PAREN, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_CLAUSES = ("LIFETIME", "SAMPLE", EMIT)
_BEFORE = ("LIMIT", "FETCH", "ORDER", "ORDER BY", "WHERE", "GROUP BY", "HAVING", "QUALIFY")
"""Clauses that stand before EMIT."""
_NAMES_BEHIND = ("FROM", "JOIN", ",", "SELECT")
"""Behind these, EMIT is a name, and EARLY or FINAL its alias."""


def emitted(tokens: list[Token], text: str) -> tuple[list[Token], bool | None]:
    """Return the tokens of a statement without its EMIT clause, and whether rows come early; None without a clause.

    Raises
    ------
    FjordSqlError
        If the clause stands elsewhere than at the end of a query, is there twice, or says neither EARLY nor FINAL.
    """
    early = None
    whole, end = tokens, len(tokens)
    while end and whole[end - 1].token_type == TokenType.SEMICOLON:
        end -= 1
    tokens = whole[:end]
    if (
        len(tokens) > 1
        and _is(tokens[-2], EMIT)
        and tokens[-1].token_type not in _NO_WORDS
        and tokens[-1].text.isalpha()
    ):
        word = tokens[-1]
        if word.text.upper() not in (EARLY, FINAL):
            hint = did_you_mean(word.text, (EARLY, FINAL)) or f"it is written {EMIT_SHAPE}"
            _refuse("EARLY or FINAL was expected here", text, word, word, hint)
        if _is(tokens[0], "CREATE") or _is(tokens[0], "DROP"):
            reason = "EMIT says when a query's rows are published, and this statement publishes none"
            _refuse(reason, text, tokens[-2], word, "leave it out here, and add it to the query that reads the stream")
        tokens, early = tokens[:-2], word.text.upper() == EARLY
    for place, token in enumerate(tokens[:-1]):
        if not (_is(token, EMIT) and (_is(tokens[place + 1], EARLY) or _is(tokens[place + 1], FINAL))):
            continue
        if place + 2 == len(tokens):
            _refuse("this query has two EMIT clauses", text, token, tokens[place + 1], "leave one of them out")
        following = tokens[place + 2]
        if following.token_type in _GOES_ON or any(_is(following, word) for word in _CLAUSES):
            reason = "EMIT stands at the end of the whole query: only its rows are published"
            _refuse(reason, text, token, tokens[place + 1], f"it is written {EMIT_SHAPE}")
        named = place > 0 and any(_is(tokens[place - 1], word) for word in _NAMES_BEHIND)
        if not named and any(_is(following, word) for word in _BEFORE):
            clause, kind = following.text.upper(), tokens[place + 1].text.upper()
            reason = f"EMIT stands at the end of a query, behind {clause}"
            _refuse(reason, text, token, tokens[place + 1], f"write {clause} ... EMIT {kind}")
    return (whole if early is None else tokens), early


def _is(token: Token, word: str) -> bool:
    return token.token_type not in _NO_WORDS and token.text.upper() == word


def _refuse(reason: str, text: str, first: Token, last: Token, hint: str) -> NoReturn:
    raise FjordSqlError(reason, text=text, start=first.start, end=last.end + 1, hint=hint)
