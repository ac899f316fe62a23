"""Marks: columns that rows of running plans have besides those of queries, which never see them.

    rows of                           marks, besides the query group
    samples that queries share        VISIBLE_FROM
    shared windows by count           VISIBLE_FROM, SUPERSEDED_UNTIL
    shared extents                    VISIBLE_FROM, SUPERSEDED_UNTIL, EXTENT, RUN_BEGIN, RUN_END
    windows merged from panes         VISIBLE_FROM, SUPERSEDED_UNTIL, SIZE, SLIDE
    samples that devices aggregate    COVERED_BY
    the right side of a join          those of the left, with RIGHT before their names
    pieces of rows that were cut      ORIGIN, on their way to a lookup (cluster/physical/rules/pieces.py)

A row is for the queries that began after ``SUPERSEDED_UNTIL``, up to ``VISIBLE_FROM``. Names of marks are in running
state, and never change.
"""

from __future__ import annotations

from cluster.operators.columns import QUERY_GROUP, STAMP, VISIBLE_FROM, Column, Schema
from protocols.wire.batches import COVERED_BY_COLUMN
from protocols.wire.streams import FieldType

SUPERSEDED_UNTIL = Column("fjord_after", FieldType.INTEGER)
"""Queries visible from this epoch or an earlier one get another row instead."""

SIZE = Column("fjord_size_us", FieldType.INTEGER, "us")
SLIDE = Column("fjord_slide_us", FieldType.INTEGER, "us")
"""The window that a row merged from panes is of."""

EXTENT = Column("fjord_extent", FieldType.INTEGER)
"""The number of the extent that a row of shared extents is of."""
RUN_BEGIN = Column("fjord_run_begin", FieldType.INTEGER, STAMP.unit)
RUN_END = Column("fjord_run_end", FieldType.INTEGER, STAMP.unit)
"""The interval of a row of shared extents."""

MARKS: Schema = (QUERY_GROUP, SIZE, SLIDE, VISIBLE_FROM, SUPERSEDED_UNTIL)
"""The marks of the rows of answers, by which each query finds its own."""

RIGHT = "fjord_right_"
"""Prefix of the marks of the right side of a join below it."""

COVERED_BY = Column(COVERED_BY_COLUMN, FieldType.TEXT)
"""The fingerprints of device partial aggregates that contain a sample."""

ORIGIN = Column("fjord_origin", FieldType.INTEGER, STAMP.unit)
"""Where the row began of which this is a piece: the start of one that was not cut."""
