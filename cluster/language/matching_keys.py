"""The parts of SELECT and HAVING that are keys of GROUP BY, however they are written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.called_functions import JsonExtract, JsonExtractString, JsonValue, RegexMatches
from cluster.expressions.nodes import Expression, Literal, bare
from cluster.expressions.walks import rebuilt
from cluster.language.errors import FjordSqlError
from cluster.language.expressions import Checker
from cluster.language.syntax import QUERIES, FoldedMatch, JsonArrow, JsonTextArrow, Match, Slot, Stamp, Within
from cluster.language.typing_rules import scalar_of
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.operators.columns import Output, Scalar

_LEAVES = (exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.DataType, Slot, Within)
"""Leaves for the size of an expression; an error allowed on a column is not part of its meaning."""
_ALIKE: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.If: exp.Case,
    Stamp: exp.Column,
    **dict.fromkeys((Match, FoldedMatch), RegexMatches),
    JsonArrow: JsonExtract,
    JsonTextArrow: JsonExtractString,
}
"""Other ways to write a kind of expression."""


class MatchingKeys:
    """Keys that are computed. A part is a key if both mean the same once names are resolved.

    ``t.g % 2``, ``(G) % 2`` and ``g WITHIN 1 % 2`` do if the stream t has the only column g; ``2 % g`` is another.

    Parameters
    ----------
    computed
        Keys as they were written, and the columns that hold them.
    checker
        A checker that knows the names that keys may use.
    """

    def __init__(self, computed: Sequence[tuple[exp.Expr, Output]], checker: Checker) -> None:
        self._names = {_meaning(output.scalar): output.name for _, output in computed}
        # Only parts that can be a key are checked, so no part of a long expression is checked more than once per key.
        self._shapes = {_shape(key) for key, _ in computed}
        self._checker = Checker(checker.scope, replace(checker.context, warnings=[]))
        self._sizes: dict[int, tuple[exp.Expr, int]] = {}

    def name_of(self, part: exp.Expr) -> str | None:
        """Return the column that holds the key equal to a part; None if the part is not a key."""
        if not self._names or _is_piece(part) or (_kind(part), self._size(part)) not in self._shapes:
            return None
        try:
            typed = self._checker.check(part)
        except FjordSqlError:  # an aggregate, for instance; its translation reports the error
            return None
        return None if typed.type is None else self._names.get(_meaning(scalar_of(typed, typed.type)))

    def _size(self, part: exp.Expr) -> int:
        if id(part) not in self._sizes:
            self._sizes |= _sizes(part)
        return self._sizes[id(part)][1]


def _meaning(scalar: Scalar) -> tuple[Expression, FieldType]:
    """Return the expression without parentheses, which its tree expresses anyway, and each real written in one way."""
    return rebuilt(scalar.expression, _plain), scalar.type


def _plain(part: Expression) -> Expression:
    if isinstance(part, Literal) and part.kind is FieldType.REAL:
        return Literal(part.kind, repr(float(part.text)))
    return bare(part)


def _is_piece(part: exp.Expr) -> bool:
    """Return whether a part is not an expression of its own here, though it could be one elsewhere."""
    return isinstance(part.parent, exp.Escape) or (isinstance(part.parent, exp.Case) and part.arg_key == "ifs")


def _shape(key: exp.Expr) -> tuple[type[exp.Expr], int]:
    return _kind(key), _sizes(key)[id(key)][1]


def _kind(part: exp.Expr) -> type[exp.Expr]:
    """Return the kind of a part, without parentheses and allowed errors; IF counts as a CASE, ``~`` as its function."""
    bare = part.unnest() if isinstance(part, exp.Paren) else part
    bare = bare.this if isinstance(bare, Within) else bare
    if isinstance(bare, JsonValue) and bare.args.get("returning"):
        return exp.Cast
    return _ALIKE.get(type(bare), type(bare))


def _inner(part: exp.Expr) -> tuple[exp.Expr, ...]:
    """Return what a part consists of; keys behind each other, ``-> 'a' -> 'b'``, are one path."""
    if not isinstance(part, JsonArrow | JsonTextArrow):
        return tuple(part.iter_expressions())
    document = part.this.unnest()
    while isinstance(document, JsonArrow):
        document = document.this.unnest()
    return (document, part.expression)


def _sizes(root: exp.Expr) -> dict[int, tuple[exp.Expr, int]]:
    """Return the number of leaves of each part of an expression, by its identity."""
    found: dict[int, tuple[exp.Expr, int]] = {}
    waiting = [(root, False)]
    while waiting:
        part, ready = waiting.pop()
        inner = () if isinstance(part, (*_LEAVES, *QUERIES)) else _inner(part)
        if ready or not inner:
            found[id(part)] = part, sum(found[id(each)][1] for each in inner) or 1
        else:
            waiting.append((part, True))
            waiting += [(each, False) for each in inner]
    return found
