"""Functions over tuples in order: each row with those before and behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.sequence import Sequence as SequenceOperator
from cluster.operators import Node, Sequence
from cluster.operators.columns import Schema
from cluster.operators.sequence import SequenceCall
from tests.cluster.fjord.operators.conformance import LEFT, Case
from tests.cluster.oracle.sequence_sql import OrderSql
from tests.cluster.specimens.drawing import INTEGER, REAL, TEXT, Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql, names_of, quoted
from tests.cluster.specimens.specimen import Cases, Unary


def _case(*calls: SequenceCall, instantaneous: bool = False) -> Case:
    return Case(lambda: SequenceOperator(LEFT, ("k",), ("k", "n"), calls), chronons=True, instantaneous=instantaneous)


class SequenceSpecimen(Unary[Sequence]):
    """Every copy of a tuple is one of its own."""

    node = Sequence
    weight = 2
    conformance: ClassVar[Cases] = {
        SequenceOperator: (
            _case(
                SequenceCall("before", "lag", "n", INTEGER, rows=2),
                SequenceCall("s", "sum", "n", INTEGER, peers=True),
                instantaneous=True,
            ),
            _case(
                SequenceCall("behind", "lead", "n", INTEGER, rows=1, within_us=4),
                SequenceCall("most", "max", "k", TEXT, range_us=5, peers=True),
                instantaneous=True,
            ),
            _case(
                SequenceCall("old", "sum", "n", INTEGER, peers=True, until_us=3),
                SequenceCall("earlier", "last", "n", INTEGER, until_rows=2),
                SequenceCall("between", "count", None, INTEGER, rows=3, until_rows=1),
            ),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "the value before": (
            "SELECT sensor, speed, LAG(speed) OVER (PARTITION BY sensor ORDER BY STAMP()) AS before FROM traffic"
        ),
        "the value before of some": (
            "SELECT sensor, lane, LAG(lane, 2, -1) OVER (PARTITION BY sensor) AS before FROM traffic WHERE lane > 1"
        ),
        "the value before of all": "SELECT speed - LAG(speed) OVER () AS rise FROM traffic",
        "the value before if near": (
            "SELECT sensor, LAG(open) OVER (PARTITION BY sensor) WITHIN 4 US AS before FROM traffic"
        ),
        "the value behind": (
            "SELECT sensor, lane, LEAD(lane) OVER (PARTITION BY sensor, segment) WITHIN 5 US AS behind FROM traffic"
        ),
        "changes": "SELECT sensor, lane FROM traffic QUALIFY CHANGED(lane) OVER (PARTITION BY sensor)",
        "changes of a condition": (
            "SELECT sensor, high FROM (SELECT sensor, HYSTERESIS(speed ABOVE 2 BELOW 0.5) OVER (PARTITION BY sensor) "
            "AS high FROM traffic) AS t QUALIFY high AND CHANGED(high) OVER (PARTITION BY sensor)"
        ),
        "running sums": (
            "SELECT sensor, SUM(lane) OVER (PARTITION BY sensor ORDER BY STAMP()) AS n, COUNT(*) OVER (PARTITION BY "
            "sensor ROWS 2 PRECEDING) AS few, AVG(speed) OVER (PARTITION BY sensor RANGE BETWEEN 6 US PRECEDING AND "
            "CURRENT ROW) AS x FROM traffic"
        ),
        "first and last of frames": (
            "SELECT segment, FIRST_VALUE(speed IGNORE NULLS) OVER (PARTITION BY segment ORDER BY STAMP()) AS f, "
            "LAST_VALUE(lane) IGNORE NULLS OVER (PARTITION BY segment ROWS UNBOUNDED PRECEDING) AS l, MAX(sensor) OVER "
            "(PARTITION BY segment ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS m FROM traffic"
        ),
        "frames that end before": (
            "SELECT sensor, SUM(lane) OVER (PARTITION BY sensor ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS few, "
            "COUNT(*) OVER (PARTITION BY sensor RANGE BETWEEN 9 US PRECEDING AND 3 US PRECEDING) AS n, AVG(speed) OVER "
            "(PARTITION BY sensor RANGE BETWEEN UNBOUNDED PRECEDING AND 4 US PRECEDING) AS old, LAST_VALUE(lane IGNORE "
            "NULLS) OVER (PARTITION BY sensor ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS l FROM traffic"
        ),
        "sums of changes": (
            "SELECT sensor, COUNT(*) AS n FROM (SELECT sensor FROM traffic QUALIFY CHANGED(open) OVER (PARTITION BY "
            "sensor)) AS c WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor"
        ),
    }
    golden = "sums of changes"

    def sql(self, node: Sequence, query: SnapshotSql) -> str:
        below = f'(SELECT *, unnest(range("#n")) AS "#copy" FROM {query.of(node.input)})'
        keys, ties = ([*map(quoted, each)] for each in (node.keys, node.ties))
        order = OrderSql(('"#run"', *dict.fromkeys(keys)), '"#t"', ties)
        calls = "".join(
            f', {order.of(call, *(name and quoted(name) for name in (call.argument, call.default)))} AS "{call.name}"'
            for call in node.calls
        )
        names = names_of(node.schema)
        rows = f"SELECT {HEAD}{names_of(node.input.schema)}{calls} FROM {order.placed(below)}"
        return f'SELECT {HEAD}, count(*) AS "#n", NULL::BIGINT AS "#o"{names} FROM ({rows}) GROUP BY {HEAD}{names}'

    def over(self, drawing: Drawing, node: Node) -> Node:
        node = drawing.instantaneous(node)
        names = [column.name for column in node.schema]
        keys = drawing.subset(names, 2)
        calls = [_drawn_call(drawing, node.schema) for _ in range(drawing.whole(1, 2))]
        return Sequence(node, tuple(keys), tuple(names), tuple(calls))


def _drawn_call(drawing: Drawing, schema: Schema) -> SequenceCall:
    fresh = drawing.names.fresh
    column = drawing.one_of(schema)
    numbers = [each for each in schema if each.type in (INTEGER, REAL)]
    function = drawing.one_of(("lag", "lag", "lead", "first", "last", "count", "sum", "avg", "min", "max"))
    if function in ("sum", "avg"):
        if not numbers:
            return SequenceCall(fresh(), "count", None, INTEGER, rows=2)
        column = drawing.one_of(numbers)
    far = drawing.whole(0, 6)
    if function in ("lag", "lead"):
        within = far if function == "lead" or drawing.coin() else None
        rows = drawing.whole(1, 2)
        default = column.name if function == "lag" and drawing.one_in(3) else None
        return SequenceCall(fresh(), function, column.name, column.type, rows=rows, default=default, within_us=within)
    kind = INTEGER if function == "count" else REAL if function == "avg" else column.type
    rows, range_us, peers = drawing.one_of(
        ((far + 1, None, False), (None, far + 1, True), (None, None, True), (None, None, False))
    )
    known = function in ("first", "last") and drawing.coin()
    until = drawing.whole(0, min(each for each in (rows, range_us, 6) if each is not None))
    return SequenceCall(
        fresh(), function, column.name, kind, rows=rows, range_us=range_us, peers=peers, known=known,
        until_rows=0 if peers else until, until_us=until if peers else 0,
    )  # fmt: skip
