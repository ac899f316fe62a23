"""The interface of all kinds of reports."""

from __future__ import annotations

from typing import Protocol

from protocols.wire.packets import Record, SampleValue

Values = tuple[SampleValue, ...]
Stamped = tuple[int, Record]
"""The stamp of a record and the record, whose age is set when it is sent."""


class Reporter(Protocol):
    """Turns samples into records, in stamp order."""

    @property
    def open_us(self) -> int | None:
        """No later record of earlier samples is stamped before this; None if no record is open."""
        ...

    @property
    def suppressed(self) -> int:
        """How many records were left out although events occurred."""
        ...

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes."""
        ...

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open record, cut off at the instant from which no more samples are taken."""
        ...
