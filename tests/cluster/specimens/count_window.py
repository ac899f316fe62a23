"""Windows by count: the last rows of all, or of each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.count_window import CountWindow as CountWindowOperator
from cluster.operators import CountWindow, Node, PartitionedWindow
from tests.cluster.fjord.operators.conformance import LEFT, Case
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql, names_of, within
from tests.cluster.specimens.specimen import Cases, Unary


def _last_rows(node: CountWindow | PartitionedWindow, keys: tuple[str, ...], query: SnapshotSql) -> str:
    """Elements numbered [max(k - N + 1, 1), k], where k = floor(n(t) / A) * A; by group."""
    below, names = query.of(node.input), names_of(node.schema)
    groups = "".join(f', "{key}"' for key in keys)
    same = "".join(f' AND c."{key}" IS NOT DISTINCT FROM s."{key}"' for key in keys)
    by_group = "".join(f', s."{key}"' for key in keys)
    numbered = query.part(
        "numbered",
        f'SELECT *, row_number() OVER (PARTITION BY "#run"{groups} ORDER BY "#t", "#o") AS "#i" '
        f'FROM (SELECT *, unnest(range("#n")) AS "#copy" FROM {below})',
    )
    counted = query.part(
        "counted",
        f'SELECT i."#run", i."#t", (count(*) // {node.slide_rows}) * {node.slide_rows} AS "#k"{by_group} '
        f'FROM instants i JOIN {numbered} s ON i."#run" = s."#run" AND s."#t" <= i."#t" '
        f'GROUP BY i."#run", i."#t"{by_group}',
    )
    query.ambiguous_if(
        f'SELECT "#run" FROM (SELECT DISTINCT {HEAD}{names} FROM {below} WHERE "#o" IS NULL) '
        f"GROUP BY {HEAD}{groups} HAVING count(*) > 1"
    )
    first = "" if node.rows is None else f' AND s."#i" > c."#k" - {node.rows}'
    own = within(node.schema, "s")
    return (
        f'SELECT c."#run", c."#t", count(*) AS "#n", NULL::BIGINT AS "#o"{own} '
        f'FROM {counted} c JOIN {numbered} s ON c."#run" = s."#run"{same} AND s."#i" <= c."#k"{first} '
        f'GROUP BY c."#run", c."#t"{own}'
    )


class CountWindowSpecimen(Unary[CountWindow]):
    node = CountWindow
    conformance: ClassVar[Cases] = {
        CountWindowOperator: (
            Case(lambda: CountWindowOperator(LEFT, 2, 1), chronons=True),
            Case(lambda: CountWindowOperator(LEFT, 3, 2), chronons=True),
            Case(lambda: CountWindowOperator(LEFT, 1, 3, ("k",)), chronons=True),
            Case(lambda: CountWindowOperator(LEFT, 2, 1, ("k",)), chronons=True),
            Case(lambda: CountWindowOperator(LEFT, None, 2, ("k",)), chronons=True),
            Case(lambda: CountWindowOperator(LEFT, 2, 1, lag_us=0), chronons=True),
            Case(lambda: CountWindowOperator(LEFT, 2, 2, ("k",), lag_us=0), chronons=True),
            Case(lambda: CountWindowOperator(LEFT, 3, 1, ("k", "n"), lag_us=3), chronons=True),
            Case(lambda: CountWindowOperator(LEFT, 2, 1, ("k",), lag_us=None), chronons=True),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "last rows": "SELECT sensor, speed FROM traffic WINDOW(ROWS 3)",
        "last rows in steps": "SELECT sensor, lane FROM traffic WINDOW(ROWS 4 SLIDE 2)",
    }
    golden = "coalesced of the last"

    def sql(self, node: CountWindow, query: SnapshotSql) -> str:
        return _last_rows(node, (), query)

    def over(self, drawing: Drawing, node: Node) -> Node:
        node = drawing.to_window(node)
        rows = drawing.whole(1, 4)
        return CountWindow(node, drawing.one_of((rows, rows, rows, rows, None)), drawing.one_of((1, 1, 1, 2, 3)))


class PartitionedWindowSpecimen(Unary[PartitionedWindow]):
    node = PartitionedWindow
    host_queries: ClassVar[Mapping[str, str]] = {
        "last rows of each": "SELECT sensor, lane FROM traffic WINDOW(PARTITION BY sensor ROWS 2)",
        "last row of two keys": (
            "SELECT sensor, segment, speed FROM traffic WINDOW(PARTITION BY sensor, segment ROWS 1)"
        ),
    }
    golden = "last rows of each"

    def sql(self, node: PartitionedWindow, query: SnapshotSql) -> str:
        return _last_rows(node, tuple(dict.fromkeys(node.keys)), query)

    def over(self, drawing: Drawing, node: Node) -> Node:
        node = drawing.to_window(node)
        keys = drawing.subset([column.name for column in node.schema], 2, least=1)
        return PartitionedWindow(node, tuple(keys), drawing.whole(1, 4), drawing.one_of((1, 1, 1, 2, 3)))
