"""Rows without their copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.projection import Project as ProjectOperator
from cluster.fjord.operators.set_operations import Distinct as DistinctOperator
from cluster.operators import Distinct, Node
from tests.cluster.fjord.operators.conformance import LEFT, ONLY_K, Case
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql, names_of
from tests.cluster.specimens.specimen import Cases, Unary


class DistinctSpecimen(Unary[Distinct]):
    node = Distinct
    conformance: ClassVar[Cases] = {
        DistinctOperator: (
            Case(lambda: DistinctOperator(LEFT), instantaneous=True),
            Case(lambda: DistinctOperator(LEFT.drop("n")), below=lambda: [ProjectOperator(ONLY_K)]),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "distinct": "SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 10 US)",
        "distinct at every instant": "SELECT DISTINCT lane, open FROM traffic",
        "distinct over groups": (
            "SELECT DISTINCT COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor"
        ),
        "distinct over averages": (
            "SELECT DISTINCT AVG(speed) > 2 AS fast FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor, lane"
        ),
        "distinct over a join": (
            "SELECT DISTINCT t.sensor FROM traffic WINDOW(RANGE 9 US) AS t, weather WINDOW(RANGE 9 US) AS w WHERE "
            "t.sensor = w.sensor"
        ),
    }
    golden = "distinct"

    def sql(self, node: Distinct, query: SnapshotSql) -> str:
        names = names_of(node.schema)
        return f'SELECT DISTINCT {HEAD}, 1 AS "#n", NULL::BIGINT AS "#o"{names} FROM {query.of(node.input)}'

    def over(self, drawing: Drawing, node: Node) -> Node:
        return Distinct(node)
