"""KEEP as one of the means against scarcity: what would it save, whose answers would that cost how much, apply, undo.

It asks the state of an operator, and changes nothing but that. An operator begins with the room that the authors of its
queries have written; what finds that there is room for more, or for fewer, asks for an offer and applies it. What was
applied is part of the operator's state, so it holds after a restart, and in a replay of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from cluster.fjord.operators.kept_extent import KeptExtent
from cluster.temporal.rated_extent import UNLIMITED, Offer


class KeptMeans:
    """The four questions about what an operator keeps.

    Parameters
    ----------
    operator
        The operator. What it keeps apart is kept apart here, too: each has the same room.
    queries
        The names of those whose answers its rows are; all of them have allowed it.
    """

    def __init__(self, operator: KeptExtent, queries: Sequence[str]) -> None:
        self._operator = operator
        self._queries = tuple(queries)

    def offer(self, most: int) -> Offer:
        """Return how many samples would go if at most so many were kept, and how accurate answers would then be."""
        offers = [each.offer(most) for each in self._operator.extents]
        accuracy = fmean(each.accuracy for each in offers) if offers else 1.0
        return Offer(sum(each.saved_samples for each in offers), accuracy, self._queries)

    def apply(self, most: int) -> int:
        """Keep at most so many from now on; return how many samples went at once.

        Raises
        ------
        ExtentError
            If it is less than 1.
        """
        gone = sum(each.apply(most) for each in self._operator.extents)
        self._operator.room = most
        return gone

    def undo(self) -> None:
        """Stop dropping. What was dropped stays lost, and counted, until the windows have passed it."""
        self._operator.room = UNLIMITED
        for each in self._operator.extents:
            each.undo()
