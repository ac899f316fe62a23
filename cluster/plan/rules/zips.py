"""Zipper joins: a condition sinks only where it removes whole keys. All columns break ties, so none is removed."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import Filter, Node, Zip
from cluster.operators.scalar_expressions import column_scalar, columns_of, conjunction_of, conjuncts_of, substituted
from protocols.wire.streams import FieldType


def filter_below_zip(node: Node) -> Node | None:
    """σp(A ⋈zip B) = σp(A) ⋈zip σp(B) where p reads only keys: all tuples of a key are removed, or none.

    Any other condition would remove a tuple before it has found its partner, which then would find another one.
    Unmatched tuples of the right have no keys of the left, so p must read the left, or the join answer pairs only. Keys
    are not reals: zeros of both signs are equal, and an expression can distinguish them.
    """
    if not (isinstance(node, Filter) and isinstance(node.input, Zip) and node.input.kind != "full"):
        return None
    zipped = node.input
    types = {column.name: column.type for column in zipped.schema}
    keys = [(one, other) for one, other in zipped.keys if types[one] is not FieldType.REAL]
    readable = {one for one, _ in keys} | ({other for _, other in keys} if zipped.kind == "inner" else set())
    parts = conjuncts_of(node.predicate)
    below = conjunction_of(part for part in parts if columns_of(part) and columns_of(part) <= readable)
    if below is None:
        return None
    above = conjunction_of(part for part in parts if not (columns_of(part) and columns_of(part) <= readable))
    columns = {column.name: column_scalar(column) for column in zipped.schema}
    of_left = columns | {other: columns[one] for one, other in keys}
    of_right = columns | {one: columns[other] for one, other in keys}
    left, right = substituted(below, of_left), substituted(below, of_right)
    if left is None or right is None:
        return None
    sunk = replace(zipped, left=Filter(zipped.left, left), right=Filter(zipped.right, right))
    return sunk if above is None else Filter(sunk, above)
