"""The order of a stream's lookups: the one that leaves the fewest pairs comes first.

Lookups of the same tuple do not depend on each other, unless one reads columns that another adds; so any order in
which each follows those whose columns it reads has the same answers. Lookups that only filter tuples come first. Then
come those that make pairs and drop tuples without a partner: the fewer partners a tuple has, the earlier; of equals
the smaller relation first, as fewer tuples have a partner there. Last come those that keep every tuple.

Figures are compared by their order of magnitude only: queries share equal lookups, and must not be
separated because a relation has grown a little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from cluster.operators import Filter, Lookup, Node, Project, Relation, Source, TableLookup
from cluster.operators.scalar_expressions import columns_of, conjuncts_of, plain_column
from cluster.operators.walks import rebuilt
from cluster.plan.expressions import joins_by_equality
from cluster.plan.relations_read import RelationSize

_RANKS = {"semi": 0, "anti": 0, "inner": 1, "left": 2}


def with_ordered_lookups(node: Node, sizes: Mapping[str, RelationSize]) -> Node:
    """Return a plan with the lookups of its streams in the best order.

    Parameters
    ----------
    node
        The rewritten plan.
    sizes
        By identity; nothing is known of relations that are missing.
    """

    def change(each: Node) -> Node:
        if not isinstance(each, Source) or len(each.lookups) < 2:  # noqa: PLR2004 - there is no order of one
            return each
        return replace(each, lookups=ordered(each.lookups, frozenset(column.name for column in each.sampled), sizes))

    return rebuilt(node, change)


def ordered(
    lookups: Sequence[TableLookup], sampled: frozenset[str], sizes: Mapping[str, RelationSize]
) -> tuple[TableLookup, ...]:
    """Return lookups in the best order.

    Parameters
    ----------
    lookups
        In an order that satisfies the dependencies.
    sampled
        Columns of the stream itself.
    sizes
        As for :func:`with_ordered_lookups`.
    """
    waiting, known, found = list(lookups), set(sampled), list[TableLookup]()
    while waiting:
        possible = [each for each in waiting if _read(each) <= known]
        best = min(possible, key=lambda each: _cost(each, sizes))  # of equals the first
        waiting.remove(best)
        found.append(best)
        known |= _added(best)
    return tuple(found)


def in_order(lookups: Sequence[TableLookup], sampled: frozenset[str]) -> bool:
    """Return whether each lookup follows those whose columns it reads, given the columns of the stream itself."""
    known = sampled
    for each in lookups:
        if not _read(each) <= known:
            return False
        known |= _added(each)
    return True


def partners_of(lookup: Lookup | TableLookup, sizes: Mapping[str, RelationSize]) -> float:
    """Return about how many rows a tuple with partners finds; infinity if that is not known."""
    own = lookup.table.names
    keys = [
        columns_of(part) & own
        for part in conjuncts_of(lookup.predicate)
        if joins_by_equality(part, columns_of(part) - own, own)
    ]
    values = [distinct_values(lookup.table, *key, sizes=sizes) for key in keys if len(key) == 1]
    known = [max(1, each) for each in values if each is not None]
    if keys and not known:
        return math.inf
    return max(1.0, _rows(lookup.table, sizes) / math.prod(known))


def _cost(lookup: TableLookup, sizes: Mapping[str, RelationSize]) -> tuple[int, float, float]:
    return _RANKS[lookup.kind], _magnitude(partners_of(lookup, sizes)), _magnitude(_rows(lookup.table, sizes))


def _read(lookup: TableLookup) -> frozenset[str]:
    """Return the columns of earlier lookups that it reads."""
    return (frozenset() if lookup.predicate is None else columns_of(lookup.predicate)) - lookup.table.names


def _added(lookup: TableLookup) -> frozenset[str]:
    """Return the columns that it adds to tuples."""
    return lookup.table.names if lookup.pairs else frozenset()


def _rows(table: Node, sizes: Mapping[str, RelationSize]) -> float:
    """Return about how many rows a table of relations has; for a join as many as the largest relation."""
    return max((_rows_of(each, sizes) for each in table.relations), default=math.inf)


def _rows_of(relation: Relation, sizes: Mapping[str, RelationSize]) -> float:
    return float(sizes[relation.identity].rows) if relation.identity in sizes else math.inf


def distinct_values(table: Node, column: str, *, sizes: Mapping[str, RelationSize]) -> int | None:
    """Return about how many distinct values a column of a table has; None if that is not known."""
    match table:
        case Relation():
            size = sizes.get(table.identity)
            return None if size is None else size.distinct.get(column)
        case Filter():
            return distinct_values(table.input, column, sizes=sizes)
        case Project():
            scalar = next(output.scalar for output in table.outputs if output.name == column)
            plain = plain_column(scalar)
            return None if plain is None else distinct_values(table.input, plain, sizes=sizes)
        case _:
            return None


def _magnitude(figure: float) -> float:
    return math.floor(math.log2(figure)) if 1 <= figure < math.inf else figure
