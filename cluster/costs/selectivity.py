"""The share of rows that meet a condition, as assumed from its form, because nothing is known of the data.

The shares are those of the first optimiser with costs: Selinger et al., Access Path Selection in a Relational Database
Management System (SIGMOD 1979), table 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cluster.expressions.conditions import conjuncts
from cluster.expressions.nodes import (
    FALSE,
    NULL,
    TRUE,
    Among,
    Between,
    Binary,
    Chain,
    Expression,
    Group,
    Like,
    Literal,
    Not,
)
from cluster.expressions.walks import columns_read, found_from_below
from cluster.operators.characteristics import KEYS_ASSUMED

EQUAL, ORDERED, BETWEEN, OTHER = 1 / 10, 1 / 3, 1 / 4, 1 / 2
"""The share of rows for which an equality, a comparison by order, BETWEEN, and any other condition holds."""
MOST_AMONG = 1 / 2
"""The share of rows whose value is in a list, at most."""

_OF_SIGN = {
    **dict.fromkeys(("=", "IS", "IS NOT DISTINCT FROM"), EQUAL),
    **dict.fromkeys(("<>", "IS DISTINCT FROM"), 1 - EQUAL),
    **dict.fromkeys(("<", "<=", ">", ">="), ORDERED),
}


@found_from_below
def selectivity(condition: Expression, operands: Sequence[float]) -> float:
    """Return the share of rows for which a condition is true, from 0 to 1; what is no condition counts as one."""
    match condition:
        case Literal():
            return {TRUE: 1.0, FALSE: 0.0, NULL: 0.0}.get(condition, OTHER)
        case Group():
            return operands[0]
        case Not():
            return 1 - operands[0]
        case Chain(word="AND"):
            return math.prod(operands)
        case Chain(word="OR"):
            return 1 - math.prod(1 - each for each in operands)
        case Binary():
            return _OF_SIGN.get(condition.sign, OTHER)
        case Between():
            return BETWEEN
        case Among():
            return min(MOST_AMONG, EQUAL * len(condition.choices))
        case Like():
            return EQUAL
        case _:
            return OTHER


def share_passing(stream: str | None, condition: Expression, measured: Mapping[tuple[str, Expression], float]) -> float:
    """Return the share of tuples that meet a condition: as measured, whole or part by part, else as assumed.

    Parameters
    ----------
    stream
        Whose tuples they are; None if they are computed.
    condition
        The condition.
    measured
        Shares by stream and condition, as far as they are known.
    """
    if stream is None:
        return selectivity(condition)
    whole = measured.get((stream, condition))
    if whole is not None:
        return whole
    return math.prod(measured.get((stream, each), selectivity(each)) for each in conjuncts(condition))


def share_of_pairs(
    condition: Expression | None, left: frozenset[str], right: frozenset[str], measured: Mapping[Expression, float]
) -> float:
    """Return the share of pairs that meet a condition of a join: as measured, else as assumed.

    An equality of which nothing is known has the share of one that reads a column of it: if a = b and b = c have been
    measured, a and c have as many values in common. Of several equalities the one that fewest pairs meet counts: all
    between the sides are assumed to be those of one key. Other parts hold independently of it.

    Parameters
    ----------
    condition
        The condition; None for none.
    left, right
        Names of the columns of both sides.
    measured
        Shares by condition, as far as they are known.
    """
    if condition is None or condition in measured:
        return 1.0 if condition is None else measured[condition]
    parts = conjuncts(condition)
    equalities = [each for each in parts if _compares_sides(each, left, right)]
    rest = math.prod(measured.get(each, selectivity(each)) for each in parts if each not in equalities)
    shares = [_share_of_equality(each, measured) for each in equalities]
    known = [each for each in shares if each is not None]
    return rest * min(known) if known else rest / keys_joined(condition, left, right)


def _share_of_equality(equality: Expression, measured: Mapping[Expression, float]) -> float | None:
    if equality in measured:
        return measured[equality]
    read = columns_read(equality)
    near = [share for each, share in measured.items() if isinstance(each, Binary) and columns_read(each) & read]
    return max(near, default=None)


def keys_joined(condition: Expression | None, left: frozenset[str], right: frozenset[str]) -> float:
    """Return how many keys the rows are divided by that a join compares: one if nothing has to be equal."""
    parts = () if condition is None else conjuncts(condition)
    return KEYS_ASSUMED if any(_compares_sides(each, left, right) for each in parts) else 1


def _compares_sides(part: Expression, left: frozenset[str], right: frozenset[str]) -> bool:
    if not isinstance(part, Binary) or part.sign not in ("=", "IS NOT DISTINCT FROM"):
        return False
    one, other = columns_read(part.left), columns_read(part.right)
    return bool(one and other) and ((one <= left and other <= right) or (one <= right and other <= left))
