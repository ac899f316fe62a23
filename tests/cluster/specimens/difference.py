"""EXCEPT and INTERSECT: rows by how often each side has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.set_operations import Multiplicities, difference, intersection
from cluster.operators import Difference, Intersection, Node
from tests.cluster.fjord.operators.conformance import LEFT, Case
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql, counted, names_of
from tests.cluster.specimens.specimen import Cases, DefinedInSql


def _of_both(node: Difference | Intersection, query: SnapshotSql, count: str) -> str:
    left, right = (
        f'SELECT {HEAD}, "#n"{names_of(side.schema)} FROM {query.of(side)}' for side in (node.left, node.right)
    )
    return counted(left, right, node.schema, count)


class DifferenceSpecimen(DefinedInSql[Difference]):
    node = Difference
    conformance: ClassVar[Cases] = {
        Multiplicities: (
            Case(lambda: difference(LEFT), instantaneous=True),
            Case(lambda: intersection(LEFT), instantaneous=True),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "except": "SELECT sensor FROM traffic WINDOW(RANGE 9 US) EXCEPT SELECT sensor FROM weather WINDOW(RANGE 4 US)",
        "except all": (
            "SELECT sensor FROM traffic WINDOW(RANGE 9 US) EXCEPT ALL SELECT sensor FROM weather WINDOW(RANGE 9 US)"
        ),
    }
    golden = "except all"

    def sql(self, node: Difference, query: SnapshotSql) -> str:
        return _of_both(node, query, 'greatest(sum("#l") - sum("#r"), 0)')

    def draw(self, drawing: Drawing, depth: int) -> Node:
        # EXCEPT and INTERSECT without ALL are those of distinct tuples.
        return Difference(*drawing.aligned(depth, once=drawing.coin()))


class IntersectionSpecimen(DefinedInSql[Intersection]):
    node = Intersection
    host_queries: ClassVar[Mapping[str, str]] = {
        "intersect": (
            "SELECT sensor FROM traffic WINDOW(RANGE 9 US) INTERSECT SELECT sensor FROM weather WINDOW(RANGE 9 US)"
        ),
        "intersect all": (
            "SELECT sensor FROM traffic WINDOW(RANGE 9 US) INTERSECT ALL SELECT sensor FROM weather WINDOW(RANGE 9 US)"
        ),
    }
    golden = "intersect all"

    def sql(self, node: Intersection, query: SnapshotSql) -> str:
        return _of_both(node, query, 'least(sum("#l"), sum("#r"))')

    def draw(self, drawing: Drawing, depth: int) -> Node:
        return Intersection(*drawing.aligned(depth, once=drawing.coin()))
