"""VALID UNTIL NEXT: a tuple holds until the next one of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.until_next import UntilNext as UntilNextOperator
from cluster.operators import Node, UntilNext
from tests.cluster.fjord.operators.conformance import LEFT, Case
from tests.cluster.specimens.drawing import MOST_COLUMNS, Drawing
from tests.cluster.specimens.snapshot_sql import SnapshotSql, within
from tests.cluster.specimens.specimen import Cases, Unary


class UntilNextSpecimen(Unary[UntilNext]):
    """S(x) where x is the last stamp of its key up to t, and not too long ago."""

    node = UntilNext
    weight = 2
    conformance: ClassVar[Cases] = {
        UntilNextOperator: (
            Case(
                lambda: UntilNextOperator(LEFT, ("k",), 5, ("since", "until"), False),
                chronons=True,
                instantaneous=True,
            ),
            Case(lambda: UntilNextOperator(LEFT, (), 3, ("since", "until")), chronons=True),
            Case(lambda: UntilNextOperator(LEFT, ("k",), 7), chronons=True),
            Case(lambda: UntilNextOperator(LEFT, ("k", "n"), None, lag_us=2), chronons=True),
            Case(lambda: UntilNextOperator(LEFT, (), None, lag_us=None), chronons=True),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "until the next": "SELECT sensor, lane, speed FROM traffic VALID UNTIL NEXT BY sensor MAX 5 US",
        "until the next of two keys": (
            "SELECT sensor, lane, COUNT(*) AS n FROM traffic VALID UNTIL NEXT BY (sensor, lane) WHERE open GROUP BY "
            "sensor, lane"
        ),
        "until the next of all": "SELECT sensor, lane FROM traffic VALID UNTIL NEXT WHERE sensor IS NOT NULL",
        "intervals": (
            "SELECT t.sensor, VALID(t) AS held, EXTRACT(EPOCH FROM DURATION(VALID(t))) AS d FROM traffic VALID UNTIL "
            "NEXT BY sensor MAX 6 US AS t WHERE t.open"
        ),
        "intervals that overlap": (
            "SELECT t.sensor, INTERSECT(VALID(t), VALID(w)) AS both, ALLEN(VALID(t), VALID(w)) AS r FROM traffic VALID "
            "UNTIL NEXT BY sensor MAX 9 US AS t, weather VALID UNTIL NEXT BY sensor MAX 20 US AS w WHERE t.sensor = "
            "w.sensor AND VALID(t) OVERLAPS VALID(w) AND DURATION(INTERSECT(VALID(t), VALID(w))) > INTERVAL '0.000001' "
            "SECOND"
        ),
        "intervals before others": (
            "SELECT t.sensor, EXTRACT(EPOCH FROM MAX(DURATION(VALID(t)))) AS d, COUNT(*) AS n FROM traffic VALID UNTIL "
            "NEXT BY sensor MAX 4 US WINDOW(RANGE 12 US SLIDE 3 US) AS t, weather VALID UNTIL NEXT BY sensor MAX 8 US "
            "WINDOW(RANGE 12 US) AS w WHERE t.sensor = w.sensor AND VALID(t) BEFORE VALID(w) GROUP BY t.sensor"
        ),
    }
    golden = "until the next"

    def sql(self, node: UntilNext, query: SnapshotSql) -> str:
        below, keys = query.of(node.input), [f'"{key}"' for key in dict.fromkeys(node.keys)]
        names = within(node.input.schema, "s")
        by = ", ".join(('"#run"', *keys))
        most = "" if node.longest_us is None else f', "#t" + {node.longest_us}'
        ends = query.part(
            "held",
            f'SELECT *, least(lead("#t") OVER (PARTITION BY {by} ORDER BY "#t"){most}) AS ends '
            f'FROM (SELECT DISTINCT {by}, "#t" FROM {below})',
        )
        same = " AND ".join(f"s.{each} IS NOT DISTINCT FROM e.{each}" for each in ('"#run"', '"#t"', *keys))
        valid = 's."#t" <= i."#t" AND (e.ends IS NULL OR i."#t" < e.ends)' if node.lasts else 's."#t" = i."#t"'
        both = zip(('s."#t"', "e.ends"), node.bounds or (), strict=False)
        bounds = "".join(f', {value} AS "{name}"' for value, name in both)
        groups = ', s."#t", e.ends' if bounds else ""
        return (
            f'SELECT i."#run", i."#t", sum(s."#n") AS "#n", NULL::BIGINT AS "#o"{names}{bounds} '
            f'FROM instants i JOIN {below} s ON i."#run" = s."#run" JOIN {ends} e ON {same} AND {valid} '
            f'GROUP BY i."#run", i."#t"{groups}{names}'
        )

    def reach_us(self, node: UntilNext) -> int:
        return node.longest_us or 0

    def over(self, drawing: Drawing, node: Node) -> Node:
        node = drawing.instantaneous(node)
        columns = [column.name for column in node.schema]
        keys = tuple(drawing.subset(columns, 2))
        longest = drawing.one_of((None, 1, 3, 7))
        if longest is None or len(columns) + 2 > MOST_COLUMNS or drawing.coin():
            return UntilNext(node, keys, longest)
        return UntilNext(node, keys, longest, (drawing.names.fresh(), drawing.names.fresh()), drawing.coin())
