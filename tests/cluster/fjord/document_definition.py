"""What functions of JSON documents mean, by Python's own reader of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from cluster.expressions.called_functions import JsonExists, JsonExtract, JsonExtractString, JsonQuery, JsonValue


class Number(str):
    """A number of a document, as it is written."""

    __slots__ = ()


def _no_value(word: str) -> None:
    raise ValueError(word)


class Pairs(tuple[tuple[str, Any], ...]):
    """An object, with all that is written in it: a key may be there twice."""

    __slots__ = ()


_JSON = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=_no_value)
_STEP = re.compile(r"""\.(\w+)|\["((?:[^"\\]|\\.)*)"\]|\[(-?\d+)\]""")
MISSING = object()


def document_of(text: str) -> Any:
    """Return a document as Python reads it, its numbers as they are written.

    Raises
    ------
    ValueError
        If it is none, or more than 100 arrays and objects are in each other.
    """
    found = _JSON.decode(text)
    written(found).encode()  # half a surrogate pair is no character
    level, inner = 0, [found]
    while inner := [each for part in inner for each in _inside(part)]:
        level += 1
        if level > 100 and any(isinstance(each, Pairs | list) for each in inner):
            raise ValueError("too deep")
    return found


def _inside(part: Any) -> list[Any]:
    return [each for _, each in part] if isinstance(part, Pairs) else part if isinstance(part, list) else []


def written(part: Any) -> str:
    """Return a part of a document without spaces between its marks, and without escapes that it needs not."""
    match part:
        case Number():
            return str(part)
        case Pairs():
            return "{" + ",".join(f"{written(key)}:{written(each)}" for key, each in part) + "}"
        case list():
            return "[" + ",".join(map(written, part)) + "]"
        case _:
            return json.dumps(part, ensure_ascii=False)


def place_in(text: str, path: str) -> Any:
    """Return what is at a place of a document, as Python reads it, or MISSING.

    Raises
    ------
    ValueError
        If it is no document.
    """
    found = document_of(text)
    for step in _STEP.finditer(path):
        name, quoted, index = step.groups()
        if index is not None:
            place = int(index)
            inside = isinstance(found, list) and -len(found) <= place < len(found)
            found = found[place] if inside else MISSING
        else:
            key = name if name is not None else re.sub(r"\\(.)", r"\1", quoted)
            found = dict(found).get(key, MISSING) if isinstance(found, Pairs) else MISSING
    return found


def _of_document(meaning: Callable[[Any], Any]) -> Callable[[str, str], Any]:
    def found(text: str, path: str) -> Any:
        try:
            return meaning(place_in(text, path))
        except ValueError:
            return None

    return found


def _as_json(part: Any) -> str | None:
    return None if part is MISSING else _short(written(part))


def _as_text(part: Any) -> str | None:
    return None if part is None else _short(part) if isinstance(part, str) else _as_json(part)


def _container(part: Any) -> str | None:
    return _as_json(part) if isinstance(part, Pairs | list) else None


def _scalar(part: Any) -> str | None:
    return None if isinstance(part, Pairs | list) else _as_text(part)


def _short(text: str) -> str | None:
    return text if len(text) <= 10_000 else None


OF_DOCUMENTS: dict[type[exp.Expr], Callable[[str, str], Any]] = {
    JsonValue: _of_document(_scalar),
    JsonQuery: _of_document(_container),
    JsonExists: _of_document(lambda part: part is not MISSING),
    JsonExtract: _of_document(_as_json),
    JsonExtractString: _of_document(_as_text),
}
"""Functions of a document and a path."""
