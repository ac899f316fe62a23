"""Parameters in a text: a colon before a name, such as ``:limit``, outside comments, texts and quoted names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.comments import enclosed
from protocols.wire.names import WORD, folded

_MARK = re.compile(rf"(?<![:\w'\"]):(?P<name>{WORD})")
_JOINED = re.compile(rf"(?<=\w):(?P<name>{WORD})")
_STANDS_IN = "?"
"""The tokenizer is given this mark, because it takes ``:limit`` for a colon and a word of the language."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One place of a parameter.

    Parameters
    ----------
    name
        Of the parameter, as it is written there; names have no case.
    start, end
        ``text[start:end]`` is the colon and the name.
    """

    name: str
    start: int
    end: int


def marks_in(text: str) -> tuple[Mark, ...]:
    """Return the places of parameters in a text, in order.

    >>> marks_in("SELECT ':a' FROM s WHERE x < :b -- :c")
    (Mark(name='b', start=29, end=31),)
    """
    return tuple(_marks(_MARK, text))


def joined_mark(text: str, name: str) -> Mark | None:
    """Return the first mark of this name that is no parameter because a word or a number stands directly before it."""
    return next((each for each in _marks(_JOINED, text) if folded(each.name) == folded(name)), None)


def _marks(pattern: re.Pattern[str], text: str) -> Iterator[Mark]:
    if ":" not in text:
        return
    place = 0
    for start, end in chain(((each.start, each.end) for each in enclosed(text)), ((len(text), None),)):
        for each in pattern.finditer(text, place, start):
            yield Mark(each["name"], *each.span())
        if end is None:
            break
        place = end


def without_marks(text: str, marks: tuple[Mark, ...]) -> str:
    """Return a text with another mark for each parameter, of which the tokenizer makes a token of its own."""
    parts, place = [], 0
    for each in marks:
        parts += [text[place : each.start], _STANDS_IN, " " * (each.end - each.start - 1)]
        place = each.end
    return "".join((*parts, text[place:]))


def with_marks(tokens: list[Token], marks: tuple[Mark, ...]) -> list[Token]:
    """Return the tokens of :func:`without_marks` with a token ``:name`` for each parameter."""
    starts = {each.start: each for each in marks}
    return [
        Token(token.token_type, f":{mark.name}", token.line, token.col, mark.start, mark.end - 1)
        if token.token_type == TokenType.PLACEHOLDER and (mark := starts.get(token.start)) is not None
        else token
        for token in tokens
    ]


def is_mark(token: Token | None) -> bool:
    """Return whether a token is a parameter."""
    return token is not None and token.token_type == TokenType.PLACEHOLDER and token.text != _STANDS_IN
