"""How much work the search for one program may be: counted in steps, so that it is the same on every machine."""

from __future__ import annotations

MOST_STEPS = 300_000
"""For one program. A step takes some ten microseconds."""
MOST_STEPS_TOGETHER = 1_000_000
"""For the programs of all sensors of a stream, each time its demand changes or is weighed again."""
FEW_STEPS = 2_000
"""Nobody gets fewer."""
PRICING_STEPS = 25
"""To find out what a program costs."""


class Effort:
    """What is left of the work that may be done; who runs out of it goes on with the best that has been found.

    Parameters
    ----------
    steps
        How many there are.
    """

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        """Take some steps."""
        self.left -= steps

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0


class SharedEffort:
    """The work for all sensors of a stream: each gets what one may have while there is so much, and a little for ever.

    Parameters
    ----------
    steps
        How many there are for all.
    """

    def __init__(self, steps: int = MOST_STEPS_TOGETHER) -> None:
        self._left = steps

    def share(self) -> Effort:
        """Return what the next sensor may spend."""
        return Effort(max(FEW_STEPS, min(MOST_STEPS, self._left)))

    def settle(self, spent: int) -> None:
        """Take note of what a sensor has spent."""
        self._left -= spent
