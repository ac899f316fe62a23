"""Snapshots at whole multiples of a granule (rule G1); nothing is promised of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.time_window import Granularity as GranularityOperator
from cluster.operators import Granularity, Node
from tests.cluster.fjord.operators.conformance import Case
from tests.cluster.specimens.clause import Clause
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import SnapshotSql
from tests.cluster.specimens.specimen import Cases, Unary


class GranularityText(Clause):
    word = "GRANULARITY"
    amounts = (2, 3, 4)
    bounds = ("COARSEST", "FINEST")
    order = 9

    def sql(self, table: str, amount_us: int) -> str:
        return f"SELECT * FROM {table} WHERE t % {amount_us} = 0"

    def granule_us(self, amount_us: int) -> int:
        return amount_us

    def reach_us(self, amount_us: int) -> int:
        return amount_us


class GranularitySpecimen(Unary[Granularity]):
    node = Granularity
    conformance: ClassVar[Cases] = {GranularityOperator: (Case(lambda: GranularityOperator(3), granule=3),)}
    host_queries: ClassVar[Mapping[str, str]] = {
        "granularity": "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 12 US) GRANULARITY(4 US)",
        "ranges of granularities": (
            "SELECT MAX(lane) AS m FROM traffic WINDOW(RANGE MIN 3 US, MAX 9 US) GRANULARITY(COARSEST 6 US, FINEST 2 "
            "US)"
        ),
    }
    golden = "ranges of granularities"
    clause = GranularityText()

    def sql(self, node: Granularity, query: SnapshotSql) -> str:
        return f'SELECT * FROM {query.of(node.input)} WHERE "#t" % {node.granule_us} = 0'

    def reach_us(self, node: Granularity) -> int:
        return node.granule_us

    def granule_us(self, node: Granularity) -> int:
        return node.granule_us

    def over(self, drawing: Drawing, node: Node) -> Node:
        return Granularity(node, drawing.one_of((2, 3, 4)))
