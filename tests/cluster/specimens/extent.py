"""COALESCE: runs of samples that are linked with each other, each a row with its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import polars as pl

from cluster.fjord.batch import START
from cluster.fjord.operators.extent import Extent as ExtentOperator
from cluster.fjord.operators.projection import Project as ProjectOperator
from cluster.fjord.operators.time_window import TimeWindow as TimeWindowOperator
from cluster.operators import Extent, Node, Source
from cluster.operators.columns import STAMP, Column, Output
from cluster.operators.extent import Coalescing, Keeping, Link
from cluster.operators.scalar_expressions import passed_on
from cluster.plan.scalar_texts import read_scalar
from tests.cluster.fjord.operators.conformance import COLUMNS as ROWS
from tests.cluster.fjord.operators.conformance import LEFT, NO_LESS, Case
from tests.cluster.oracle.scalar_sql import scalar_sql
from tests.cluster.specimens.count_window import CountWindowSpecimen, PartitionedWindowSpecimen
from tests.cluster.specimens.drawing import COLUMNS, INTEGER, Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql
from tests.cluster.specimens.specimen import Cases, Unary
from tests.cluster.specimens.time_window import TimeWindowSpecimen


def _case(kept: Keeping, link: Link | None = None, lag_us: int | None = None, *, windowed: bool = False) -> Case:
    """Runs of each k: of stamps as they are, or of numbers taken for stamps, which rows enter in any order."""
    stamp = "t" if windowed else "n"
    how = Coalescing(("n",), stamp, ("k", "n"), ("since", "until"), link, kept)
    columns = LEFT.with_columns(pl.lit(0, pl.Int64).alias("t"))
    stamped = ProjectOperator(
        (*passed_on(ROWS), Output("t", read_scalar(f'"{START}"' if windowed else '"n"', INTEGER)))
    )
    below = [stamped, TimeWindowOperator(7, 2)] if windowed else [stamped]
    return Case(lambda: ExtentOperator(columns, ("k",), how, lag_us=lag_us), chronons=windowed, below=lambda: below)


class ExtentSpecimen(Unary[Extent]):
    """Number the samples of a key, and their runs by those that are not linked with the one before."""

    node = Extent
    weight = 2
    conformance: ClassVar[Cases] = {
        ExtentOperator: (
            _case("eager", windowed=True),
            _case("lazy", windowed=True),
            _case("eager", NO_LESS, 3, windowed=True),
            _case("lazy", NO_LESS, 2, windowed=True),
            _case("eager"),
            _case("lazy", NO_LESS),
            _case("eager", NO_LESS, 4),
        )
    }
    # Those that are called lazy are planned with the keeping of that name (tests/cluster/local/host_cases.py).
    host_queries: ClassVar[Mapping[str, str]] = {
        "coalesced": (
            "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(lane BY "
            "sensor) AS s"
        ),
        "coalesced by a tolerance": (
            "SELECT sensor, speed, open FROM traffic WINDOW(RANGE 9 US) COALESCE(speed TOLERANCE 3, open BY sensor) "
            "WHERE speed ~= 5 TOLERANCE 4"
        ),
        "coalesced while something holds": (
            "SELECT sensor, EXTRACT(EPOCH FROM MAX(DURATION(VALID(s)))) AS d FROM traffic WINDOW(RANGE 20 US SLIDE 5 "
            "US) COALESCE(lane BY sensor WHILE lane >= PREV(lane)) AS s GROUP BY sensor"
        ),
        "coalesced with fewer columns": (
            "SELECT lane FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(lane BY sensor) AS s WHERE "
            "DURATION(VALID(s)) > INTERVAL '0.000002' SECOND"
        ),
        "lazily coalesced": (
            "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(lane BY "
            "sensor) AS s"
        ),
        "lazily coalesced by others": (
            "SELECT sensor, open, VALID(s) AS held FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(open, speed "
            "TOLERANCE 2 BY sensor) AS s"
        ),
        "lazily coalesced of some": (
            "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(RANGE 12 US SLIDE 3 US) COALESCE(lane BY "
            "sensor) AS s WHERE sensor <> 'a'"
        ),
        "coalesced in a window by count": (
            "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(PARTITION BY sensor ROWS 4 SLIDE 2) "
            "COALESCE(lane BY sensor) AS s"
        ),
        "coalesced of the last": (
            "SELECT sensor, lane, VALID(s) AS held FROM traffic WINDOW(ROWS 9) COALESCE(lane BY sensor) AS s"
        ),
        "coalesced of the last with fewer columns": (
            "SELECT lane FROM traffic WINDOW(ROWS 9) COALESCE(lane BY sensor) AS s WHERE DURATION(VALID(s)) > INTERVAL "
            "'0.000002' SECOND"
        ),
        "coalesced of the last of one": (
            "SELECT EXTRACT(EPOCH FROM DURATION(VALID(s))) AS d FROM traffic WINDOW(ROWS 9) COALESCE(lane BY sensor) "
            "AS s WHERE sensor = 'a' AND lane > 1"
        ),
        "coalesced of the last of some": (
            "SELECT sensor, lane, VALID(s) AS held FROM (SELECT * FROM traffic WHERE open) WINDOW(ROWS 9) "
            "COALESCE(lane BY sensor) AS s"
        ),
        "coalesced of the last of each": (
            "SELECT sensor, open, VALID(s) AS held FROM traffic WINDOW(PARTITION BY sensor ROWS 4) COALESCE(open BY "
            "sensor) AS s"
        ),
        "coalesced of the last of each with fewer columns": (
            "SELECT open FROM traffic WINDOW(PARTITION BY sensor ROWS 4) COALESCE(open BY sensor) AS s WHERE NOT open"
        ),
        "coalesced and joined": (
            "SELECT a.sensor, b.lane, INTERSECT(VALID(a), VALID(b)) AS both FROM traffic WINDOW(RANGE 8 US SLIDE 2 US) "
            "COALESCE(open BY sensor) AS a, traffic WINDOW(RESET EVERY 16 US) COALESCE(lane BY sensor WHILE lane <= "
            "PREV(lane)) AS b WHERE a.sensor = b.sensor AND a.open AND VALID(a) OVERLAPS VALID(b)"
        ),
    }
    golden = "coalesced in a window by count"

    def sql(self, node: Extent, query: SnapshotSql) -> str:
        how, below = node.coalescing, query.of(node.input)
        keys = "".join(f', "{key}"' for key in node.keys)
        ties = "".join(f', "{name}" NULLS LAST' for name in how.ties)
        order = f'(PARTITION BY {HEAD}{keys} ORDER BY "{how.stamp}"{ties})'
        if how.link is None:
            pairs = [(f"#{name}", name) for name in how.columns]
            link = " AND ".join(f'"{name}" IS NOT DISTINCT FROM "{before}"' for before, name in pairs)
        else:
            pairs, link = list(how.link.before), scalar_sql(how.link.condition)
        before = "".join(f', lag("{column}") OVER {order} AS "{name}"' for name, column in pairs)
        samples = f'(SELECT *, unnest(range("#n")) AS "#copy" FROM {below})'
        placed = f'(SELECT *, row_number() OVER {order} AS "#place"{before} FROM {samples})'
        marked = f'(SELECT *, "#place" = 1 OR ({link}) IS NOT TRUE AS "#begins" FROM {placed})'
        by = f"PARTITION BY {HEAD}{keys}"
        runs = f'(SELECT *, sum("#begins"::INT) OVER ({by} ORDER BY "#place") AS "#nth" FROM {marked})'
        first = "".join(f', first("{name}" ORDER BY "#place") AS "{name}"' for name in how.columns)
        begin, end = (f'"{name}"' for name in how.bounds)
        stamps = f'min("{how.stamp}") AS {begin}, max("{how.stamp}") AS "#last"'
        own = f'(SELECT {HEAD}{keys}, "#nth"{first}, {stamps} FROM {runs} GROUP BY {HEAD}{keys}, "#nth")'
        ended = f'coalesce(lead({begin}) OVER ({by} ORDER BY "#nth"), "#last") AS {end}'
        shown = "".join(f', "{name}"' for name in how.columns) + f", {begin}"
        rows = f"(SELECT {HEAD}{keys}{shown}, {ended} FROM {own})"
        head = f'{HEAD}, count(*) AS "#n", NULL::BIGINT AS "#o"'
        return f"SELECT {head}{keys}{shown}, {end} FROM {rows} GROUP BY ALL"

    def over(self, drawing: Drawing, node: Node) -> Node:
        """Draw it over samples with stamps, in a window that slides or counts, or over whatever there is."""
        if STAMP not in node.schema:
            stream = drawing.one_of(sorted(COLUMNS))
            node = Source(stream, (*COLUMNS[stream], STAMP))
        if node.is_instantaneous and not drawing.one_in(6):
            windows = (TimeWindowSpecimen, TimeWindowSpecimen, CountWindowSpecimen, PartitionedWindowSpecimen)
            node = drawing.one_of(windows)().over(drawing, node)
        columns = [column for column in node.schema if column != STAMP]
        if not columns:
            node, columns = Source("alpha", (*COLUMNS["alpha"], STAMP)), list(COLUMNS["alpha"])
        shown = drawing.subset(columns, 2, least=1)
        keys = [column.name for column in columns if column not in shown][: drawing.whole(0, 2)]
        link = None
        if drawing.coin():
            before = [Column(drawing.names.fresh(), column.type) for column in columns[:2]]
            pairs = tuple((one.name, column.name) for one, column in zip(before, columns, strict=False))
            link = Link(drawing.condition((*columns, *before)), pairs)
        ties = tuple(column.name for column in columns)
        bounds = (drawing.names.fresh(), drawing.names.fresh())
        kept = drawing.one_of(("eager", "lazy"))
        how = Coalescing(tuple(each.name for each in shown), STAMP.name, ties, bounds, link, kept)
        return Extent(node, tuple(keys), how)
