"""Windows by time: of a length, on a grid, or without an end."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Annotated, final

import msgspec
from msgspec import UNSET, Meta

from cluster.operators.characteristics import Characteristics, windowed
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.expected_rows import Expected, Measured
from cluster.operators.families import AnswersAtOnce, PassesCopies, PassesErrors, PassesMarks, Window
from cluster.operators.greatest_values import Greatest
from cluster.operators.node import Conditions, Need, bounded
from cluster.operators.operation import Prompt
from cluster.operators.window_shapes import Allowed, Grid, Span
from cluster.shared_nodes import remembered
from protocols.text.durations import format_duration


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
    """Its panes are shared with windows of this family only (cluster/plan/pane_families.py); unset: the common one."""

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
