"""What was measured of a plan while it ran: it stands beside the plan, which does not change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What was done for a fragment: tuples it was given, rows it answered (shared ones once), processor time."""

    tuples: int
    answers: int
    seconds: float

    @property
    def words(self) -> str:
        """The same in words."""
        return f"{self.tuples:,} tuples in, {self.answers:,} rows out, {self.seconds:,.2f} s of work"
