"""How much a result loses if a sample is dropped: the two greedy scores of CALS, and how they are combined. Pure.

papers/cals.md sections 2.1 and 2.2, reconstructed there. A *fragment* is a run of what is kept: neighbours of a group
that have equal values and meet in time.

kept        a |----)----)----)    gap    b |----)
delta            0   1    0                  0       an interior sample would leave two pieces of one row
rho             1/3 1/3  1/3                 1       the share of its fragment that a sample holds
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cluster.temporal.windows import ExtentError


class Algorithm(Enum):
    """Which sample goes when there is no room."""

    CALS = "cals"
    """The one with the smallest combined score."""
    CALS_V = "cals-v"
    """The smallest delta: values. With ties to the oldest it keeps the newest samples."""
    CALS_I = "cals-i"
    """The smallest rho: intervals."""
    RAND_UNIFORM = "rand-uniform"
    """Any of the window, the new one included, so that what is kept is a uniform sample of it."""
    RAND_VICTIM = "rand-victim"
    """Any of those kept, not the new one: newer samples are kept longer."""


class Combination(Enum):
    """How delta and rho make one score."""

    SUM = "sum"
    LEXICOGRAPHIC = "lex"
    NORMALISED_SUM = "sum_norm"
    PRODUCT = "product"
    SHIFTED_PRODUCT = "product1"


class Tie(Enum):
    """Which one goes of equal scores."""

    OLDEST = "oldest"
    NEWEST = "newest"
    RANDOM = "random"


@dataclass(frozen=True)
class Scoring:
    """One reading of the paper.

    Parameters
    ----------
    singleton_delta
        Delta of a sample that is a fragment of its own: 0 or 1.
    relative
        Whether rho is the share of the fragment that a sample holds, or its length.
    combination, tie
        See there. A sum of a length and a number would depend on the unit of time, and is refused.
    """

    singleton_delta: int = 0
    relative: bool = True
    combination: Combination = Combination.SUM
    tie: Tie = Tie.OLDEST

    def __post_init__(self) -> None:
        if self.singleton_delta not in {0, 1}:
            raise ExtentError(f"a delta of {self.singleton_delta}", hint="write 0 or 1")
        if not self.relative and self.combination is Combination.SUM:
            raise ExtentError("a sum of a number and a length", hint="use a relative rho, or sum_norm or lex")

    @property
    def spares_interiors(self) -> bool:
        """Whether an end of some fragment always scores less than the samples inside."""
        return self.combination is Combination.LEXICOGRAPHIC or (self.combination is Combination.SUM and self.relative)


DEFAULT = Scoring()
"""The reading that meets most of the paper's findings."""
ABSOLUTE_LEX = Scoring(relative=False, combination=Combination.LEXICOGRAPHIC)
"""The one closest to the words "length of intervals": rho is a length, and counts among equal deltas."""
PROFILES = {"default": DEFAULT, "absolute_lex": ABSOLUTE_LEX}


def share(own: int, fragment: int, *, alone: bool) -> float:
    """Return the share of its fragment that a sample holds; of samples that last no time, one alone holds all."""
    return 1.0 if alone else own / fragment if fragment else 0.0


def score(
    delta: int, rho: float, algorithm: Algorithm, scoring: Scoring, largest_rho: float = 1.0
) -> tuple[float, float]:
    """Return what is minimised; the first number decides, then the second."""
    match algorithm:
        case Algorithm.CALS_V:
            return delta, 0.0
        case Algorithm.CALS_I:
            return rho, 0.0
        case _:
            pass
    match scoring.combination:
        case Combination.SUM:
            return delta + rho, 0.0
        case Combination.LEXICOGRAPHIC:
            return delta, rho
        case Combination.NORMALISED_SUM:
            return delta + (rho / largest_rho if largest_rho else 0.0), 0.0
        case Combination.PRODUCT:
            return delta * rho, 0.0
        case Combination.SHIFTED_PRODUCT:
            return (1 + delta) * rho, 0.0
