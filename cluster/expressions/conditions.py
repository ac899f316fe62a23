"""Conditions: their parts and the sides of equalities, and which of true, false and NULL an expression may be.

**What an expression may be, whatever its columns are: true, false, NULL. Of ``CAST(NULL AS REAL) > 1``, only NULL.**

An estimate: what is not looked into may be anything. Values other than booleans count as true or false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import cast

from cluster.expressions.nodes import (
    FALSE,
    NULL,
    TRUE,
    Among,
    Between,
    Binary,
    Call,
    Cast,
    Chain,
    Expression,
    Group,
    Like,
    Literal,
    Negative,
    Not,
    bare,
    chain,
)
from cluster.expressions.walks import found_from_below
from cluster.shared_nodes import remembered

MIRRORED: Mapping[str, str] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""By the sign of a comparison: that of the same one with its sides exchanged."""


@remembered
def conjuncts(condition: Expression) -> tuple[Expression, ...]:
    """Return the conditions connected by AND, without parentheses, each different one once.

    >>> from cluster.expressions.text import text_of
    >>> from cluster.expressions.nodes import Column
    >>> a, b, c = map(Column, "abc")
    >>> [text_of(each) for each in conjuncts(chain("AND", (a, Group(chain("OR", (b, c))), a)))]
    ['"a"', '"b" OR "c"']
    """
    return _connected(condition, "AND")


@remembered
def disjuncts(condition: Expression) -> tuple[Expression, ...]:
    """Return the conditions connected by OR, without parentheses, with repetitions.

    >>> from cluster.expressions.nodes import Column
    >>> a, b = map(Column, "ab")
    >>> disjuncts(chain("OR", (a, Group(chain("OR", (b, a))))))
    (Column(name='a'), Column(name='b'), Column(name='a'))
    """
    return _connected(condition, "OR", once=_as_written(condition)[1] > MOST_WRITTEN)


MOST_WRITTEN = 100_000
"""Most conditions connected by OR from which repetitions are removed; no author writes more."""


def _connected(condition: Expression, word: str, *, once: bool = True) -> tuple[Expression, ...]:
    found: list[Expression] = []
    seen: set[int] = set()
    waiting = [condition]
    while waiting:
        part = bare(waiting.pop())
        if not (isinstance(part, Chain) and part.word == word):
            found.append(part)
        elif not once or id(part) not in seen:
            seen.add(id(part))
            waiting.extend(reversed(part.parts))
    return tuple(dict.fromkeys(found)) if once else tuple(found)


@found_from_below
def _as_written(condition: Expression, operands: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return how many conditions AND connects, and how many OR connects, with repetitions."""
    match condition:
        case Group():
            return operands[0]
        case Chain(word="AND"):
            return sum([conditions for conditions, _ in operands]), 1
        case Chain(word="OR"):
            return 1, sum([conditions for _, conditions in operands])
        case _:
            return 1, 1


def repeats_itself(condition: Expression) -> bool:
    """Return whether a condition occurs twice among those connected by AND."""
    return _as_written(condition)[0] > len(conjuncts(condition))


def all_of(conditions: Iterable[Expression]) -> Expression | None:
    """Return the conjunction of conditions, each different one once; None if there are none."""
    unique = tuple(dict.fromkeys(conditions))
    if len(unique) <= 1:
        return unique[0] if unique else None
    return chain("AND", tuple(Group(each) if is_alternative(each) else each for each in unique))


def is_alternative(condition: Expression) -> bool:
    """Return whether a condition is a disjunction."""
    return isinstance(condition, Chain) and condition.word == "OR"


def equal_sides(condition: Expression) -> tuple[Expression, Expression] | None:
    """Return both sides of an equality; None for anything else."""
    found = condition if isinstance(condition, Binary) and condition.sign == "=" else None
    return None if found is None else cast("tuple[Expression, Expression]", found.operands)


Outcomes = frozenset[bool | None]
ANY: Outcomes = frozenset((True, False, None))
KNOWN: Outcomes = frozenset((True, False))
UNKNOWN: Outcomes = frozenset((None,))
_CONSTANTS: dict[Expression, Outcomes] = {NULL: UNKNOWN, TRUE: frozenset((True,)), FALSE: frozenset((False,))}


def never_true(condition: Expression) -> bool:
    """Return whether a condition keeps no tuple at all.

    >>> from protocols.wire.streams import FieldType
    >>> missing = Cast(NULL, FieldType.REAL)
    >>> never_true(Binary(">", missing, Literal(FieldType.REAL, "30"))), never_true(Binary("IS", missing, NULL))
    (True, False)
    """
    return True not in _outcomes(condition)


@found_from_below
def _outcomes(node: Expression, operands: Sequence[Outcomes]) -> Outcomes:
    match node:
        case Literal():
            return _CONSTANTS.get(node, KNOWN)
        case Group():
            return operands[0]
        case Not():
            return frozenset(None if each is None else not each for each in operands[0])
        case Binary(sign="IS"):
            return _tested(node.right, operands[0])
        case Binary() if node.sign.startswith("IS "):
            return KNOWN
        case Binary() | Negative() | Cast():
            return UNKNOWN if UNKNOWN in operands else ANY
        case Between() | Among() | Like():
            return UNKNOWN if operands[0] == UNKNOWN else ANY
        case Chain():
            return _chained(node.word, operands)
        case Call() if node.function == "COALESCE":
            return _first(operands)
        case _:
            return ANY


def _tested(other: Expression, left: Outcomes) -> Outcomes:
    """Return the outcomes of IS NULL, IS TRUE or IS FALSE."""
    wanted = _CONSTANTS.get(other)
    return KNOWN if wanted is None else frozenset(frozenset((each,)) == wanted for each in left)


def _chained(word: str, operands: Sequence[Outcomes]) -> Outcomes:
    if word not in ("AND", "OR"):
        return UNKNOWN if UNKNOWN in operands else ANY
    decides = word == "OR"
    found = operands[0]
    for other in operands[1:]:
        pairs = product(found, other)
        found = frozenset(decides if decides in pair else None if None in pair else not decides for pair in pairs)
    return found


def _first(operands: Sequence[Outcomes]) -> Outcomes:
    """Return the outcomes of the first value that is not NULL."""
    found: set[bool | None] = set()
    for each in operands:
        found |= each - {None}
        if None not in each:
            return frozenset(found)
    return frozenset((*found, None))
