"""Functions of texts that are JSON documents: series in, series out (:mod:`cluster.scalars.operators`).

A document is read as RFC 8259 has it; what is none, and what is nested too deeply, is NULL whatever is asked of it. It
is read once for each step of the path, without making values of what is not asked for, so that the work is proportional
to its length. Numbers stay as they are written: no digit is lost, and none leaves a range.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import msgspec
import polars as pl

from cluster.scalars.json_paths import Step, path_of
from cluster.scalars.scalar_function import Family, ScalarFunction
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType

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
