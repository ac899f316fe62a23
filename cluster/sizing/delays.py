"""Delays of answers, and what they consist of: waiting for motes, and the work of the parts. Pure.

    sampled             complete                     answered
       |---- for motes -----|---- from proxy to row ----|

A sample is complete at its proxy when each mote has promised to send nothing that early: the first batch whose low
watermark has passed it shows that to the cluster. Until then no part could answer it, however fast it is.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Sequence

import msgspec


class Delays(msgspec.Struct, frozen=True):
    """Seconds, median and 99th percentile.

    Parameters
    ----------
    median, p99
        From a sample to its answer.
    median_for_motes, p99_for_motes
        From a sample to the first batch that says that it is complete.
    median_after, p99_after
        From that batch to the answer.
    """

    median: float
    p99: float
    median_for_motes: float
    p99_for_motes: float
    median_after: float
    p99_after: float


class SeenDelays:
    """Collects what is seen of batches and answers as they are sent."""

    def __init__(self) -> None:
        self._watermarks_us: list[int] = []
        self._arrived: list[float] = []
        self._answers: list[tuple[float, float, float]] = []

    def batch(self, watermark_us: int, at: float) -> None:
        """Note a batch's low watermark, and when the batch was sent, in seconds since 1970."""
        if not self._watermarks_us or watermark_us > self._watermarks_us[-1]:
            self._watermarks_us.append(watermark_us)
            self._arrived.append(at)

    def answer(self, start_us: int, at: float) -> None:
        """Note the start of an answer to a query without a window, and when it was sent.

        It is left out if its batch was sent before batches were noted.
        """
        place = bisect_right(self._watermarks_us, start_us)
        if 0 < place < len(self._watermarks_us):
            complete = self._arrived[place]
            self._answers.append((at - start_us / 1e6, complete - start_us / 1e6, at - complete))

    def forget_answers(self) -> None:
        """Forget the answers noted so far."""
        self._answers.clear()

    def found(self) -> Delays | None:
        """Return the delays; None without any."""
        if not self._answers:
            return None
        return Delays(
            *(
                figure
                for part in zip(*self._answers, strict=True)
                for figure in (statistics.median(part), quantile(sorted(part), 0.99))
            )
        )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of some ordered values lies, at least one of them.

    Examples
    --------
    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    3.0
    """
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
