"""Paths into JSON documents: ``$.reading.tags[0]``, as Flink, DuckDB and PostgreSQL read them alike.

A path names one place. What may name several (``*``, ``..``, filters) is refused when a query is added.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NoReturn

from cluster.errors import PlanError

Step = str | int
"""A key of an object, or a place in an array: from 0, or from the end for a negative one."""

LONGEST_PATH = 1_000
"""Characters."""
MOST_STEPS = 32
"""Steps of a path, or of a chain of ``->``: a document is read once for each."""
PATH_SHAPE = "a path is written '$.reading.tags[0]'"

_NAME = re.compile(r"[^\W\d]\w*")
_INDEX = re.compile(r"-?\d{1,9}(?=])")
_QUOTED = {'"': re.compile(r'"((?:[^"\\]|\\["\\])*)"'), "'": re.compile(r"'((?:[^'\\]|\\['\\])*)'")}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LAX = re.compile(r"lax\s+(?=\$)")
_QUOTES_FOR_KEYS = 'keys that are no names have quotes: $."a-b"'
_ONE_PLACE = "a path names one place in a document"


class PathError(PlanError):
    """A path that cannot be read, or is too long."""


@lru_cache(maxsize=1024)
def path_of(text: str) -> tuple[Step, ...]:
    """Return the steps of a path.

    >>> path_of("$.a['b c'][-1]")
    ('a', 'b c', -1)

    Raises
    ------
    PathError
        If it is none of FjordSQL, or too long.
    """
    if len(text) > LONGEST_PATH:
        raise PathError(f"a path has at most {LONGEST_PATH:,} characters")
    lax = _LAX.match(text)
    place = lax.end() if lax else 0
    if text.startswith("strict"):
        raise PathError("strict is not part of FjordSQL: what is missing is NULL", hint="leave it out")
    if not text.startswith("$", place):
        raise PathError("a path begins with $, the whole document", hint=PATH_SHAPE)
    place += 1
    steps: list[Step] = []
    while place < len(text):
        step, place = _step(text, place)
        steps.append(step)
    return limited(steps)


def limited(steps: list[Step]) -> tuple[Step, ...]:
    """Return steps if they are not too many.

    Raises
    ------
    PathError
        If they are.
    """
    if len(steps) > MOST_STEPS:
        raise PathError(f"a path has at most {MOST_STEPS} steps", hint="take a part of the document in a subquery")
    return tuple(steps)


def path_text(steps: tuple[Step, ...]) -> str:
    """Return steps as a path, always in the same way.

    >>> path_text(("a", "b c", 0))
    '$.a["b c"][0]'
    """
    return "$" + "".join(map(_written, steps))


def _written(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _NAME.fullmatch(step):
        return f".{step}"
    quoted = step.replace("\\", "\\\\").replace('"', '\\"')
    return f'["{quoted}"]'


def _step(text: str, place: int) -> tuple[Step, int]:
    """Return the step that begins at a place of a path, and the place behind it."""
    mark, first = text[place], text[place + 1 : place + 2]
    if mark not in ".[":
        _refuse("'.' or '[' was expected", place, _QUOTES_FOR_KEYS)
    if first == "*":
        _refuse("* is not part of FjordSQL", place + 1, _ONE_PLACE)
    if quoted := _QUOTED.get(first):
        found = quoted.match(text, place + 1)
        if found is None:
            _refuse("this key has no end", place + 1, "\\ stands before a quote or another \\ only")
        return _closed(text, _ESCAPED.sub(r"\1", found[1]), found.end(), closes=mark == "[")
    if mark == "[":
        index = _INDEX.match(text, place + 1)
        if index is None:
            hint = f'{_ONE_PLACE}; keys that are no names have quotes: $["a-b"]'
            _refuse("a place in an array, or a key in quotes, was expected", place + 1, hint)
        return _closed(text, int(index[0]), index.end(), closes=True)
    if first == ".":
        _refuse(".. is not part of FjordSQL", place + 1, _ONE_PLACE)
    name = _NAME.match(text, place + 1)
    if name is None:
        _refuse("a key was expected", place + 1, _QUOTES_FOR_KEYS)
    return name[0], name.end()


def _closed(text: str, step: Step, place: int, *, closes: bool) -> tuple[Step, int]:
    if not closes:
        return step, place
    if not text.startswith("]", place):
        _refuse("']' was expected", place)
    return step, place + 1


def _refuse(reason: str, place: int, hint: str | None = None) -> NoReturn:
    raise PathError(f"{reason}, at character {place + 1} of the path", hint=hint)
