"""What an expression may be, whatever its columns are: true, false, NULL. Of ``CAST(NULL AS REAL) > 1``, only NULL.

An estimate: what is not looked into may be anything. Values other than booleans count as true or false.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

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
)
from cluster.expressions.walks import found_from_below

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
