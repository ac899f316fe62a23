"""Tuples of a stream: each is valid at its stamp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.operators import Node, Source
from cluster.operators.columns import STAMP
from cluster.physical.rules.pipelines import stored_columns
from tests.cluster.specimens.drawing import COLUMNS, Drawing
from tests.cluster.specimens.snapshot_sql import HEAD, SnapshotSql, names_of, table_of
from tests.cluster.specimens.specimen import DefinedInSql


class SourceSpecimen(DefinedInSql[Source]):
    node = Source
    host_queries: ClassVar[Mapping[str, str]] = {
        "sampled": "SELECT sensor, speed FROM traffic SAMPLE EVERY 5 US",
        "published": "SELECT * FROM doors",
        "published every so often": "SELECT door, n FROM doors SAMPLE EVERY 5 US",
        "published rarely of some": "SELECT door, n FROM doors SAMPLE EVERY 16 US WHERE open",
    }
    golden = "sampled"

    def sql(self, node: Source, query: SnapshotSql) -> str:
        stamp = f', "#t" AS "{STAMP.name}"' if STAMP in node.columns else ""
        return f'SELECT {HEAD}, 1 AS "#n", "#o"{names_of(stored_columns(node))}{stamp} FROM "{table_of(node)}"'

    def draw(self, drawing: Drawing, depth: int) -> Node:
        stream = drawing.one_of(sorted(COLUMNS))
        period = drawing.one_of((None, None, None, None, 2))
        stamp = (STAMP,) if drawing.one_in(4) else ()
        return Source(stream, COLUMNS[stream] + stamp, period)
