"""The most accurate choice of samples to keep, known only afterwards (papers/cals.md section 2.6). Pure.

Accuracy is a ratio of sums over exact rows, so it is maximised by Dinkelbach's iteration: for a ratio that is known to
be reached, a knapsack over rows finds a choice with a better one, until there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

_NEVER = float("-inf")


def best_accuracy(rows: Sequence[Sequence[int]], kept: int) -> float:
    """Return the largest accuracy of any `kept` samples.

    Parameters
    ----------
    rows
        The lengths of the intervals of each exact row's samples, in their order; all positive.
    kept
        How many samples are kept.
    """
    if not rows or kept >= sum(map(len, rows)):
        return 1.0
    tables = [_covered(lengths, kept) for lengths in rows]
    ratio = 0.0
    while True:
        gained, share, pieces = _knapsack(tables, kept, ratio)
        if gained <= 1e-12:
            return ratio
        ratio = share / pieces


def _covered(lengths: Sequence[int], most: int) -> list[list[float]]:
    """Return, by number of kept samples and of pieces, the largest share of a row that they cover."""
    count, whole = len(lengths), sum(lengths)
    most = min(most, count)
    # Shares by (kept, pieces), where the last sample is left out, and where it is kept.
    out = [[_NEVER] * (most + 1) for _ in range(most + 1)]
    inside = [[_NEVER] * (most + 1) for _ in range(most + 1)]
    out[0][0] = 0.0
    for length in lengths:
        share = length / whole
        before_out, before_in = out, inside
        out = [list(map(max, one, other)) for one, other in zip(before_out, before_in, strict=True)]
        inside = [[_NEVER] * (most + 1) for _ in range(most + 1)]
        for kept in range(1, most + 1):
            for pieces in range(1, kept + 1):
                grown, begun = before_in[kept - 1][pieces], before_out[kept - 1][pieces - 1]
                inside[kept][pieces] = max(grown, begun) + share
    return [list(map(max, one, other)) for one, other in zip(out, inside, strict=True)]


def _knapsack(tables: Sequence[Sequence[Sequence[float]]], kept: int, ratio: float) -> tuple[float, float, int]:
    """Return the largest sum of shares less ratio times rows, and its two sums, of exactly so many samples."""
    best: list[tuple[float, float, int]] = [(0.0, 0.0, 0)] + [(_NEVER, 0.0, 0)] * kept
    for table in tables:
        options = []
        for number, by_pieces in enumerate(table):
            gains = [(share - ratio * max(1, pieces), share, max(1, pieces)) for pieces, share in enumerate(by_pieces)]
            options.append((number, *max(gains)))
        following = [(_NEVER, 0.0, 0)] * (kept + 1)
        for used, (gain, share, rows) in enumerate(best):
            if gain == _NEVER:
                continue
            for number, more, covered, pieces in options:
                total = used + number
                if total <= kept and gain + more > following[total][0]:
                    following[total] = (gain + more, share + covered, rows + pieces)
        best = following
    return best[kept]
