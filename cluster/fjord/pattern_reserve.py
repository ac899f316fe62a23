"""How much work the searches of a partition may do, so that all of it together is in proportion to its rows.

    rows              s . . . . . . t                  a search from s took 9,000 steps, and the next begins at t
    that are free     7 rows x STEPS_OF_ROW            2,000 steps are taken out of the reserve, which is full at first
    that come back    7 rows x STEPS_OF_ROW            and they are back when the next search begins

What is taken out depends on rows alone, so that where searches are given up depends on neither batches nor restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_STEPS = 100_000
"""Most work of a search, and the whole reserve: runs it goes on with, and rows that aggregates in DEFINE read."""
STEPS_OF_ROW = 1_000
"""For each row by which the beginning of searches advances, steps that are free, and as many that come back."""
EAGER_STEPS = 300
"""Most steps on rows that an earlier search has read, while it is unknown if the pattern can be complete in time."""


@dataclass(slots=True)
class Reserve:
    """What is left of the steps that searches may take besides those that are free.

    Parameters
    ----------
    spent
        How many are missing; 0 is a full reserve.
    before_us
        The stamp of the last row that it has come to; None if none.
    """

    spent: int = 0
    before_us: int | None = None

    def most_steps(self, rows: int) -> int:
        """Return how many steps a search may take after which the next one begins so many rows later at least."""
        return min(MOST_STEPS, MOST_STEPS - self.spent + free_steps(rows))

    def take(self, steps: int, rows: int) -> None:
        """Take out what a search needed that is followed by one that begins so many rows later."""
        self.spent = min(MOST_STEPS, self.spent + max(0, steps - free_steps(rows)))

    def advance(self, stamps: Sequence[int], within_us: int | None) -> None:
        """Put back steps for rows with which no search begins any more.

        Parameters
        ----------
        stamps
            Theirs.
        within_us
            The time of the pattern. Searches before and behind a gap of that length have no row in common.
        """
        for stamp in stamps if self.spent else stamps[-1:]:
            self.begin(stamp, within_us)
        self.spent = max(0, self.spent - free_steps(len(stamps)))

    def begin(self, stamp: int, within_us: int | None) -> None:
        """Come to the next row, which fills the reserve if it is so late that the rows before may be forgotten."""
        if within_us is not None and self.before_us is not None and stamp - self.before_us >= within_us:
            self.spent = 0
        self.before_us = stamp

    def matters(self, watermark_us: int, within_us: int | None) -> bool:
        """Return whether a row that is still to come may find less than a full reserve."""
        late = within_us is not None and self.before_us is not None and watermark_us - self.before_us >= within_us
        return self.spent > 0 and not late


def free_steps(rows: int) -> int:
    """Return how many steps are free for so many rows."""
    return rows * STEPS_OF_ROW
