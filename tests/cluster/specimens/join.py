"""Pairs of rows that are valid at one instant, and rows of the left that have a partner, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.join import Join as JoinOperator
from cluster.fjord.operators.join import SemiJoin as SemiJoinOperator
from cluster.operators import AntiJoin, Join, Node, SemiJoin
from tests.cluster.fjord.operators.conformance import LEFT, RIGHT, Case, condition
from tests.cluster.specimens.drawing import MOST_COLUMNS, Drawing, narrowed
from tests.cluster.specimens.snapshot_sql import SnapshotSql, condition_sql, names_of, within
from tests.cluster.specimens.specimen import Cases, DefinedInSql


class JoinSpecimen(DefinedInSql[Join]):
    node = Join
    weight = 2
    conformance: ClassVar[Cases] = {
        JoinOperator: (
            Case(lambda: JoinOperator(LEFT, RIGHT, condition('"k" = "k2" AND "n" <= "n2"')), instantaneous=True),
            Case(lambda: JoinOperator(LEFT, RIGHT, None)),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "join": (
            "SELECT t.sensor, t.speed, w.wind FROM traffic WINDOW(RANGE 8 US) AS t, weather WINDOW(RANGE 8 US) AS w "
            "WHERE t.sensor = w.sensor"
        ),
        "join of some": (
            "SELECT t.sensor, t.speed, w.wind FROM traffic WINDOW(RANGE 8 US) AS t, weather WINDOW(RANGE 8 US) AS w "
            "WHERE t.sensor = w.sensor AND t.lane = 1"
        ),
        "join at equal instants": (
            "SELECT t.sensor, w.sensor AS other FROM traffic AS t, weather AS w WHERE t.lane > w.wind"
        ),
        "join with itself": (
            "SELECT a.lane, b.lane AS other FROM traffic WINDOW(RANGE 4 US) AS a, traffic WINDOW(RANGE 4 US) AS b "
            "WHERE a.sensor = b.sensor AND a.lane < b.lane"
        ),
        "join without equality": (
            "SELECT t.speed, w.gust FROM traffic WINDOW(RANGE 5 US) AS t, weather WINDOW(RANGE 5 US) AS w WHERE "
            "t.speed > w.gust"
        ),
        "join of three": (
            "SELECT a.sensor, b.wind, c.lane FROM traffic WINDOW(RANGE 3 US) AS a, weather WINDOW(RANGE 6 US) AS b, "
            "traffic WINDOW(RANGE 4 US) AS c WHERE a.sensor = b.sensor AND b.sensor = c.sensor AND a.open"
        ),
        "join of aggregates": (
            "SELECT a.sensor, a.n, b.wind FROM (SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 "
            "US) GROUP BY sensor) AS a, (SELECT sensor, MAX(wind) AS wind FROM weather WINDOW(RANGE 20 US SLIDE 10 US) "
            "GROUP BY sensor) AS b WHERE a.sensor = b.sensor"
        ),
        "aggregate of a join": (
            "SELECT t.sensor, COUNT(*) AS n, AVG(w.gust) AS x FROM traffic WINDOW(RANGE 6 US) AS t, weather "
            "WINDOW(RANGE 6 US) AS w WHERE t.sensor = w.sensor GROUP BY t.sensor"
        ),
        "join by what is computed": (
            "SELECT t.lane, w.wind FROM traffic AS t WINDOW(RANGE 9 US), weather AS w WINDOW(RANGE 6 US) WHERE t.lane "
            "* 2 = w.wind + 1"
        ),
        "exists by what is computed": (
            "SELECT sensor, lane FROM traffic AS t WINDOW(RANGE 5 US) WHERE EXISTS (SELECT 1 FROM weather AS w "
            "WINDOW(RANGE 6 US) WHERE w.wind % 3 = t.lane)"
        ),
        "full join by what is computed": (
            "SELECT t.lane, w.wind FROM traffic AS t WINDOW(RANGE 4 US) FULL JOIN weather AS w WINDOW(RANGE 5 US) ON "
            "t.lane / 2 = w.wind / 2 AND t.speed < w.gust"
        ),
    }
    golden = "join"

    def sql(self, node: Join, query: SnapshotSql) -> str:
        columns = within(node.left.schema, "l") + within(node.right.schema, "r")
        return (
            f'SELECT l."#run", l."#t", l."#n" * r."#n" AS "#n", NULL::BIGINT AS "#o"{columns} '
            f'FROM {query.of(node.left)} l JOIN {query.of(node.right)} r ON l."#run" = r."#run" '
            f'AND l."#t" = r."#t" AND {condition_sql(node.predicate)}'
        )

    def draw(self, drawing: Drawing, depth: int) -> Node:
        left, right = drawing.to_join(depth)
        if len(left.schema) + len(right.schema) > MOST_COLUMNS:
            right = narrowed(right)
            left = left if len(left.schema) < MOST_COLUMNS else narrowed(left)
        return Join(left, right, drawing.join_condition(left.schema, right.schema))


def _with_partner(node: SemiJoin | AntiJoin, query: SnapshotSql, some: str) -> str:
    return (
        f'SELECT l."#run", l."#t", l."#n", NULL::BIGINT AS "#o"{names_of(node.schema)} FROM {query.of(node.left)} l '
        f'WHERE {some} (SELECT 1 FROM {query.of(node.right)} r WHERE l."#run" = r."#run" AND l."#t" = r."#t" '
        f"AND {condition_sql(node.predicate)})"
    )


class SemiJoinSpecimen(DefinedInSql[SemiJoin]):
    node = SemiJoin
    conformance: ClassVar[Cases] = {
        SemiJoinOperator: (
            Case(lambda: SemiJoinOperator(LEFT, RIGHT, condition('"k" = "k2"'), anti=False), instantaneous=True),
            Case(lambda: SemiJoinOperator(LEFT, RIGHT, condition('"n" < "n2"'), anti=True), instantaneous=True),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "exists": (
            "SELECT sensor, lane FROM traffic WINDOW(RANGE 6 US) AS t WHERE EXISTS (SELECT 1 FROM weather WINDOW(RANGE "
            "6 US) AS w WHERE w.sensor = t.sensor AND w.wind > 1)"
        ),
        "in a stream": "SELECT speed FROM traffic WHERE sensor IN (SELECT sensor FROM weather WINDOW(RANGE 6 US))",
    }
    golden = "exists"

    def sql(self, node: SemiJoin, query: SnapshotSql) -> str:
        return _with_partner(node, query, "EXISTS")

    def draw(self, drawing: Drawing, depth: int) -> Node:
        left, right = drawing.to_join(depth)
        return SemiJoin(left, right, drawing.join_condition(left.schema, right.schema))


class AntiJoinSpecimen(DefinedInSql[AntiJoin]):
    node = AntiJoin
    host_queries: ClassVar[Mapping[str, str]] = {
        "not exists": (
            "SELECT sensor, lane FROM traffic WINDOW(RANGE 6 US) AS t WHERE NOT EXISTS (SELECT 1 FROM weather "
            "WINDOW(RANGE 6 US) AS w WHERE w.sensor = t.sensor)"
        ),
        "not in a stream": (
            "SELECT speed FROM traffic WHERE lane NOT IN (SELECT wind FROM weather WINDOW(RANGE 6 US) WHERE wind > 1)"
        ),
    }
    golden = "not exists"

    def sql(self, node: AntiJoin, query: SnapshotSql) -> str:
        return _with_partner(node, query, "NOT EXISTS")

    def draw(self, drawing: Drawing, depth: int) -> Node:
        left, right = drawing.to_join(depth)
        return AntiJoin(left, right, drawing.join_condition(left.schema, right.schema))
