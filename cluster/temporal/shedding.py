"""Which samples are dropped with the least loss: the scores of CALS (papers/cals.md section 2) and a heap. Pure.

**How much a result loses if a sample is dropped: the two greedy scores of CALS, and how they are combined.**

papers/cals.md sections 2.1 and 2.2, reconstructed there. A *fragment* is a run of what is kept: neighbours of a group
that have equal values and meet in time.

kept        a |----)----)----)    gap    b |----)
delta            0   1    0                  0       an interior sample would leave two pieces of one row
rho             1/3 1/3  1/3                 1       the share of its fragment that a sample holds

**CALS in logarithmic time, by a heap of fragments (papers/cals.md section 2.5).**

Under the scores that spare interiors, the sample to drop is the shorter end of a fragment, or a fragment of its own;
and so no row is ever split. Each fragment offers its better end; an offer is made anew when the fragment changes, and
old offers are skipped when they come up. Victims are those of the scan, equal scores included.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush

from cluster.temporal.kept_samples import KeptSamples, Sample
from cluster.temporal.windows import ExtentError, Window


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


SPARE_OFFERS = 64
"""Old offers that are kept before the heap is built anew, beside as many as there are samples."""


class Fragment:
    """A run of what is kept: its ends, which offer of it counts, and from when to when its exact row lasts.

    The exact row is known, since rows are only shortened from their ends.
    """

    __slots__ = ("begins", "ends", "first", "last", "offer", "origin")

    def __init__(self, first: Sample) -> None:
        self.first = first
        self.last = first
        self.origin = first.number
        """The number of the sample that it began with: its name, as that stays."""
        self.offer = 0
        self.begins = first.start
        self.ends: int | None = None
        """None while its last sample is kept."""

    def quality(self, end: int, window_begins: int) -> float:
        """Return the share of its exact row, as far as that is in the window, that is left up to an end."""
        begin = self.first.start
        if self.ends is None and self.begins >= begin:
            return 1.0
        length = max(end, self.ends or end) - min(begin, max(self.begins, window_begins))
        return (end - begin) / length if length else 1.0


class HeapShedder(KeptSamples):
    """CALS by a heap of fragments.

    Parameters
    ----------
    window, most
        As of :class:`KeptSamples`.
    scoring
        A reading that spares interiors, with ties to the oldest.
    """

    def __init__(self, window: Window, most: int, scoring: Scoring = DEFAULT) -> None:
        super().__init__(window, most)
        if not scoring.spares_interiors or scoring.tie is not Tie.OLDEST:
            raise ExtentError("a heap needs scores that spare interiors, and ties to the oldest", hint="scan instead")
        self._scoring = scoring
        self._of: dict[int, Fragment] = {}
        """By number of the first sample and of the last."""
        self._heap: list[tuple[tuple[float, float], int, int, Fragment]] = []

    def _added(self, new: Sample) -> None:
        if new.before is None or not new.goes_on_from(new.before):
            self._of[new.number] = Fragment(new)
            return
        fragment = self._of[new.before.number]
        if fragment.first is not new.before:
            del self._of[new.before.number]
        fragment.last = new
        self._of[new.number] = fragment
        self._offer(fragment)

    def _closed(self, sample: Sample) -> None:
        self._offer(self._of[sample.number])

    def _removed(self, sample: Sample, *, expired: bool) -> None:
        """Cut off an end of a fragment; only ends go, by score and by age."""
        fragment = self._of.pop(sample.number, None)
        if fragment is None:
            raise ExtentError(f"sample {sample.number} is inside a row")
        if fragment.first is fragment.last:
            fragment.offer = -1
            if not expired:
                self._vanished(sample)
            return
        if sample is fragment.first and sample.after is not None:
            fragment.first = sample.after
            self._of[sample.after.number] = fragment
            if expired:  # what was dropped before it is older
                fragment.begins = fragment.first.start
        elif sample.before is not None:
            fragment.ends = sample.end if fragment.ends is None else fragment.ends
            fragment.last = sample.before
            self._of[sample.before.number] = fragment
        self._offer(fragment)

    def _vanished(self, sample: Sample) -> None:
        """Note the last sample of a row, of which nothing is left then."""

    def _victim(self, new: Sample) -> Sample:  # noqa: ARG002 - it is no candidate
        while self._heap:
            _, number, offer, fragment = self._heap[0]
            if fragment.offer == offer:
                return self.kept[number]
            heappop(self._heap)
        return next(iter(self.kept.values()))

    def _offer(self, fragment: Fragment) -> None:
        """Offer the end that is to go first; an open sample is no candidate."""
        fragment.offer += 1
        first, last = fragment.first, fragment.last
        length, scoring = last.end - first.start, self._scoring
        if first is last:
            if first.open:
                return
            delta = scoring.singleton_delta
        else:
            delta = 0
        own, number = first.end - first.start, first.number
        if not last.open and last is not first and last.end - last.start < own:
            own, number = last.end - last.start, last.number
        rho = share(own, length, alone=first is last) if scoring.relative else float(own)
        heappush(self._heap, (score(delta, rho, Algorithm.CALS, scoring), number, fragment.offer, fragment))
        if len(self._heap) > 2 * len(self.kept) + SPARE_OFFERS:
            self._heap = [each for each in self._heap if each[3].offer == each[2]]
            heapify(self._heap)
