"""Each tuple once (``DISTINCT``, ``UNION``)."""

from __future__ import annotations

import math
from typing import ClassVar, final

from cluster.operators.characteristics import Characteristics, distinct
from cluster.operators.columns import Schema
from cluster.operators.expected_rows import Expected, Measured
from cluster.operators.families import PassesMarks, Snapshotwise, WholeTuples
from cluster.operators.greatest_values import Greatest
from cluster.operators.kept_rows import kept_by_distinct
from cluster.operators.operation import Prompt
from cluster.shared_nodes import remembered


@final
class Distinct(PassesMarks, WholeTuples, Snapshotwise, frozen=True, tag="Distinct"):
    """Each tuple once per instant."""

    written_as: ClassVar[str] = "DISTINCT"

    def describe(self) -> str:
        """Return its name."""
        return "distinct"

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows, of each tuple one."""
        del measured
        return Expected(distinct(below[0], math.inf), kept_by_distinct(below[0]))

    def operation(self, lag_us: int | None = None) -> DistinctOperation:
        """Return what runs of it."""
        del lag_us
        return DistinctOperation(self.schema)

    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return False."""
        del above
        return (False,)

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return the same: rows pass with their values."""
        return (greatest,)

    @remembered
    def delay_us(self) -> int:
        """Return that of the input."""
        return self.input.delay_us()

    @property
    def single_row(self) -> bool:
        """Whether the input is a single row at most."""
        return self.input.single_row

    @property
    def unique_columns(self) -> frozenset[str]:
        """All; none if it is a single row at most."""
        return frozenset() if self.single_row else self.names

    @property
    def duplicate_free(self) -> bool:
        """Yes."""
        return True


@final
class DistinctOperation(Prompt, frozen=True, tag="Distinct"):
    """Each row once per instant."""

    columns: Schema

    def describe(self) -> str:
        """Return one line about it."""
        return "distinct"
