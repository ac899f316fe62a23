"""The first rows of each group by an order, or all rows with their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.ranking import Ranked as RankedOperator
from cluster.operators import Node, Ranked
from cluster.operators.columns import Ordering
from tests.cluster.fjord.operators.conformance import LEFT, Case
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql, names_of
from tests.cluster.specimens.specimen import Cases, Unary

BY_BOTH = (Ordering("n", descending=True), Ordering("k", nulls_first=True))


class RankedSpecimen(Unary[Ranked]):
    """Every copy has a place of its own; of equal ones it does not matter which."""

    node = Ranked
    weight = 2
    conformance: ClassVar[Cases] = {
        RankedOperator: (
            Case(lambda: RankedOperator(LEFT, keys=(), order=BY_BOTH, most=2), instantaneous=True),
            Case(
                lambda: RankedOperator(LEFT, keys=("k",), order=BY_BOTH, above=1, most=2, name="place"),
                instantaneous=True,
            ),
            Case(
                lambda: RankedOperator(LEFT, keys=(), order=BY_BOTH[:1], function="rank", name="place", lag_us=4),
                instantaneous=True,
            ),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "first groups": (
            "SELECT segment, MAX(speed) AS top FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY segment ORDER BY "
            "top DESC, segment LIMIT 2"
        ),
        "first of a set": (
            "(SELECT sensor, speed FROM traffic WINDOW(RANGE 7 US) UNION SELECT sensor, gust FROM weather WINDOW(RANGE "
            "5 US)) ORDER BY speed DESC NULLS FIRST, sensor FETCH FIRST 2 ROWS ONLY"
        ),
        "second on": "SELECT lane, open FROM traffic WINDOW(RANGE 9 US) ORDER BY speed, lane OFFSET 1",
        "first of each lane": (
            "SELECT lane, speed FROM (SELECT lane, speed, ROW_NUMBER() OVER (PARTITION BY lane ORDER BY speed DESC) AS "
            "n FROM traffic WINDOW(RANGE 12 US)) AS t WHERE n <= 2"
        ),
        "records": (
            "SELECT sensor, speed FROM traffic WINDOW(RANGE UNBOUNDED) QUALIFY ROW_NUMBER() OVER (PARTITION BY sensor "
            "ORDER BY speed) = 1"
        ),
        "ranks": (
            "SELECT sensor, lane, RANK() OVER (ORDER BY lane) AS r, DENSE_RANK() OVER (ORDER BY lane DESC) AS d FROM "
            "traffic WINDOW(ROWS 4)"
        ),
        "maximum of the first": (
            "SELECT MAX(speed) AS m, COUNT(*) AS n FROM (SELECT speed FROM traffic WINDOW(RANGE 11 US) ORDER BY speed "
            "LIMIT 3) AS t"
        ),
        "first in a relation": (
            "SELECT t.sensor, p.name FROM traffic AS t, (SELECT segment, name FROM places ORDER BY name, segment LIMIT "
            "3) AS p WHERE t.segment = p.segment"
        ),
        "ranks in a relation": (
            "SELECT t.sensor FROM traffic AS t WHERE t.segment IN (SELECT segment FROM (SELECT segment, ROW_NUMBER() "
            "OVER (PARTITION BY closed ORDER BY name) AS n FROM places) AS p WHERE n = 1)"
        ),
        "above the first": (
            "SELECT sensor FROM traffic WHERE speed > (SELECT gust FROM weather WINDOW(RANGE 9 US) ORDER BY gust DESC "
            "LIMIT 1)"
        ),
    }
    golden = "first of a set"

    def sql(self, node: Ranked, query: SnapshotSql) -> str:
        below, names = query.of(node.input), names_of(node.input.schema)
        groups = "".join(f', "{key}"' for key in node.keys)
        order = ", ".join(
            f'"{each.column}" {"DESC" if each.descending else "ASC"} NULLS {"FIRST" if each.nulls_first else "LAST"}'
            for each in node.order
        )
        place = f"{node.function}() OVER (PARTITION BY {HEAD}{groups} ORDER BY {order})"
        shown = "" if node.name is None else f', "#place" AS "{node.name}"'
        most = "" if node.most is None else f' AND "#place" <= {node.most}'
        return (
            f'SELECT {HEAD}, count(*) AS "#n", NULL::BIGINT AS "#o"{names}{shown} FROM (SELECT *, {place} AS "#place" '
            f'FROM (SELECT *, unnest(range("#n")) AS "#copy" FROM {below})) WHERE "#place" > {node.above}{most} '
            f"GROUP BY ALL"
        )

    def over(self, drawing: Drawing, node: Node) -> Node:
        columns = [column.name for column in node.schema]
        keys = drawing.subset(columns, 1)
        first = drawing.subset(columns, 2, least=1)
        function = drawing.one_of(("row_number", "row_number", "rank", "dense_rank"))
        # Without an order of all columns, it is ambiguous which row is the first.
        rest = [each for each in columns if each not in first] if function == "row_number" else []
        order = [Ordering(each, drawing.coin(), drawing.one_in(4)) for each in first]
        above, most = drawing.one_of((0, 0, 0, 1, 2)), drawing.one_of((1, 1, 2, 3, None))
        name = drawing.one_of((None, drawing.names.fresh()))
        places = above, None if most is None else above + most
        return Ranked(node, tuple(keys), (*order, *map(Ordering, rest)), function, *places, name)
