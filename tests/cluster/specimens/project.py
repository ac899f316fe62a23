"""Columns computed of those of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.projection import Project as ProjectOperator
from cluster.operators import Node, Project
from cluster.operators.columns import Output
from tests.cluster.fjord.operators.conformance import ONLY_K, Case
from tests.cluster.oracle.scalar_sql import scalar_sql
from tests.cluster.specimens.drawing import BOOLEAN, INTEGER, REAL, TEXT, Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql
from tests.cluster.specimens.specimen import Cases, Unary


class ProjectSpecimen(Unary[Project]):
    node = Project
    conformance: ClassVar[Cases] = {ProjectOperator: (Case(lambda: ProjectOperator(ONLY_K), instantaneous=True),)}
    host_queries: ClassVar[Mapping[str, str]] = {
        "everything": "SELECT * FROM traffic",
        "expressions": "SELECT sensor, speed * 2 + lane AS x, speed > 2 AS fast, lane % 2 AS odd FROM traffic",
        "constants": "SELECT 1 AS one, 'x' AS text FROM weather",
        "division by nothing": "SELECT lane / (lane - 1) AS x, speed / 0 AS y FROM traffic",
        "subquery": (
            "SELECT s, x + 1 AS y FROM (SELECT sensor AS s, lane * 2 AS x FROM traffic WHERE lane > 0) AS t WHERE x < 5"
        ),
    }
    golden = "expressions"

    def sql(self, node: Project, query: SnapshotSql) -> str:
        outputs = "".join(f', {scalar_sql(each.scalar)} AS "{each.name}"' for each in node.outputs)
        return f'SELECT {HEAD}, "#n", "#o"{outputs} FROM {query.of(node.input)}'

    def over(self, drawing: Drawing, node: Node) -> Node:
        outputs = []
        for _ in range(drawing.whole(1, 3)):
            kind = drawing.one_of((INTEGER, INTEGER, REAL, TEXT, BOOLEAN))
            outputs.append(Output(drawing.names.fresh(), drawing.value(node.schema, kind)))
        return Project(node, tuple(outputs))
