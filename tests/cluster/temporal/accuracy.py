"""How close the rows of what was kept are to those of all samples (papers/cals.md section 1.5). Pure.

Every row of what was kept lies inside exactly one exact row, of the same group and values: its parent. So accuracy is
the sum of the shares of exact rows that are left, over the number of rows, where a row in pieces counts for each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cluster.temporal.kept_samples import Piece

Predicate = Callable[[Piece], bool]


@dataclass(frozen=True)
class Quality:
    """What is left of an exact result.

    Parameters
    ----------
    accuracy
        1 if all of it is, 0 if nothing (equation 5).
    values
        Jaccard's coefficient of values, each exact row for itself (equation 2).
    pooled_values
        The same over all rows of a value, which may be 1 for a wrong result.
    intervals
        The mean share of an exact row's interval that is left.
    extraneous, missing
        Rows that are there only because one fell into pieces, and exact rows of which nothing is left.
    """

    accuracy: float
    values: float
    pooled_values: float
    intervals: float
    extraneous: int
    missing: int


def quality(exact: Sequence[Piece], kept: Iterable[Piece], passes: Predicate = lambda _: True) -> Quality:
    """Compare two results of coalescing, after a predicate on rows.

    Parameters
    ----------
    exact
        Rows of all samples.
    kept
        Rows of those that were kept.
    passes
        Which rows the query selects.
    """
    parents = _Parents(exact)
    pieces: dict[int, list[Piece]] = defaultdict(list)
    orphans = 0
    left = [piece for piece in kept if passes(piece)]
    selected = {number for number, piece in enumerate(exact) if passes(piece)}
    for piece in left:
        parent = parents.of(piece)
        if parent in selected:
            pieces[parent].append(piece)
        else:
            orphans += 1
    if not selected and not orphans:
        return Quality(1.0, 1.0, 1.0, 1.0, 0, 0)
    shares = [_share(exact[number], pieces[number]) for number in sorted(selected)]
    rows = sum(max(1, len(pieces[number])) for number in selected) + orphans
    found = sum(1 for number in selected if pieces[number])
    return Quality(
        sum(shares) / rows,
        found / rows,
        _pooled([exact[number] for number in selected], left),
        sum(shares) / len(shares) if shares else 0.0,
        sum(max(0, len(pieces[number]) - 1) for number in selected) + orphans,
        len(selected) - found,
    )


class _Parents:
    """Finds the exact row that a piece lies in."""

    def __init__(self, exact: Sequence[Piece]) -> None:
        self._rows: dict[object, list[tuple[int, int]]] = defaultdict(list)
        for number, piece in enumerate(exact):
            self._rows[piece.group].append((piece.start, number))
        for rows in self._rows.values():
            rows.sort()
        self._exact = exact

    def of(self, piece: Piece) -> int:
        """Return the number of the parent.

        Raises
        ------
        ValueError
            If there is none: what was kept is not of these samples.
        """
        rows = self._rows[piece.group]
        place = bisect_right(rows, (piece.start, len(self._exact))) - 1
        if place >= 0:
            number = rows[place][1]
            parent = self._exact[number]
            if parent.values == piece.values and piece.end <= parent.end:
                return number
        raise ValueError(f"{piece} lies in no exact row")


def _share(parent: Piece, pieces: Sequence[Piece]) -> float:
    if parent.end == parent.start:
        return 1.0 if pieces else 0.0
    return sum(piece.end - piece.start for piece in pieces) / (parent.end - parent.start)


def _pooled(exact: Sequence[Piece], left: Sequence[Piece]) -> float:
    one = Counter((piece.group, piece.values) for piece in exact)
    other = Counter((piece.group, piece.values) for piece in left)
    return (one & other).total() / max(1, (one | other).total())
