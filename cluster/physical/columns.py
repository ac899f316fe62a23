"""Columns that lowering adds to rows, and that operators and answers look at."""

from __future__ import annotations

from cluster.language.algebra import QUERY_GROUP, STAMP, VISIBLE_FROM, Column, Schema
from protocols.batches import EXCEPT_COLUMN
from protocols.streams import FieldType

SIZE = Column("fjord_size_us", FieldType.INTEGER, "us")
SLIDE = Column("fjord_slide_us", FieldType.INTEGER, "us")
SUPERSEDED_UNTIL = Column("fjord_after", FieldType.INTEGER)
"""Queries visible from this epoch or an earlier one get another row in the place of this one."""
MARKS: Schema = (QUERY_GROUP, SIZE, SLIDE, VISIBLE_FROM, SUPERSEDED_UNTIL)
"""What the rows of answers carry so that each query finds its own."""

RIGHT = "fjord_right_"
"""Marks of the right side of a join are called so until it is made."""

COVERED_BY = Column(EXCEPT_COLUMN, FieldType.TEXT)
"""Which aggregates of sensors contain a sample already."""

MADE = (STAMP, QUERY_GROUP, VISIBLE_FROM)
"""Columns of a source that are made when it is read, not stored."""
