"""Runs of a window that keeps so many tuples at most (``KEEP 10000 TUPLES``)."""

from __future__ import annotations

from typing import Annotated, ClassVar, NoReturn, Self, final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from cluster.operators.columns import QUERY_GROUP, Column, Schema
from cluster.operators.count_window import count_window_words
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import CountsCopies, CutAtWatermarks, NotEstimated, OneInput, WholeTuples
from cluster.operators.node import Node
from cluster.operators.operation import Operation, listed, tuples_counted
from cluster.operators.time_window import window_words
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType


class KeptTuples(msgspec.Struct, frozen=True):
    """What :class:`KeptExtent` keeps, and what it is made of.

    Parameters
    ----------
    most
        How many tuples it keeps, of all keys together.
    keys
        Columns by which tuples are grouped.
    run, number
        Columns with the number of a tuple's run among those of its key, and of the tuple itself.
    bounds, quality
        Names of the columns that rows have in place of these two: begin and end of the interval, and the share of the
        exact row that is left.
    size_us, slide_us
        Of a window by time.
    rows, slide_rows
        Of a window by count: the last `rows` tuples; None for a window by time.
    apart
        Columns of which each combination of values has an extent of its own.
    """

    most: Annotated[int, Meta(ge=1)]
    keys: tuple[str, ...]
    run: str
    number: str
    bounds: tuple[str, str]
    quality: str
    size_us: Annotated[int, Meta(ge=1)] = 1
    slide_us: Annotated[int, Meta(ge=1)] = 1
    rows: Annotated[int, Meta(ge=1)] | None = None
    slide_rows: Annotated[int, Meta(ge=1)] = 1
    apart: tuple[str, ...] = ()

    @property
    def longest_us(self) -> int | None:
        """How long a tuple is in a window by time, at most; None for a window by count."""
        return self.size_us + self.slide_us if self.rows is None else None

    @property
    def in_steps(self) -> bool:
        """Whether all rows are shown anew at each border of a window by time."""
        return self.rows is None and self.slide_us > 1


@final
class KeptExtent(NotEstimated, CutAtWatermarks, CountsCopies, WholeTuples, OneInput, frozen=True, tag="KeptExtent"):
    """Coalesced rows of at most so many tuples of a window (docs/reference/sql/intervals.md, Keeping fewer tuples).

    Tuples are valid at their own instant only, and numbered in runs.
    """

    written_as: ClassVar[str] = "KEEP"
    kept: KeptTuples

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of the tuples without their numbers, the interval, and the quality."""
        own = (column for column in self.input.schema if column.name not in (self.kept.run, self.kept.number))
        bounds = (Column(name, FieldType.INTEGER, "us") for name in self.kept.bounds)
        return (*own, *bounds, Column(self.kept.quality, FieldType.REAL))

    @property
    def never_null(self) -> frozenset[str]:
        """Those of the tuples."""
        return self.input.never_null

    def describe(self) -> str:
        """Return one line about it."""
        return kept_words(self.kept)

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return it with so much kept of each query group."""
        del marks
        return replace(self, input=inputs[0], kept=replace(self.kept, apart=(QUERY_GROUP.name,)))

    def operation(self, lag_us: int | None = None) -> KeptExtentOperation:
        """Return what runs of it."""
        return KeptExtentOperation(self.input.schema, self.kept, lag_us)

    @property
    def quality(self) -> str:
        """Its last column."""
        return self.kept.quality

    @property
    def is_instantaneous(self) -> bool:
        """No: a row is valid while it is in the window."""
        return False

    @property
    def rows_last_us(self) -> int | None:
        """As long as a tuple is in the window."""
        return self.kept.longest_us

    def reach_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("which tuples KEEP has kept depends on all tuples before them")

    delay_us = reach_us

    @remembered
    def published_us(self) -> int:
        """Return that of the tuples, and how long one is in the window."""
        if self.kept.longest_us is None:
            raise UnboundedPlanError("rows are valid until a tuple comes, or for ever")
        return self.input.published_us() + self.kept.longest_us

    @property
    @remembered
    def full_after_us(self) -> int:
        """The length of the window after the tuples, if it has one."""
        return self.input.full_after_us + (self.kept.longest_us or 0)


@final
class KeptExtentOperation(Operation, frozen=True, tag="KeptExtent"):
    """Coalesced rows of at most so many tuples of a window.

    Parameters
    ----------
    columns
        Of the input.
    kept
        What is kept.
    lag_us
        How far it may lag behind its input, where rows last until the end; None for any distance.
    """

    columns: Schema
    kept: KeptTuples
    lag_us: int | None

    def describe(self) -> str:
        """Return one line about it."""
        return kept_words(self.kept)

    @property
    def holds_rows_back(self) -> bool:
        """Unless all rows are shown anew at each border of a window."""
        return not self.kept.in_steps


def kept_words(kept: KeptTuples) -> str:
    """Return one line about coalesced rows of a window that keeps fewer tuples."""
    in_time = window_words(kept.size_us, kept.slide_us)
    window = in_time if kept.rows is None else count_window_words(kept.rows, kept.slide_rows, ())
    by = f" by {listed(kept.keys)}" if kept.keys else ""
    return f"coalesced{by}, at most {tuples_counted(kept.most)} kept of a {window}"
