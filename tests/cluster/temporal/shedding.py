"""Shedding that looks at every sample that is kept, and random choices (papers/cals.md section 2). Pure.

A sample takes time in proportion to what is kept; :mod:`cluster.temporal.shedding` finds the same victims faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.temporal.kept_samples import KeptSamples, Sample, fragments
from cluster.temporal.shedding import DEFAULT, Algorithm, Scoring, Tie, score, share
from cluster.temporal.windows import CountWindow, ExtentError, Window

Draw = Callable[[int], int]
"""Draws a number from 0 up to, but not including, another."""


class ScanningShedder(KeptSamples):
    """Scores all samples for each one that has to go.

    Parameters
    ----------
    window, most
        As of :class:`KeptSamples`.
    algorithm
        CALS, CALS-V or CALS-I.
    scoring
        How scores are read.
    draw
        Draws among equal scores, if ties are random.

    The newest sample of a group is no candidate: its interval is open, so that it would be the cheapest every time.
    Only if all are open, of many groups, the oldest of them goes.
    """

    def __init__(
        self,
        window: Window,
        most: int,
        algorithm: Algorithm = Algorithm.CALS,
        scoring: Scoring = DEFAULT,
        draw: Draw | None = None,
    ) -> None:
        super().__init__(window, most)
        if algorithm in {Algorithm.RAND_UNIFORM, Algorithm.RAND_VICTIM}:
            raise ExtentError(f"{algorithm.value} scores nothing", hint="use a shedder that draws")
        if scoring.tie is Tie.RANDOM and draw is None:
            raise ExtentError("ties at random without anything that draws")
        self._algorithm = algorithm
        self._scoring = scoring
        self._draw = draw

    def scores(self) -> dict[int, tuple[int, float]]:
        """Return delta and rho of each candidate, by number."""
        found: dict[int, tuple[int, float]] = {}
        for fragment in fragments(self.kept.values()):
            length = fragment[-1].end - fragment[0].start
            alone = len(fragment) == 1
            for sample in fragment:
                if sample.open:
                    continue
                inside = sample is not fragment[0] and sample is not fragment[-1]
                delta = 1 if inside else self._scoring.singleton_delta if alone else 0
                own = sample.end - sample.start
                rho = share(own, length, alone=alone) if self._scoring.relative else float(own)
                found[sample.number] = (delta, rho)
        return found

    def _victim(self, new: Sample) -> Sample:
        scores = self.scores()
        if not scores:
            return next(iter(self.kept.values()))
        largest = max(rho for _, rho in scores.values())
        ranked = {
            number: score(delta, rho, self._algorithm, self._scoring, largest)
            for number, (delta, rho) in scores.items()
        }
        least = min(ranked.values())
        return self.kept[self._of_equal(sorted(number for number, each in ranked.items() if each == least))]

    def _of_equal(self, numbers: Sequence[int]) -> int:
        if self._scoring.tie is Tie.RANDOM and self._draw is not None:
            return numbers[self._draw(len(numbers))]
        return numbers[0 if self._scoring.tie is Tie.OLDEST else -1]


class DrawingShedder(KeptSamples):
    """Drops samples at random.

    Parameters
    ----------
    window, most
        As of :class:`KeptSamples`.
    draw
        Draws the victim.
    uniform
        Whether the new sample is as likely to go as any of the window: then what is kept is a uniform sample of the
        window while it fills, as a reservoir is. Otherwise any of those kept goes, but not the new one.
    """

    def __init__(self, window: Window, most: int, draw: Draw, *, uniform: bool = True) -> None:
        super().__init__(window, most)
        self._draw_one = draw
        self._uniform = uniform
        self._starts: list[int] = []
        self._places: list[Sample] = []
        self._place_of: dict[int, int] = {}

    def _added(self, new: Sample) -> None:
        self._starts.append(new.start)
        self._place_of[new.number] = len(self._places)
        self._places.append(new)

    def _removed(self, sample: Sample, *, expired: bool) -> None:
        place, last = self._place_of.pop(sample.number), self._places.pop()
        if last is not sample:
            self._places[place] = last
            self._place_of[last.number] = place

    def _victim(self, new: Sample) -> Sample:
        if self._uniform and self._draw_one(self._in_window(new)) >= self.most:
            return new
        return self._places[self._draw_one(len(self._places) - 1)]

    def _in_window(self, new: Sample) -> int:
        """Return how many samples the window would hold, dropped ones included."""
        if isinstance(self.window, CountWindow):
            return min(new.number + 1, self.window.samples)
        gone = 0
        while self._starts[gone] < new.start - self.window.length_us:
            gone += 1
        del self._starts[:gone]
        return len(self._starts)
