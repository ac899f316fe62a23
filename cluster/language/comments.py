"""Comments: their places, and a text without them in which everything else stays in its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


_BEGINNING = re.compile(r"--|/\*|'|\"")
_CLOSED = {
    "--": re.compile(r"[^\r\n]*"),
    "'": re.compile(r"(?:[^']|'')*'"),
    '"': re.compile(r'(?:[^"]|"")*"'),
}
_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A comment, a text or a name in quotes.

    Parameters
    ----------
    mark
        The mark with which it begins.
    start
        Its first place.
    end
        The place behind it; None if it is never closed.
    """

    mark: str
    start: int
    end: int | None

    @property
    def comment(self) -> bool:
        """True if it is one."""
        return self.mark in ("--", "/*")


def enclosed(text: str) -> Iterator[Enclosed]:
    """Yield the comments, texts and quoted names of a statement in order, up to the first that is never closed."""
    place = 0
    while (beginning := _BEGINNING.search(text, place)) is not None:
        mark = beginning.group()
        end = _end_of_comment(text, beginning.end()) if mark == "/*" else _end(mark, text, beginning.end())
        yield Enclosed(mark, beginning.start(), end)
        if end is None:
            return
        place = end


def without_comments(text: str) -> str:
    """Return `text` with a space for each character of a comment.

    >>> without_comments("GROUP/* lanes */BY lane -- or '--'")
    'GROUP           BY lane           '
    """
    parts: list[str] = []
    kept = 0
    for each in enclosed(text):
        if each.comment and each.end is not None:
            parts += [text[kept : each.start], " " * (each.end - each.start)]
            kept = each.end
    return "".join((*parts, text[kept:]))


def _end(mark: str, text: str, start: int) -> int | None:
    closed = _CLOSED[mark].match(text, start)
    return closed.end() if closed else None


def _end_of_comment(text: str, start: int) -> int | None:
    """Return the end of a comment in which others may be nested."""
    depth = 1
    for edge in _EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return None


WRITTEN_TWICE = "a quote within a text is written twice: 'it''s'"


def unclosed(text: str) -> tuple[str, int, str | None] | None:
    """Return the first comment, text or name that is never closed, as a reason, a place and a hint; or None.

    >>> unclosed("SELECT 'a' /* b")
    ('a comment is opened here and never closed', 11, 'it is written /* ... */ or -- ...')
    """
    closed_texts = False
    for part in enclosed(text):
        if part.end is None and part.comment:
            return "a comment is opened here and never closed", part.start, "it is written /* ... */ or -- ..."
        if part.end is None:
            hint = WRITTEN_TWICE if part.mark == "'" and closed_texts else None
            return "a quote is opened here and never closed", part.start, hint
        closed_texts = closed_texts or part.mark == "'"
    return None
