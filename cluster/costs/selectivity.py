"""The share of rows that meet a condition, and how many rows a lookup makes of one, if nothing is known. Pure.

The shares are those of the first optimiser with costs: Selinger et al., Access Path Selection in a Relational Database
Management System (SIGMOD 1979), table 1.

**How many rows a lookup makes of a tuple, on average, given what is known of relations.**

    tuples of 1,000 keys, looked up in    places       1,000 keys, a row each     1
                                          closed       10 keys, a row each        0.01
                                          visits       1,000 keys, 5,000 rows     5

How many different values a column of a stream has is not counted: it is taken for as many as the relation with most
keys has that the column is looked up in. So of a column that is looked up once, each tuple is assumed to find a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from cluster.operators import Filter, Node, Project, Source, TableLookup
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.scalar_expressions import columns_of, conjuncts_of
from cluster.operators.walks import nodes_of
from cluster.plan.expressions import joins_by_equality
from cluster.plan.lookups import distinct_values, partners_of
from cluster.plan.names_read import RelationSize

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


Sizes = Mapping[str, RelationSize]
"""Of relations, by identity."""
NO_SIZES: Sizes = {}
Partners = Mapping[tuple[str, TableLookup], float]
"""By stream and lookup: rows that it makes of each that it takes."""
NO_PARTNERS: Partners = {}


@dataclass(frozen=True, slots=True)
class _Key:
    """The column of tuples by which they are looked up, and how many values of it a table has."""

    column: frozenset[str]
    values: float


def expected_partners(plan: Node, sizes: Sizes) -> dict[tuple[str, TableLookup], float]:
    """Return what lookups next to the streams of a plan are expected to make of a tuple; unknown ones are left out.

    It is the same for all orders of lookups.

    Parameters
    ----------
    plan
        The plan, rewritten.
    sizes
        By identity of a relation.
    """
    sources = [each for each in nodes_of(plan) if isinstance(each, Source) and each.lookups]
    return {(source.stream, lookup): rows for source in sources for lookup, rows in _of_source(source, sizes)}


def most_partners(lookup: TableLookup, sizes: Sizes) -> float:
    """Return how many rows a lookup makes of a tuple that finds some, on average; one if that is not known.

    Rows of a key all count, whatever else is asked of them. Where nothing has to be equal, that share of the pairs
    counts that is assumed of the condition.

    Parameters
    ----------
    lookup
        The lookup.
    sizes
        By identity of a relation.
    """
    each = partners_of(lookup, sizes)
    if not lookup.pairs or not math.isfinite(each):
        return 1.0
    return max(1.0, each if _key_of(lookup, sizes) else each * _share_kept(lookup) + (lookup.kind == "left"))


def _of_source(source: Source, sizes: Sizes) -> Iterator[tuple[TableLookup, float]]:
    keys = {lookup: _key_of(lookup, sizes) for lookup in source.lookups}
    for lookup, key in keys.items():
        each = partners_of(lookup, sizes)
        if not math.isfinite(each):
            continue
        if key is None:  # nothing has to be equal
            pairs = each * _share_kept(lookup)
            yield lookup, _rows(lookup, min(pairs, 1.0), pairs)
            continue
        known = max(other.values for other in keys.values() if other is not None and other.column == key.column)
        found = min(key.values / known, 1.0) * _share_kept(lookup)
        yield lookup, _rows(lookup, found, found * each)


def _rows(lookup: TableLookup, found: float, pairs: float) -> float:
    """Return the rows made of a tuple, given the share of tuples that find a partner, and the pairs of each."""
    match lookup.kind:
        case "semi":
            return found
        case "anti":
            return 1 - found
        case "left":
            return pairs + 1 - found
        case _:
            return pairs


def _key_of(lookup: TableLookup, sizes: Sizes) -> _Key | None:
    """Return the key with most values; None if it is not known, or nothing has to be equal."""
    own = lookup.table.names
    found = []
    for part in conjuncts_of(lookup.predicate):
        if joins_by_equality(part, columns_of(part) - own, own) and len(columns_of(part) & own) == 1:
            (column,) = columns_of(part) & own
            values = distinct_values(lookup.table, column, sizes=sizes)
            found += [] if values is None else [_Key(columns_of(part) - own, float(max(values, 1)))]
    return max(found, key=lambda each: each.values, default=None)


def _share_kept(lookup: TableLookup) -> float:
    """Return the share of rows of equal keys that meet all other conditions, as assumed from their form."""
    table, own = lookup.table, lookup.table.names
    others = (
        part for part in conjuncts_of(lookup.predicate) if not joins_by_equality(part, columns_of(part) - own, own)
    )
    share = math.prod(selectivity(part.expression) for part in others)
    while isinstance(table, Filter | Project):
        if isinstance(table, Filter):
            share *= selectivity(table.predicate.expression)
        table = table.input
    return share
