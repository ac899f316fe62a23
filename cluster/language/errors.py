"""Errors in a text: the reason, the place, and what to write instead; passwords in addresses are masked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from protocols.text.closeness import did_you_mean
from protocols.text.plain_text import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "***"
_RUN = re.compile(r"[^\s'\"]+")
_USER = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]+://[^/@:]*:", re.IGNORECASE)
"""An address up to the password, which extends to the last `@` before a space."""
_OPTION = re.compile(
    r"\b(?:ssl)?(?:password|passwd|passphrase)\s*=\s*(?P<value>[^\s&'\"]+)",
    re.IGNORECASE,
)
"""An option that holds a password."""


def _in_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of passwords in addresses. It visits each letter only a few times, because texts may be long."""
    for run in _RUN.finditer(text):
        begin, end = run.start(), text.rfind("@", *run.span())
        if end >= 0 and (user := _USER.search(text, begin, end)):
            yield user.end(), end


def masked(text: str) -> str:
    """Return `text` with every password in it replaced.

    >>> masked("postgresql://anna:s3cret@db/roads?sslpassword=x")
    'postgresql://anna:***@db/roads?sslpassword=***'
    """
    return masked_span(text, 0, 0)[0]


def masked_span(text: str, start: int, end: int) -> tuple[str, int, int]:
    """Return `text` with every password in it replaced, and the new place of ``text[start:end]``."""
    parts: list[str] = []
    kept, moved_start, moved_end = 0, start, end
    for first, last in sorted([*_in_addresses(text), *(found.span("value") for found in _OPTION.finditer(text))]):
        if first < kept:
            continue
        parts += [text[kept:first], MASK]
        kept = last
        grown = len(MASK) - (last - first)
        if start >= last:
            moved_start += grown
        elif start > first:
            moved_start += first - start
        if end >= last:
            moved_end += grown
        elif end > first:
            moved_end += first - end
    return "".join((*parts, text[kept:])), moved_start, max(moved_start, moved_end)


SHOWN, SHOWN_BEFORE = 160, 80
"""Most characters of a line that are shown, and how many of them before the offending part."""
LONGEST_MESSAGE = 600
SHOWN_OF_WORD = 80
_LONG_WORD = re.compile(r"\S{100,}")
"""A long word in a quotation, a reason or a hint, of which the middle is left out."""


class FjordSqlError(ClusterError):
    """A text that cannot be read, resolved or typed as FjordSQL, or that is refused.

    Parameters
    ----------
    reason
        The reason, without the position.
    text
        The whole statement. Passwords in it are masked.
    start, end
        The offending part is ``text[start:end]``; may be empty at the end of the text.
    hint
        A correction, or None.
    first_line
        The number of the text's first line, if the text stands in a larger one.
    """

    def __init__(
        self, reason: str, *, text: str, start: int, end: int, hint: str | None = None, first_line: int = 1
    ) -> None:
        reason, hint = shortened(masked(reason)), None if hint is None else shortened(masked(hint))
        text, start, end = masked_span(text, min(max(start, 0), len(text)), min(max(end, 0), len(text)))
        self.reason = reason
        self.text = text
        self.start = min(max(start, 0), len(text))
        self.end = min(max(end, self.start), len(text))
        before = text[: self.start]
        self.first_line = first_line
        self.line = before.count("\n") + first_line
        """Line of the offending part, from 1."""
        self.column = self.start - (before.rfind("\n") + 1) + 1
        """Its first character's place in the line, from 1."""
        self.offending = text[self.start : self.end]
        super().__init__(f"{reason}, at line {self.line}, column {self.column}", hint=hint)

    def within(self, before: str, first_line: int) -> FjordSqlError:
        """Return the error with its place in a larger text.

        Parameters
        ----------
        before
            What stands before the statement in its first line.
        first_line
            The number of that line.
        """
        start, end = (len(before) + each for each in (self.start, self.end))
        text = before + self.text
        return FjordSqlError(self.reason, text=text, start=start, end=end, hint=self.hint, first_line=first_line)

    def underlined(self) -> str:
        """Return the line of the text, or an excerpt around the offending part, with carets under that part."""
        line = self.text.split("\n")[self.line - self.first_line].removesuffix("\r")
        first = min(self.column - 1, len(line))
        last = min(max(first + self.end - self.start, first + 1), max(len(line), first + 1))
        cut = max(first - SHOWN_BEFORE, 0)
        shown = "".join(_printable(letter) for letter in line[cut : cut + SHOWN])
        before, under = line[cut:first], line[first : min(last, cut + SHOWN)]
        margin, more = f"{self.line} | ", "... " if cut else ""
        rest = " ..." if len(line) > cut + SHOWN else ""
        indent = " " * (len(more) + columns_of(before))
        carets = "^" * max(columns_of(under), 1)
        return f"{margin}{more}{shown}{rest}\n{' ' * (len(margin) - 2)}| {indent}{carets}"


def shortened(message: str) -> str:
    """Return a message without most of what is too long to be read in it: names and texts are quoted in messages.

    >>> shortened(f"there is no column {'x' * 300!r}")
    "there is no column 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ... xxxxxxxxxxxxxxxxxxx'"
    """
    words = _LONG_WORD.sub(lambda found: _without_middle(found[0], SHOWN_OF_WORD), message)
    return _without_middle(words, LONGEST_MESSAGE)


def _without_middle(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length * 3 // 4]} ... {text[-length // 4 :]}"


def _printable(letter: str) -> str:
    """Return a printable character of the same width: a space for tabs and others that would move the rest."""
    return " " if unicodedata.category(letter) in ("Cc", "Zl", "Zp", "Cs") else letter


def suggest(word: str, known: Iterable[str], *, what: str) -> str | None:
    """Return a hint with the closest of `known`, else with a few of them, called `what`."""
    names = [name for name in known if name]  # an aggregate is a column that has none
    if hint := did_you_mean(word, names):
        return hint
    if not names:
        return None
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")  # noqa: PLR2004 - what fits on a line
    return f"{what}: {shown}"
