"""Rows of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.set_operations import Union as UnionOperator
from cluster.operators import Node, Union
from tests.cluster.fjord.operators.conformance import LEFT, Case
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql, names_of
from tests.cluster.specimens.specimen import Cases, DefinedInSql


class UnionSpecimen(DefinedInSql[Union]):
    node = Union
    conformance: ClassVar[Cases] = {UnionOperator: (Case(lambda: UnionOperator(LEFT)),)}
    host_queries: ClassVar[Mapping[str, str]] = {
        "union all": (
            "SELECT sensor FROM traffic WINDOW(RANGE 5 US) UNION ALL SELECT sensor FROM weather WINDOW(RANGE 6 US)"
        ),
        "union": "SELECT sensor FROM traffic WINDOW(RANGE 5 US) UNION SELECT sensor FROM weather WINDOW(RANGE 6 US)",
    }
    golden = "union all"

    def sql(self, node: Union, query: SnapshotSql) -> str:
        left, right = (names_of(side.schema) for side in (node.left, node.right))
        return (
            f'SELECT {HEAD}, "#n", NULL::BIGINT AS "#o"{left} FROM {query.of(node.left)} UNION ALL '
            f'SELECT {HEAD}, "#n", NULL::BIGINT AS "#o"{right} FROM {query.of(node.right)}'
        )

    def draw(self, drawing: Drawing, depth: int) -> Node:
        return Union(*drawing.aligned(depth))
