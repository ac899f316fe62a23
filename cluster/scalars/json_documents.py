"""Functions of texts that are JSON documents, and the paths into these: series in, series out.

**Paths into JSON documents: ``$.reading.tags[0]``, as Flink, DuckDB and PostgreSQL read them alike.**

A path names one place. What may name several (``*``, ``..``, filters) is refused when a query is added.

A document is read as RFC 8259 has it; what is none, and what is nested too deeply, is NULL whatever is asked of it. It
is read once for each step of the path, without making values of what is not asked for, so that the work is proportional
to its length. Numbers stay as they are written: no digit is lost, and none leaves a range.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NoReturn

import msgspec
import polars as pl

from cluster.errors import PlanError
from cluster.scalars.scalar_function import Family, ScalarFunction
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType

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


OfText = Callable[[pl.Series], pl.Series]

DEEPEST_DOCUMENT = 100
"""Most arrays and objects in each other."""

_ANY = msgspec.json.Decoder(msgspec.Raw)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_NESTING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""Texts, and what nests. One without an end goes to the end of all: looking for an end from each of its quotes would be
work that grows with the square of its length."""
_QUOTE, _BRACE, _BRACKET, _NULL = (ord(letter) for letter in '"{[n')


def scalars(path: str) -> OfText:
    """Return JSON_VALUE: a text, number or truth; NULL for anything else."""
    return _over(pl.String, partial(_scalar, path_of(path)))


def containers(path: str) -> OfText:
    """Return JSON_QUERY: an object or an array; NULL for anything else."""
    return _over(pl.String, partial(_container, path_of(path)))


def presence(path: str) -> OfText:
    """Return JSON_EXISTS: whether there is such a place, though it may hold null."""
    return _over(pl.Boolean, partial(_exists, path_of(path)))


def parts(path: str) -> OfText:
    """Return JSON_EXTRACT: whatever is there, as JSON."""
    return _over(pl.String, partial(_part, path_of(path)))


def texts(path: str) -> OfText:
    """Return JSON_EXTRACT_STRING: whatever is there, a text without its quotes; NULL for null."""
    return _over(pl.String, partial(_text, path_of(path)))


def _over(kind: type[pl.DataType], of: Callable[[str], str | bool | None]) -> OfText:
    def found(value: pl.Series) -> pl.Series:
        documents = value.cast(pl.String).to_list()
        return pl.Series(value.name, [None if each is None else of(each) for each in documents], dtype=kind)

    return found


def _scalar(steps: tuple[Step, ...], document: str) -> str | None:
    found = _place(steps, document)
    return None if not found or found[0] in (_BRACE, _BRACKET) else _as_text(found)


def _container(steps: tuple[Step, ...], document: str) -> str | None:
    found = _place(steps, document)
    return _as_json(found) if found and found[0] in (_BRACE, _BRACKET) else None


def _exists(steps: tuple[Step, ...], document: str) -> bool | None:
    found = _place(steps, document)
    return None if found is None else bool(found)


def _part(steps: tuple[Step, ...], document: str) -> str | None:
    found = _place(steps, document)
    return _as_json(found) if found else None


def _text(steps: tuple[Step, ...], document: str) -> str | None:
    found = _place(steps, document)
    return _as_text(found) if found else None


def _place(steps: tuple[Step, ...], document: str) -> bytes | None:
    """Return what is at a place of a document, empty if nothing is; None if it is no document."""
    if _is_too_deep(document):
        return None
    try:
        found = bytes(_ANY.decode(document))
    except msgspec.DecodeError:
        return None
    for step in steps:
        inner: msgspec.Raw | None = None
        if isinstance(step, str):
            if found[0] == _BRACE:
                inner = _OBJECT.decode(found).get(step)
        elif found[0] == _BRACKET:
            listed = _ARRAY.decode(found)
            inner = listed[step] if -len(listed) <= step < len(listed) else None
        if inner is None:
            return b""
        found = bytes(inner)
    return found


def _is_too_deep(document: str) -> bool:
    if document.count("[") + document.count("{") <= DEEPEST_DOCUMENT:
        return False
    depth = 0
    for mark in _NESTING.finditer(document):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark[0], 0)
        if depth > DEEPEST_DOCUMENT:
            return True
    return False


def _as_text(found: bytes) -> str | None:
    if found[0] == _NULL:
        return None
    return _short(_TEXT.decode(found)) if found[0] == _QUOTE else _as_json(found)


def _as_json(found: bytes) -> str | None:
    return _short(msgspec.json.format(found, indent=-1).decode())


def _short(text: str) -> str | None:
    return text if len(text) <= LONGEST_TEXT else None


def _of_path(
    name: str, compute: Callable[[str], OfText], result: FieldType = FieldType.TEXT, aliases: tuple[str, ...] = ()
) -> ScalarFunction:
    """Return a function that reads a place of a document, and gives NULL where there is none."""
    return ScalarFunction(
        name, compute, (Family.TEXT,), result, ("this", "path"), aliases=aliases, own=True, of_constants=True,
        null_if_null=False,
    )  # fmt: skip


JSON_FUNCTIONS: tuple[ScalarFunction, ...] = (
    _of_path("JSON_VALUE", scalars),
    _of_path("JSON_QUERY", containers),
    _of_path("JSON_EXISTS", presence, FieldType.BOOLEAN),
    _of_path("JSON_EXTRACT", parts),
    _of_path("JSON_EXTRACT_STRING", texts, aliases=("GET_JSON_OBJECT",)),
)
