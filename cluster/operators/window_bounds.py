"""Begin and end of the window that there is at each instant, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, final

from cluster.operators.characteristics import Characteristics
from cluster.operators.columns import Column, Schema
from cluster.operators.expected_rows import Expected, Measured
from cluster.operators.families import PassesCopies, PassesMarks, Snapshotwise
from cluster.operators.node import Conditions, Need
from cluster.operators.operation import Prompt
from cluster.operators.time_window import grid_words
from cluster.operators.window_shapes import Grid
from cluster.operators.words import listed
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType


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
