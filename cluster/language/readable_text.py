"""Requirements on a text before it is parsed as FjordSQL: valid Unicode, and numbers that can be read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import is_normalized

from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.comments import enclosed
from cluster.language.errors import FjordSqlError
from protocols.wire.names import normal

if TYPE_CHECKING:
    from collections.abc import Iterable

BYTE_ORDER_MARK = "\ufeff"
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
