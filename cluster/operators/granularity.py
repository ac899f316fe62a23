"""Snapshots at some instants only (``GRANULARITY``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, final

import msgspec
from msgspec import UNSET, Meta

from cluster.operators.characteristics import Characteristics, coarsened
from cluster.operators.expected_rows import Expected, Measured
from cluster.operators.families import AnswersAtOnce, PassesCopies, PassesErrors, PassesForEver, PassesMarks, Window
from cluster.operators.greatest_values import Greatest
from cluster.operators.node import Conditions, Need, bounded
from cluster.operators.operation import Prompt
from cluster.operators.window_shapes import Allowed
from cluster.shared_nodes import remembered
from protocols.text.durations import format_duration


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
