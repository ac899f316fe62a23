"""Where rows begin and end: ``ISTREAM`` and ``DSTREAM``."""

from __future__ import annotations

from typing import ClassVar, final

from cluster.operators.characteristics import Characteristics, Expected, Measured, instants
from cluster.operators.columns import Schema
from cluster.operators.count_window import CountWindow
from cluster.operators.families import CountsCopies, Instantaneous, PassesMarks, WholeTuples, Window
from cluster.operators.greatest_values import Greatest
from cluster.operators.node import lasts_us
from cluster.operators.operation import Prompt
from cluster.operators.time_window import TimeWindow
from cluster.shared_nodes import remembered


class _Changes(PassesMarks, CountsCopies, WholeTuples, Instantaneous, Window, frozen=True):
    """Base of nodes whose rows are valid at an instant only."""

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same: rows pass with their values."""
        return (greatest,)

    @remembered
    def reach_us(self) -> int:
        """Return that of the input, and an instant."""
        return self.input.reach_us() + 1

    @remembered
    def published_us(self) -> int:
        """Return that of the input, and an instant."""
        return self.input.published_us() + 1

    @remembered
    def delay_us(self) -> int:
        """Return that of the input, and an instant."""
        return self.input.delay_us() + lasts_us(self)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return each row for an instant."""
        del measured
        return Expected(instants(below[0]), below[0].valid_rows)

    @property
    @remembered
    def full_after_us(self) -> int:
        """As the input."""
        return self.input.full_after_us

    @property
    def duplicate_free(self) -> bool:
        """Whether the input is."""
        return self.input.duplicate_free


@final
class Istream(_Changes, frozen=True, tag="Istream"):
    """Tuples that begin to be valid, each at that instant only."""

    written_as: ClassVar[str] = "Istream"

    def describe(self) -> str:
        """Return its name."""
        return "insertions"

    @property
    @remembered
    def keeps_tuples(self) -> bool:
        """No, if all that begins in a window without a bound is the stream itself (section 4.2, rule CQL)."""
        window = self.input.below_filters
        return not (isinstance(window, TimeWindow | CountWindow) and window.stays_for_ever)

    def operation(self, lag_us: int | None = None) -> ChangesOperation:
        """Return what runs of it."""
        del lag_us
        return ChangesOperation(self.schema, insertions=True)


@final
class Dstream(_Changes, frozen=True, tag="Dstream"):
    """Tuples that cease to be valid, each at its last valid instant only (section 5.16)."""

    written_as: ClassVar[str] = "Dstream"

    def describe(self) -> str:
        """Return its name."""
        return "deletions"

    def operation(self, lag_us: int | None = None) -> ChangesOperation:
        """Return what runs of it."""
        del lag_us
        return ChangesOperation(self.schema, insertions=False)


@final
class ChangesOperation(Prompt, frozen=True, tag="Changes"):
    """Rows that begin to be valid (`insertions`), or that cease to be."""

    columns: Schema
    insertions: bool

    def describe(self) -> str:
        """Return one line about it."""
        return "insertions" if self.insertions else "deletions"
