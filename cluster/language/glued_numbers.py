"""Numbers with letters directly behind them: ``0x10``, ``1_000``, ``10MS``. sqlglot would read a number and a name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cluster.language.errors import FjordSqlError

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

MOST_CHARACTERS = 40
"""Most characters of a number that is converted for a hint."""

_WHOLE = re.compile(r"[\w.]*\w")
_OF_OTHER_BASES = re.compile(r"0(?:x[0-9a-f]+|o[0-7]+|b[01]+)", re.IGNORECASE | re.ASCII)
_WITH_UNDERSCORES = re.compile(r"\d[\d_]*(?:\.\d[\d_]*)?", re.ASCII)


def glued(number: Token, word: Token) -> bool:
    """Return whether a number and the word behind it are adjacent."""
    return number.end + 1 == word.start


def glued_number(text: str, number: Token, word: Token, *, named: bool) -> FjordSqlError:
    """Return the error about a number with a word directly behind it.

    Parameters
    ----------
    text
        The statement.
    number, word
        The tokens that were read of it.
    named
        True where the word would be the name of a column.
    """
    whole = _WHOLE.match(text, number.start)
    end = whole.end() if whole else word.end + 1
    written, digits = text[number.start : end], text[number.start : number.end + 1]
    if len(written) <= MOST_CHARACTERS and _OF_OTHER_BASES.fullmatch(written):
        hint = f"numbers are decimal: write {int(written, 0)}"
    elif _WITH_UNDERSCORES.fullmatch(written):
        hint = f"write {written.replace('_', '')}"
    elif named:
        hint = f"write {digits}, or {digits} AS {word.text} to call it so"
    else:
        hint = f"numbers have no unit here: write {digits}"
    return FjordSqlError(f"{written!r} is no number", text=text, start=number.start, end=end, hint=hint)
