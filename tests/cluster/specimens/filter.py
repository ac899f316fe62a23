"""Rows that meet a condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.filtering import Filter as FilterOperator
from cluster.operators import Filter, Node
from tests.cluster.fjord.operators.conformance import Case, condition
from tests.cluster.oracle.scalar_sql import scalar_sql
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import SnapshotSql
from tests.cluster.specimens.specimen import Cases, Unary


class FilterSpecimen(Unary[Filter]):
    node = Filter
    weight = 2
    conformance: ClassVar[Cases] = {
        FilterOperator: (Case(lambda: FilterOperator(condition('"n" > 0')), instantaneous=True),)
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "filter": "SELECT sensor, speed FROM traffic WHERE speed < 2",
        "filter by text": "SELECT sensor, speed FROM traffic WHERE sensor = 'a'",
        "filter by another text": "SELECT sensor, speed FROM traffic WHERE sensor = 'b'",
        "filter of NULL": "SELECT sensor FROM traffic WHERE speed IS NULL AND sensor IS NOT NULL",
        "filter of three values": "SELECT sensor FROM traffic WHERE NOT (speed > 1 AND open)",
        "filter by list": "SELECT sensor, lane FROM traffic WHERE lane IN (1, 3) OR open",
        "filter by range": "SELECT speed FROM traffic WHERE speed BETWEEN 1 AND 2.5",
        "filter by pattern": "SELECT sensor FROM traffic WHERE sensor LIKE 'a%'",
    }
    golden = "filter"

    def sql(self, node: Filter, query: SnapshotSql) -> str:
        return f"SELECT * FROM {query.of(node.input)} WHERE {scalar_sql(node.predicate)}"

    def over(self, drawing: Drawing, node: Node) -> Node:
        return Filter(node, drawing.condition(node.schema))
