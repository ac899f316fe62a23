"""The meaningful words and marks of a text: the counterpart of the words that :mod:`.spelling` explains."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.dialect import tokens_of
from cluster.language.emitting import emitted
from cluster.language.spelling import CANONICAL_NAMES, SYNONYMS, TYPE
from cluster.language.syntax import WINDOW_BOUNDS

TYPES = (TokenType.BIGINT, TokenType.DOUBLE, TokenType.TEXT, TokenType.BOOLEAN, TokenType.TIMESTAMP)
MEANINGLESS: Collection[tuple[str, str]] = {
    *(("SELECT", "ALL"), *((side, "OUTER") for side in ("LEFT", "RIGHT", "FULL")), ("NULLS", "LAST")),
    *((word, "DISTINCT") for word in ("UNION", "EXCEPT", "INTERSECT")),
}
"""Words that change nothing directly behind certain others."""
NEEDLESS: Collection[tuple[str, str]] = {
    *(("INNER", "JOIN"), ("INNER", "ZIP"), (",", "MAX"), (",", "FINEST"), ("NULLS", "LAST")),
}
"""Words that change nothing directly before certain others, unless these are called as functions: ``, MAX(x)``."""
CLOSING = (",", ")", ";", "", "FROM", "WHERE", "GROUP BY", "HAVING", "UNION", "EXCEPT", "INTERSECT")
"""Words and marks before which a comma cannot stand."""
OPENING = ("SELECT", "DISTINCT", "(", "[", "GROUP BY", ",")
"""Words and marks behind which a comma cannot stand."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word or mark of a text.

    Parameters
    ----------
    word
        In the form of :func:`cluster.language.spelling.written_words`.
    span
        Its place in the text.
    dangles
        For a comma, True if something is missing before or behind it.
    """

    word: str
    span: tuple[int, int]
    dangles: bool


def words_of(text: str, leaves: Mapping[int, exp.Expr], aliases: Collection[int]) -> Iterator[Word]:
    """Yield the words and marks of a text, without pairs of parentheses and other words that change nothing.

    Parameters
    ----------
    text
        A statement.
    leaves
        Names, numbers and texts by their ends: these do not count as words.
    aliases
        Ends of names that may have AS before them.
    """
    tokens, _ = emitted(tokens_of(text), text)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    words = [_canonical(token, leaves) for token in tokens]
    for place, word in enumerate(words):
        if word == "UNKNOWN" and "IS" in (words[place - 1], words[place - 2] if words[place - 1] == "NOT" else ""):
            words[place] = "NULL"
    calls: list[tuple[str, Word]] = []
    for place, token in enumerate(tokens):
        if not words[place]:
            continue
        before = words[place - 1] if place else ""
        ahead = [*words[place + 1 : place + 3], "", ""]
        following = tokens[place + 1].end if place + 1 < len(tokens) else -1
        if words[place] == "(":
            calls.append((before, Word("(", (token.start, token.end + 1), dangles=False)))
        elif words[place] == ")" and calls:
            call, opened = calls.pop()
            if before == "(" and call not in ("COMPLETENESS", "PI", "STAMP", "VALID", "NOW", *WINDOW_BOUNDS, ""):
                yield Word("()", (opened.span[0], token.end + 1), dangles=False)
        elif not (
            _changes_nothing(before, words[place], ahead)
            or (words[place] == "AS" and following in aliases)
            or _begins(words[place], leaves.get(following))
        ):
            dangles = before in OPENING or (ahead[0] in CLOSING and following not in leaves)
            call = calls[-1][0] if calls and before != "DISTINCT" else ""  # IS DISTINCT FROM is no part of a call
            for word in _meant(words[place], ahead[0], call):
                yield Word(word, (token.start, token.end + 1), dangles)
    yield from (opened for _, opened in calls)


def _canonical(token: Token, leaves: Mapping[int, exp.Expr]) -> str:
    leaf = leaves.get(token.end)
    # A name in single quotes is a text.
    if leaf is not None and (token.token_type != TokenType.STRING or not isinstance(leaf, exp.Identifier)):
        return ""
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return repr(token.text)
    word = TYPE if token.token_type in TYPES else " ".join(token.text.upper().split())
    return SYNONYMS.get(word, word)


def _changes_nothing(before: str, word: str, ahead: list[str]) -> bool:
    return (before, word) in MEANINGLESS or ((word, ahead[0]) in NEEDLESS and (ahead[0] == "JOIN" or ahead[1] != "("))


def _begins(mark: str, leaf: exp.Expr | None) -> bool:
    """Return whether a mark is the sign of a number in a level or bound."""
    return mark == "-" and isinstance(leaf, exp.Literal) and not leaf.is_string and str(leaf.this).startswith("-")


def _meant(word: str, after: str, call: str) -> tuple[str, ...]:
    """Return the words for which one stands in the arguments of a call."""
    match word, after, call:
        case "::", _, _:
            return "CAST", "AS"
        case "MOD", "(", _:
            return ("%",)
        case ",", _, "MOD":
            return ()
        case "FROM" | "FOR", _, "SUBSTRING" | "SUBSTR":
            return (",",)
        case "!", "~" | "~*", _:
            return ("NOT",)
        case _, "(", _:
            return (CANONICAL_NAMES.get(word, word),)
        case _:
            return (word,)
