"""ISTREAM and DSTREAM: rows as they come to be valid, and as they cease to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.changes import Changes
from cluster.operators import Dstream, Istream, Node
from tests.cluster.fjord.operators.conformance import LEFT, Case
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql, counted, names_of
from tests.cluster.specimens.specimen import Cases, Unary


def _change(node: Istream | Dstream, query: SnapshotSql, other: str) -> str:
    own = f'SELECT {HEAD}, "#n"{names_of(node.schema)} FROM {query.of(node.input)}'
    return counted(own, other, node.schema, 'greatest(sum("#l") - sum("#r"), 0)')


class IstreamSpecimen(Unary[Istream]):
    """S(t) - S(t - 1)."""

    node = Istream
    conformance: ClassVar[Cases] = {
        Changes: (
            Case(lambda: Changes(LEFT, insertions=True), instantaneous=True),
            Case(lambda: Changes(LEFT, insertions=False), instantaneous=True),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "insertions": "SELECT sensor FROM ISTREAM((SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 6 US))) AS i",
    }
    golden = "insertions"

    def sql(self, node: Istream, query: SnapshotSql) -> str:
        below = query.of(node.input)
        return _change(node, query, f'SELECT "#run", "#t" + 1 AS "#t", "#n"{names_of(node.schema)} FROM {below}')

    def over(self, drawing: Drawing, node: Node) -> Node:
        return Istream(node)


class DstreamSpecimen(Unary[Dstream]):
    """S(t) - S(t + 1), and nothing changes after the last instant."""

    node = Dstream
    host_queries: ClassVar[Mapping[str, str]] = {
        "what held no longer": "SELECT sensor, lane FROM DSTREAM(traffic VALID UNTIL NEXT BY sensor MAX 5 US)",
        "deletions": "SELECT sensor FROM DSTREAM((SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 6 US))) AS d",
    }
    golden = "what held no longer"

    def sql(self, node: Dstream, query: SnapshotSql) -> str:
        below, names = query.of(node.input), names_of(node.schema)
        return _change(
            node,
            query,
            f'SELECT "#run", "#t" - 1 AS "#t", "#n"{names} FROM {below} UNION ALL '
            f'SELECT "#run", "#t", "#n"{names} FROM {below} WHERE "#t" = {query.last}',
        )

    def over(self, drawing: Drawing, node: Node) -> Node:
        return Dstream(node)
