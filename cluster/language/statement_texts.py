"""A text of several statements, divided: each ends with a semicolon, and a comment ``-- name: slow`` names the next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from cluster.language.comments import Enclosed, enclosed
from protocols.wire.names import normal

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
