"""Groups: keys, and aggregates of the rows of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.operators.time_window import TimeWindow as TimeWindowOperator
from cluster.operators import Aggregate, Node
from cluster.operators.columns import STAMP, AggregateCall, Joining, Schema
from tests.cluster.aggregate_rows import AGGREGATE_ROWS, AggregateRow
from tests.cluster.fjord.operators.conformance import CALLS, KEY, Case, counted, merged
from tests.cluster.oracle.scalar_sql import call_sql
from tests.cluster.specimens.drawing import INTEGER, REAL, TEXT, Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql
from tests.cluster.specimens.specimen import Cases, Unary

RANKED = ("arg_min", "arg_max")
_NO_ROW = AggregateRow("", "", ())


class AggregateSpecimen(Unary[Aggregate]):
    node = Aggregate
    weight = 2
    conformance: ClassVar[Cases] = {
        PartialAggregate: (counted(KEY), counted(())),
        MergeAggregate: (
            Case(lambda: merged(KEY), below=lambda: [PartialAggregate(("k",), CALLS)], instantaneous=True),
            Case(lambda: merged(()), below=lambda: [PartialAggregate((), CALLS)], instantaneous=True),
            Case(lambda: merged(KEY), chronons=True, below=lambda: [PartialAggregate(("k",), CALLS)]),
            Case(
                lambda: MergeAggregate(KEY, CALLS, slide_us=3),
                chronons=True,
                below=lambda: [TimeWindowOperator(5, 3), PartialAggregate(("k",), CALLS)],
            ),
        ),
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "count": "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US)",
        "count by sensor": "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor",
        "count of values": (
            "SELECT COUNT(speed) AS n, COUNT(DISTINCT speed) AS d FROM traffic WINDOW(RANGE 20 US SLIDE 10 US)"
        ),
        "sum": (
            "SELECT sensor, SUM(lane) AS n, SUM(speed) AS x FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY "
            "sensor"
        ),
        "average": "SELECT sensor, AVG(speed) AS x FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor",
        "average in shorter steps": (
            "SELECT sensor, AVG(speed) AS x FROM traffic WINDOW(RANGE 20 US SLIDE 5 US) GROUP BY sensor"
        ),
        "average of longer time": (
            "SELECT sensor, AVG(speed) AS x FROM traffic WINDOW(RANGE 30 US SLIDE 10 US) GROUP BY sensor"
        ),
        "average of some": (
            "SELECT sensor, AVG(speed) AS x FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) WHERE lane > 1 GROUP BY sensor"
        ),
        "extremes": (
            "SELECT MIN(speed) AS least, MAX(speed) AS most, MAX(sensor) AS last FROM traffic WINDOW(RANGE 20 US SLIDE "
            "10 US)"
        ),
        "spread": (
            "SELECT sensor, STDDEV(speed) AS s, VARIANCE(lane) AS v FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP "
            "BY sensor"
        ),
        "median": "SELECT segment, MEDIAN(speed) AS m FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY segment",
        "values at extremes": (
            "SELECT lane, ARG_MAX(sensor, speed) AS fastest, MIN_BY(speed, sensor) AS s FROM traffic WINDOW(RANGE 20 "
            "US SLIDE 10 US) GROUP BY lane"
        ),
        "mode and percentiles": (
            "SELECT segment, MODE(lane) AS m, PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY sensor) AS d, "
            "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY speed) FILTER (WHERE open) AS c FROM traffic WINDOW(RANGE 20 "
            "US SLIDE 10 US) GROUP BY segment"
        ),
        "spread of all": (
            "SELECT sensor, STDDEV_POP(speed) AS s, VAR_POP(lane) AS v FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) "
            "GROUP BY sensor"
        ),
        "filters": (
            "SELECT sensor, COUNT(*) FILTER (WHERE lane > 1) AS n, SUM(speed) FILTER (WHERE open) AS x FROM traffic "
            "WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY 1"
        ),
        "all and any": (
            "SELECT lane, BOOL_AND(open) AS a, BOOL_OR(speed > 2) AS o FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) "
            "GROUP BY lane"
        ),
        "first and last": (
            "SELECT lane, FIRST(speed) AS f, LAST(speed) AS l FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY "
            "lane"
        ),
        "keys that are expressions": (
            "SELECT lane % 2 = 0 AS even, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY even"
        ),
        "two keys": (
            "SELECT sensor, open, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor, open"
        ),
        "having": (
            "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor HAVING COUNT(*) "
            "> 2"
        ),
        "having more": (
            "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor HAVING COUNT(*) "
            "> 3"
        ),
        "having an average": (
            "SELECT sensor FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor HAVING AVG(speed) > 1.5 AND "
            "MIN(lane) = 1"
        ),
        "aggregates of expressions": (
            "SELECT SUM(speed * lane) AS x, COUNT(DISTINCT sensor) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) "
            "WHERE open"
        ),
        "weather by sensor": (
            "SELECT sensor, MAX(gust) AS gust, AVG(wind) AS wind FROM weather WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY "
            "sensor"
        ),
        "aggregate at every instant": "SELECT COUNT(*) AS n, MAX(speed) AS x FROM traffic",
        "aggregate by sensor at every instant": "SELECT sensor, SUM(lane) AS n FROM traffic GROUP BY sensor",
        "aggregate of a window": "SELECT sensor, AVG(speed) AS x FROM traffic WINDOW(RANGE 8 US) GROUP BY sensor",
        "aggregate of last rows": "SELECT AVG(speed) AS x FROM traffic WINDOW(ROWS 5)",
        "aggregate of last rows of each": (
            "SELECT sensor, MAX(lane) AS x FROM traffic WINDOW(PARTITION BY sensor ROWS 3) GROUP BY sensor"
        ),
        "aggregate of aggregates": (
            "SELECT MAX(n) AS most FROM (SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) "
            "GROUP BY sensor) AS c"
        ),
    }
    golden = "count"

    def sql(self, node: Aggregate, query: SnapshotSql) -> str:
        keys = "".join(f', "{key}"' for key in node.keys)
        calls = "".join(f', {call_sql(call)} AS "{call.name}"' for call in node.calls)
        return (
            f'SELECT {HEAD}, 1 AS "#n", NULL::BIGINT AS "#o"{keys}{calls} FROM '
            f'(SELECT *, unnest(range("#n")) AS "#copy" FROM {query.of(node.input)}) GROUP BY {HEAD}{keys}'
        )

    def over(self, drawing: Drawing, node: Node) -> Node:
        keys = drawing.subset([column.name for column in node.schema], 2)
        calls = [_drawn_call(drawing, node.schema) for _ in range(drawing.whole(1, 2))]
        return Aggregate(node, tuple(keys), tuple(calls))


def _drawn_call(drawing: Drawing, schema: Schema) -> AggregateCall:
    fresh = drawing.names.fresh
    function = drawing.one_of(("*", "count", "sum", "sum", "min", "max", *AGGREGATE_ROWS, "quantile",
                               "percentile_disc", "mode", "string_agg", *RANKED))  # fmt: skip
    if function == "*":
        return AggregateCall(fresh(), "count", None, INTEGER)
    order = STAMP.name if STAMP in schema and drawing.coin() else None
    if order is not None:
        function = drawing.one_of(("first", "last"))
    if function == "string_agg":
        joining = Joining(drawing.one_of((", ", "'", "")), drawing.coin())
        return AggregateCall(fresh(), function, drawing.value(schema, TEXT, 1), TEXT, drawing.coin(), joining=joining)
    any_type = function in ("count", "min", "max", "first", "last", "percentile_disc", "mode", *RANKED)
    kind = drawing.one_of((INTEGER, INTEGER, REAL, TEXT) if any_type else (INTEGER, INTEGER, REAL))
    argument = drawing.value(schema, kind, 1)
    result = INTEGER if function == "count" else kind if any_type or function == "sum" else REAL
    takes_distinct = function in ("count", "sum", "min", "max") or AGGREGATE_ROWS.get(function, _NO_ROW).distinct
    distinct = takes_distinct and drawing.one_in(4)
    share = 0.25 if function in ("quantile", "percentile_disc") else None
    if function in RANKED:
        return AggregateCall(fresh(), function, argument, result, by=drawing.value(schema, kind, 1))
    return AggregateCall(fresh(), function, argument, result, distinct, share, order=order)
