"""Texts before they are parsed: comments, parameters, several statements divided, and what can be read at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from protocols.wire.names import normal

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


BYTE_ORDER_MARK = "\ufeff"
"""Editors on Windows put one before a text; several texts in one file have several."""
_NAME = re.compile(r"--\s*name:\s*(?P<name>\S.*?)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StatementText:
    """One of several statements.

    Parameters
    ----------
    text
        The statement, without what stands before its first word.
    start
        Its place in the whole text.
    line
        The line of the whole text in which it begins, from 1.
    name
        What the last comment before it that begins with ``name:`` calls it; None if there is none.
    """

    text: str
    start: int
    line: int
    name: str | None = None


def statements_in(text: str, *, most: int | None = None) -> tuple[StatementText, ...]:
    r"""Return the statements of a text, in order, or the first `most` of them.

    Semicolons in texts, quoted names and comments divide nothing. What is never closed belongs to the last statement,
    whose translation finds it.

    >>> for each in statements_in("-- name: slow\nSELECT 1; SELECT ';' -- the end"):
    ...     print(each)
    StatementText(text='SELECT 1', start=14, line=2, name='slow')
    StatementText(text="SELECT ';' -- the end", start=24, line=2, name=None)
    """
    found: list[StatementText] = []
    line, counted = 1, 0
    for start, end, before in islice(_between_semicolons(text), most):
        line, counted = line + text.count("\n", counted, start), start
        names = (_NAME.fullmatch(comment) for comment in before)
        name = next((normal(each["name"]) for each in reversed([*names]) if each), None)
        found.append(StatementText(text[start:end].rstrip(), start, line, name))
    return tuple(found)


def _between_semicolons(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield where statements begin and end, and the comments before each."""
    start: int | None = None
    comments: list[str] = []
    for piece_start, piece_end, inside in _pieces(text):
        if inside is not None and inside.comment and inside.end is not None:
            if start is None:
                comments.append(text[piece_start:piece_end])
            continue
        place = piece_start
        while True:
            if start is None:
                start = _first_word(text, place, piece_end, inside)
            end = -1 if inside is not None else text.find(";", place, piece_end)
            if end < 0:
                break
            if start is not None and start < end:
                yield start, end, comments
            start, comments, place = None, [], end + 1
    if start is not None:
        yield start, len(text), comments


def _pieces(text: str) -> Iterator[tuple[int, int, Enclosed | None]]:
    """Yield all pieces of a text: what is enclosed, and what lies between."""
    place = 0
    for each in enclosed(text):
        end = len(text) if each.end is None else each.end
        yield place, each.start, None
        yield each.start, end, each
        place = end
    yield place, len(text), None


def _first_word(text: str, start: int, end: int, inside: Enclosed | None) -> int | None:
    if inside is not None:
        return start
    while start < end and (text[start].isspace() or text[start] == BYTE_ORDER_MARK):
        start += 1
    return start if start < end else None
