"""Requirements on a text before it is parsed: parameters, which are a colon before a name, and what can be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from unicodedata import is_normalized

from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.errors import FjordSqlError
from cluster.language.statement_texts import BYTE_ORDER_MARK, enclosed
from protocols.wire.names import WORD, folded, normal

LONGEST_NUMBER = 400
"""Characters of a number; the largest real has 309 digits."""


_UNREADABLE = re.compile("[\ud800-\udfff\0]")


_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def readable(text: str) -> str:
    """Return `text` without the byte order mark that some editors put before it, its names in normal form C.

    Raises
    ------
    FjordSqlError
        If it has what is no character: half of one, or NUL.
    """
    text = text.removeprefix(BYTE_ORDER_MARK)
    if found := _UNREADABLE.search(text):
        what = "a NUL" if found.group() == "\0" else f"half a character (U+{ord(found.group()):04X})"
        shown = _UNREADABLE.sub("\N{REPLACEMENT CHARACTER}", text)
        hint = "the text may be damaged, or in another encoding than UTF-8"
        reason = f"{what} cannot stand in a statement"
        raise FjordSqlError(reason, text=shown, start=found.start(), end=found.end(), hint=hint)
    return _composed(text)


def _composed(text: str) -> str:
    """Return a text in normal form C, but for what is in single quotes: values stay as they are written."""
    if is_normalized("NFC", text):
        return text
    parts, place = [], 0
    for each in enclosed(text):
        if each.mark == "'":
            parts += [normal(text[place : each.start]), text[each.start : each.end]]
            place = len(text) if each.end is None else each.end
    return "".join((*parts, normal(text[place:])))


def check_numbers(tokens: Iterable[Token], text: str) -> None:
    """Do nothing if the numbers among `tokens` can be read.

    Raises
    ------
    FjordSqlError
        If one is too long or incomplete.
    """
    for token in tokens:
        if token.token_type != TokenType.NUMBER:
            continue
        reason, written = None, text[token.start : token.end + 1]
        if len(written) > LONGEST_NUMBER:
            reason = f"this number is longer than {LONGEST_NUMBER} characters"
        elif not _NUMBER.fullmatch(written):
            reason = f"{written!r} is no number"
        if reason is not None:
            raise FjordSqlError(reason, text=text, start=token.start, end=token.end + 1)


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
