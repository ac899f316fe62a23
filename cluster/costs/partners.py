"""How many rows a lookup makes of a tuple, on average, given what is known of relations. Pure.

    tuples of 1,000 keys, looked up in    places       1,000 keys, a row each     1
                                          closed       10 keys, a row each        0.01
                                          visits       1,000 keys, 5,000 rows     5

How many different values a column of a stream has is not counted: it is taken for as many as the relation with most
keys has that the column is looked up in. So of a column that is looked up once, each tuple is assumed to find a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.costs.selectivity import selectivity
from cluster.operators import Filter, Node, Project, Source, TableLookup
from cluster.operators.scalar_expressions import columns_of, conjuncts_of
from cluster.operators.walks import nodes_of
from cluster.plan.expressions import joins_by_equality
from cluster.plan.lookup_order import distinct_values, partners_of
from cluster.plan.relations_read import RelationSize

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
