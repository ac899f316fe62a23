"""Making texts from outside safe for a terminal.

Some characters control a terminal: they move the cursor, change the title or the direction of writing. A message that
quotes a file, a packet or a query must not contain them.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Final

from protocols.errors import SettingsError

_NOT_SHOWN: Final = {"Cc", "Zl", "Zp", "Cs"}
"""Categories of control characters, separators of lines and halves of characters."""
_DIRECTIONS: Final = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Classes of characters that change the direction of the text behind them."""


def printable(text: str, *, lines: bool = True) -> str:
    r"""Return a text in which characters that control a terminal are escaped.

    Parameters
    ----------
    text
        Any text.
    lines
        Whether ends of lines are kept.

    Examples
    --------
    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    if text.isprintable():
        return text
    return "".join("\n" if lines and each == "\n" else _shown(each) for each in text)


def columns_of(text: str) -> int:
    """Return the columns of a terminal that a text takes.

    >>> columns_of("a"), columns_of("车"), columns_of("e\u0301")
    (1, 2, 1)
    """
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Cf", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


@lru_cache(1_000)
def _shown(letter: str) -> str:
    steers = unicodedata.category(letter) in _NOT_SHOWN or unicodedata.bidirectional(letter) in _DIRECTIONS
    return letter.encode("unicode_escape").decode() if steers else letter


def read_text_file(path: Path, what: str, *, hint: str | None = None) -> str:
    """Return the text of a file, without a byte order mark.

    Parameters
    ----------
    path
        The file.
    what
        Its content, for errors: ``the fleet``.
    hint
        What to do if it cannot be read.

    Raises
    ------
    SettingsError
        If it cannot be read, or is not UTF-8; names the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{what} {path} cannot be read: {error.strerror}", hint=hint) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"line {line} of {path} is not UTF-8", hint="save the file as UTF-8") from error
