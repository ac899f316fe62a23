"""Limits on the work of the search for a program, in steps, so that results are the same on every machine."""

from __future__ import annotations

MOST_STEPS = 300_000
"""For one program. A step takes some ten microseconds."""
MOST_STEPS_TOGETHER = 1_000_000
"""For the programs of all sensors of a stream, each time its demand changes or is weighed again."""
FEW_STEPS = 2_000
"""The least steps for any program."""
STEPS_AT_ONCE = 5_000
"""For a program that a mote waits for: about a tenth of a second, as no other mote is served meanwhile."""
PRICING_STEPS = 25
"""Steps to price a program."""


class Effort:
    """The steps that are left; a search that has none left uses the best program that it has found.

    Parameters
    ----------
    steps
        How many there are at first.
    """

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        """Take some steps."""
        self.left -= steps

    @property
    def exhausted(self) -> bool:
        """Whether no step is left."""
        return self.left <= 0


class SharedEffort:
    """Steps for all sensors of a stream: each gets the full limit while enough are left, and a minimum afterwards.

    Parameters
    ----------
    steps
        How many there are for all sensors.
    """

    def __init__(self, steps: int = MOST_STEPS_TOGETHER) -> None:
        self._left = steps

    def share(self) -> Effort:
        """Return the steps of the next sensor."""
        return Effort(max(FEW_STEPS, min(MOST_STEPS, self._left)))

    def settle(self, spent: int) -> None:
        """Subtract the steps that a sensor has spent."""
        self._left -= spent
