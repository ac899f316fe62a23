"""How a query's relations would be looked up, and why: a section of EXPLAIN."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cluster.errors import PlanError
from cluster.expressions.conditions import equal_sides
from cluster.expressions.nodes import Column
from cluster.operators import Node, TableLookup
from cluster.operators.lookup import lookup_words
from cluster.operators.scalar_expressions import columns_of, conjuncts_of
from cluster.physical.lowering import lower_alone
from cluster.physical.nodes import Fragment
from cluster.physical.operations import Exchange, Held, Lookup, Reorder
from cluster.plan.expressions import joins_by_equality
from cluster.plan.lookup_order import partners_of
from cluster.plan.relations_read import RelationSize, slices_of
from protocols.text.byte_sizes import format_byte_size


def lookup_choices(node: Node, sizes: Mapping[str, RelationSize], *, memory_bytes: int, buckets: int) -> str:
    """Return a line for each lookup of a plan and how it is made; empty if there is none.

    Parameters
    ----------
    node
        The rewritten plan.
    sizes
        By identity; relations without a version are left out.
    memory_bytes
        The memory of a worker that one table may take.
    buckets
        The number of buckets downstream.
    """
    try:
        fragment = lower_alone(node)
    except PlanError:
        return ""  # another section of EXPLAIN has the reason
    lines: list[str] = []
    for lookup, spread in _lookups(fragment).items():
        lines.append(f"  {lookup_words(lookup)}")
        found = [(each.name, sizes.get(each.identity)) for each in lookup.table.relations]
        lines += [f"    {name}: {_size(size)}" for name, size in found]
        partners = partners_of(lookup, sizes)
        if lookup.kind in ("inner", "left") and math.isfinite(partners):
            lines.append(f"    about {_rows(round(partners))} for a tuple that finds any")
        total = sum(size.bytes for _, size in found if size is not None)
        lines.append(f"    {_choice(lookup, total, memory_bytes, buckets, spread=spread)}")
    return "\n".join(lines)


def _lookups(fragment: Fragment) -> dict[TableLookup, bool]:
    """Return the lookups, and whether Spark partitions the tuples by their keys."""
    spread = {
        node.id
        for node in fragment.exchanges
        if isinstance(node.operation, Exchange) and node.operation.spread == "lookup"
    }
    found: dict[TableLookup, bool] = {}
    for node in fragment.nodes:
        if isinstance(node.operation, Reorder) and spread.issuperset(node.inputs):
            spread.add(node.id)
        elif isinstance(node.operation, Lookup | Held):
            found.setdefault(node.operation.table, spread.issuperset(node.inputs))
    return found


def _size(size: RelationSize | None) -> str:
    if size is None:
        return "not read yet"
    return f"{_rows(size.rows)}, {format_byte_size(size.bytes)}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _choice(lookup: TableLookup, total: int, memory_bytes: int, buckets: int, *, spread: bool) -> str:
    key = _key(lookup)
    limit = format_byte_size(memory_bytes)
    if total <= memory_bytes:
        how = (
            f"by a hash table on {key}" if key else "row by row: no equality with its columns says which rows can match"
        )
        return f"whole in the memory of each worker (up to {limit}), {how}"
    if key is None:
        return f"cannot run: larger than {limit}, and no equality with a column by which it could be partitioned"
    slices = f"in {slices_of(total, memory_bytes, buckets)} slices by {key}, as it is larger than {limit}"
    if spread:
        return f"{slices}; Spark spreads the tuples over {buckets} buckets by the same key"
    return f"{slices}; each worker loads those that its tuples need, one after the other"


def _key(lookup: TableLookup) -> str | None:
    """Return the column of the table that is looked up by equality."""
    right = frozenset(column.name for column in lookup.table.schema)
    for part in conjuncts_of(lookup.predicate):
        left = columns_of(part) - right
        if left and joins_by_equality(part, left, right):
            keys = [side.name for side in equal_sides(part.expression) or () if isinstance(side, Column)]
            key = next((name for name in keys if name in right), None)
            if key is not None:
                return key
    return None
