"""Windows by time, on a grid or without an end; snapshots at some instants only; bounds of windows as columns."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Annotated, ClassVar, final

import msgspec
from msgspec import UNSET, Meta

from cluster.operators.characteristics import Characteristics, Expected, Measured, coarsened, windowed
from cluster.operators.columns import Column, Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import (
    AnswersAtOnce,
    PassesCopies,
    PassesErrors,
    PassesForEver,
    PassesMarks,
    Snapshotwise,
    Window,
)
from cluster.operators.greatest_values import Greatest
from cluster.operators.node import Conditions, Need, bounded
from cluster.operators.operation import Prompt, listed
from cluster.operators.window_shapes import Allowed, Grid, Span
from cluster.shared_nodes import remembered
from protocols.text.quantities import format_duration
from protocols.wire.streams import FieldType


@final
class TimeWindow(PassesMarks, PassesErrors, PassesCopies, AnswersAtOnce, Window, frozen=True, tag="TimeWindow"):
    """Time window of `size_us` (None: unbounded) that moves every `slide_us` (1: continuously).

    With slide a and size w a tuple stamped t is valid on [k0 - 1, k1 - 1), where k0 is the first multiple of a that is
    at least t + 1 and k1 the first that is at least t + w + 1 (papers/pipes_algebra.md section 3, with advance).

    With a `grid`, its boundaries are in place of the multiples, and size and slide are bounds of what it has.
    """

    size_us: Annotated[int, Meta(ge=1)] | None
    slide_us: Annotated[int, Meta(ge=1)] = 1
    grid: Grid | msgspec.UnsetType = UNSET
    allowed: Allowed | msgspec.UnsetType = UNSET
    """The range that its author allows (cluster/operators/size_ranges.py); plans that run have none."""
    family_us: Annotated[int, Meta(ge=1)] | msgspec.UnsetType = UNSET
    """Its panes are shared with windows of this family only (cluster/plan/pane_query.py); unset: the common one."""

    def describe(self) -> str:
        """Return one line about it."""
        if self.grid is not UNSET:
            return grid_words(self.grid, self.slide_us)
        family = "" if self.family_us is UNSET else f", with panes of the family of {format_duration(self.family_us)}"
        least = "" if self.allowed is UNSET else f", at least {format_duration(self.allowed.worst_us)}"
        return window_words(self.size_us, self.slide_us) + least + family

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows, valid longer by the window: what lasts already, too."""
        del measured
        size_us = math.inf if self.size_us is None else self.size_us + below[0].validity - 1
        return Expected(windowed(below[0], size_us, self.slide_us))

    @property
    @remembered
    def stream_as_it_comes(self) -> str | None:
        """That of the input."""
        return self.input.stream_as_it_comes

    @property
    def stays_for_ever(self) -> bool:
        """Whether it has no size."""
        return self.size_us is None

    def operation(self, lag_us: int | None = None) -> TimeWindowOperation | GridWindowOperation:
        """Return what runs of it."""
        del lag_us
        if self.grid is UNSET:
            return TimeWindowOperation(self.size_us, self.slide_us)
        return GridWindowOperation(self.grid, self.slide_us)

    @property
    @remembered
    def is_instantaneous(self) -> bool:
        """Whether it holds tuples for their own instant only."""
        return self.size_us == 1 and self.slide_us == 1 and self.input.is_instantaneous

    @property
    @remembered
    def rows_last_us(self) -> int | None:
        """What lasts already, lasts longer by the window."""
        below = self.input.longest_validity_us
        return None if below is None or self.size_us is None else bounded(below + self.size_us + self.slide_us)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield what is needed of itself: the tuples in a window by time do not depend on each other."""
        yield self.input, wanted, conditions

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same: rows pass with their values."""
        return (greatest,)

    @remembered
    def reach_us(self) -> int:
        """Return that of the input, and its length."""
        if self.size_us is None:
            raise UnboundedPlanError("a window without a size keeps its tuples for ever")
        return self.input.reach_us() + self.size_us + self.slide_us

    @remembered
    def published_us(self) -> int:
        """Return that of the input, and its length."""
        if self.size_us is None:
            raise UnboundedPlanError("rows are valid until a tuple comes, or for ever")
        return self.input.published_us() + self.size_us + self.slide_us

    @remembered
    def delay_us(self) -> int:
        """Return that of the input."""
        return self.input.delay_us()

    @property
    @remembered
    def full_after_us(self) -> int:
        """Its length after the input."""
        return self.input.full_after_us + (0 if self.size_us is None else self.size_us + self.slide_us)

    @property
    def step_us(self) -> int | None:
        """How far it moves, if that is on multiples."""
        return self.slide_us if self.grid is UNSET and self.slide_us > 1 else None

    def interval_shape(self, windows: tuple[Hashable, ...] = ()) -> Hashable | None:
        """Return that of the input in this window, if its tuples have an instant each."""
        if not self.input.is_instantaneous:
            return None
        grid = None if self.grid is UNSET else self.grid
        return self.input.interval_shape((*windows, (self.size_us, self.slide_us, grid)))


@final
class TimeWindowOperation(Prompt, frozen=True, tag="TimeWindow"):
    """Rows valid for `size_us` (None: without end), moving by `slide_us`."""

    size_us: int | None
    slide_us: int

    def describe(self) -> str:
        """Return one line about it."""
        return window_words(self.size_us, self.slide_us)


@final
class GridWindowOperation(Prompt, frozen=True, tag="GridWindow"):
    """A window whose boundaries lie on a grid; `slide_us` is how often one that is reset shows what is new."""

    grid: Grid
    slide_us: int

    def describe(self) -> str:
        """Return one line about it."""
        return grid_words(self.grid, self.slide_us)


def window_words(size_us: int | None, slide_us: int) -> str:
    """Return one line about a window by time."""
    size = "unbounded" if size_us is None else f"of {format_duration(size_us)}"
    return f"window {size}{'' if slide_us == 1 else f', moving every {format_duration(slide_us)}'}"


def grid_words(grid: Grid, slide_us: int) -> str:
    """Return one line about a window whose boundaries lie on a grid."""
    zone = f" in {grid.zone}" if grid.step.calendar else ""
    moved = f" plus {format_duration(grid.offset_us)}" if grid.offset_us else ""
    boundaries = f"every {_span_words(grid.step)}{zone}{moved}"
    if grid.size is not None:
        return f"window of {_span_words(grid.size)}, moving {boundaries}"
    slide = "" if slide_us == 1 else f", shown every {format_duration(slide_us)}"
    return f"window that is reset {boundaries}{slide}"


def _span_words(span: Span) -> str:
    return span.words if span.calendar else format_duration(span.count)


@final
class Granularity(
    PassesMarks, PassesForEver, PassesErrors, PassesCopies, AnswersAtOnce, Window, frozen=True, tag="Granularity"
):
    """Snapshots at whole multiples of `granule_us` only."""

    written_as: ClassVar[str] = "GRANULARITY"
    granule_us: Annotated[int, Meta(ge=1)]
    allowed: Allowed | msgspec.UnsetType = UNSET

    def describe(self) -> str:
        """Return one line about it, with how coarse its author allows it to be."""
        most = "" if self.allowed is UNSET else f", at most {format_duration(self.allowed.worst_us)}"
        return f"granularity of {format_duration(self.granule_us)}{most}"

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows, which begin and end at multiples."""
        del measured
        return Expected(coarsened(below[0], self.granule_us))

    def operation(self, lag_us: int | None = None) -> GranularityOperation:
        """Return what runs of it."""
        del lag_us
        return GranularityOperation(self.granule_us)

    @property
    def is_instantaneous(self) -> bool:
        """No: rows last from one multiple to the next."""
        return False

    @property
    @remembered
    def rows_last_us(self) -> int | None:
        """Longer than those of the input by the distance of two multiples."""
        below = self.input.longest_validity_us
        return None if below is None else bounded(below + self.granule_us)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield the tuples with what is wanted of them."""
        del conditions
        yield self.input, wanted, ()

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same: rows pass with their values."""
        return (greatest,)

    @remembered
    def reach_us(self) -> int:
        """Return that of the input, and the distance of two multiples."""
        return self.input.reach_us() + self.granule_us

    @remembered
    def published_us(self) -> int:
        """Return that of the input, and the distance of two multiples."""
        return self.input.published_us() + self.granule_us

    @remembered
    def delay_us(self) -> int:
        """Return that of the input, and the distance of two multiples."""
        return self.input.delay_us() + self.granule_us

    @property
    @remembered
    def full_after_us(self) -> int:
        """The distance of two multiples after the input."""
        return self.input.full_after_us + self.granule_us

    @property
    def quality(self) -> str | None:
        """That of the input."""
        return self.input.quality

    @property
    def unique_columns(self) -> frozenset[str] | None:
        """Those of the input."""
        return self.input.unique_columns

    @property
    def duplicate_free(self) -> bool:
        """Whether the input is."""
        return self.input.duplicate_free


@final
class GranularityOperation(Prompt, frozen=True, tag="Granularity"):
    """Snapshots at whole multiples of `granule_us`."""

    granule_us: int

    def describe(self) -> str:
        """Return one line about it."""
        return f"granularity of {format_duration(self.granule_us)}"


@final
class WindowBounds(PassesMarks, PassesCopies, Snapshotwise, frozen=True, tag="WindowBounds"):
    """Tuples with begin and end of the window that there is at each instant, as columns `start` and `end`.

    At an instant t that is the window of the last boundary of `grid`, which has a size, that is at most t + 1.
    """

    written_as: ClassVar[str] = "an aggregate"
    grid: Grid
    start: str
    end: str

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of the tuples, and the bounds."""
        return (*self.input.schema, *(Column(name, FieldType.INTEGER) for name in (self.start, self.end)))

    def describe(self) -> str:
        """Return one line about them."""
        return bounds_words(self.grid, self.start, self.end)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows of the input."""
        del measured
        return Expected(below[0])

    def operation(self, lag_us: int | None = None) -> WindowBoundsOperation:
        """Return what runs of it."""
        del lag_us
        return WindowBoundsOperation(self.grid, self.start, self.end)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield the tuples with what is wanted of them."""
        del conditions
        yield self.input, wanted & self.input.names, ()

    @remembered
    def delay_us(self) -> int:
        """Return that of the input."""
        return self.input.delay_us()


@final
class WindowBoundsOperation(Prompt, frozen=True, tag="WindowBounds"):
    """Rows cut where a window moves, with its begin and end; fields as of the node."""

    grid: Grid
    start: str
    end: str

    def describe(self) -> str:
        """Return one line about it."""
        return bounds_words(self.grid, self.start, self.end)


def bounds_words(grid: Grid, start: str, end: str) -> str:
    """Return one line about the bounds of a window as columns."""
    return f"bounds of the {grid_words(grid, 1)}: {listed((start, end))}"
