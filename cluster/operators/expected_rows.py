"""What is expected of a node in its steady state, given what its inputs bring, and what has been measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from cluster.operators.characteristics import KEYS_ASSUMED, Characteristics

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from cluster.expressions.nodes import Expression


class Expected(NamedTuple):
    """What is expected of a node.

    Parameters
    ----------
    rows
        Those that it answers, in microseconds; None where they cannot be estimated.
    kept
        How many rows its operator keeps; infinite if they become ever more, None where that cannot be estimated.
    """

    rows: Characteristics | None
    kept: float | None = 0.0


NOT_KNOWN = Expected(None, None)


class Measured(Protocol):
    """What is known of streams, conditions and relations: measured, or else assumed."""

    def tuples(self, stream: str) -> Characteristics | None:
        """Return the tuples of a stream; None if their rate is not known."""

    def partners(self, stream: str, lookup: Hashable) -> float:
        """Return how many rows a lookup (:class:`TableLookup`) makes of a tuple."""

    def passing(self, stream: str | None, condition: Expression) -> float:
        """Return the share of tuples that meet a condition; those of no stream are computed."""

    def pairs(self, condition: Expression | None, left: frozenset[str], right: frozenset[str]) -> float:
        """Return the share of pairs of rows with these columns that meet a condition."""


def combinations(keys: Sequence[object]) -> int:
    """Return how many combinations of the values of some keys there are."""
    return KEYS_ASSUMED if keys else 1
