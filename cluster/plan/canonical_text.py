"""Looking at canonical text (:class:`cluster.language.algebra.Scalar`) without parsing it, which takes far longer.

Names are quoted, words are upper case, and there is one way to write everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PIECE = re.compile(r"""'(?:[^']|'')*'|"((?:[^"]|"")*)"|[()]|\b(?:AND|OR|BETWEEN|CASE|END)\b""")
_OPENING, _CLOSING = ("(", "CASE"), (")", "END")


def columns_in(sql: str) -> Iterator[str]:
    r"""Yield the columns that an expression reads, as often as it does.

    >>> list(columns_in("\"a\" > 1 AND NOT \"a\" = 'no \"b\"' || \"c\""))
    ['a', 'a', 'c']
    """
    for piece in _PIECE.finditer(sql):
        name = piece.group(1)
        if name is not None:
            yield name.replace('""', '"')


def is_alternative(sql: str) -> bool:
    """Return whether OR connects the parts of an expression.

    >>> is_alternative('"a" OR "b" AND "c"'), is_alternative('("a" OR "b") AND "c"')
    (True, False)
    """
    return "OR" in sql and any(word == "OR" for word, _, _ in _outer_words(sql))


def conditions_in(sql: str) -> list[str]:
    """Return the conditions that AND connects in an expression, without parentheses around them.

    >>> conditions_in('"a" BETWEEN 1 AND 2 AND ("b" OR "c") AND ("d" AND NOT "e")')
    ['"a" BETWEEN 1 AND 2', '"b" OR "c"', '"d"', 'NOT "e"']
    """
    found: list[str] = []
    waiting = [sql]
    while waiting:
        part = _without_parentheses(waiting.pop())
        words = list(_outer_words(part)) if "AND" in part else []  # far more often there is none
        if words and all(word == "AND" for word, _, _ in words):
            ends = [start for _, start, _ in words] + [len(part)]
            starts = [0] + [end for _, _, end in words]
            pieces = [part[start:end].strip() for start, end in zip(starts, ends, strict=True)]
            waiting.extend(reversed(pieces))
        else:
            found.append(part)
    return found


def _outer_words(sql: str) -> Iterator[tuple[str, int, int]]:
    """Yield the ANDs and ORs that are in no parentheses and no CASE, with their places; not the AND of a BETWEEN."""
    depth, betweens = 0, 0
    for piece in _PIECE.finditer(sql):
        word = piece.group()
        if word in _OPENING:
            depth += 1
        elif word in _CLOSING:
            depth -= 1
        elif depth == 0 and word == "BETWEEN":
            betweens += 1
        elif depth == 0 and word == "AND" and betweens:
            betweens -= 1
        elif depth == 0 and word in ("AND", "OR"):
            yield word, piece.start(), piece.end()


def _without_parentheses(sql: str) -> str:
    while sql.startswith("(") and sql.endswith(")") and _closes_last(sql):
        sql = sql[1:-1]
    return sql


def _closes_last(sql: str) -> bool:
    """Return whether the parenthesis with which a text begins is closed by that with which it ends."""
    depth = 0
    for piece in _PIECE.finditer(sql):
        depth += {"(": 1, ")": -1}.get(piece.group(), 0)
        if depth == 0:
            return piece.end() == len(sql)
    return False
