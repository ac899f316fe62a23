"""What every kind of report offers to the mote."""

from __future__ import annotations

from typing import Protocol

from protocols.wire.packets import Record, SampleValue

Values = tuple[SampleValue, ...]
Stamped = tuple[int, Record]
"""The stamp of a record and the record, whose age is filled in when it is sent."""


class Reporter(Protocol):
    """Turns samples into records, in stamp order."""

    @property
    def open_us(self) -> int | None:
        """No record to come is stamped before this, unless from samples not yet taken; None if nothing is open."""
        ...

    @property
    def suppressed(self) -> int:
        """How many records were not made although the world gave cause to."""
        ...

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes."""
        ...

    def close(self, until_us: int) -> list[Stamped]:
        """Return what is open, cut off at the instant from which no sample is taken any more."""
        ...
