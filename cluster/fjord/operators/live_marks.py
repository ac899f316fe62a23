"""Marks of samples that several queries share, by which each sees those that came since it began.

    queries    q1 and q2 of group a, of epochs 1 and 5        q3 of group b, of epoch 3
    marks      4: seen by q1, and not by q2                   5: seen by all queries of its group
               5: seen by both

A sample has the epoch of the newest query of its group at its arrival (``VISIBLE_FROM``). Only which queries see it
matters, so it can be raised: most samples have one mark then, however many groups there are, and rows are made once for
all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from cluster.operators.columns import QUERY_GROUP, SUPERSEDED_UNTIL, VISIBLE_FROM
from cluster.physical.nodes import Subscriber
from cluster.temporal.windows import Whole

_SEEN, _AFTER = VISIBLE_FROM.name, SUPERSEDED_UNTIL.name
BEFORE_ALL = -1
"""Before the epochs of all queries."""


def marks_of(samples: pl.DataFrame) -> list[int]:
    """Return the epochs, ascending, up to which queries see the same of some samples."""
    marks = pl.concat([samples[name].rename(_SEEN) for name in _marks_in(samples)]).unique()
    return [int(each) for each in marks.filter(marks > BEFORE_ALL).sort()]


class LiveMarks:
    """Marks of samples, which make a difference only between queries that there are.

    A mark is raised as far as no other query of its group sees the sample: usually to the newest epoch of all groups,
    which most samples then have, whatever their groups.

    Parameters
    ----------
    epochs
        By query group: with which its queries began.
    """

    def __init__(self, epochs: Mapping[int, Iterable[int]]) -> None:
        pairs = sorted((group, epoch) for group, found in epochs.items() for epoch in {*found})
        self.epochs = epochs
        self._groups = np.array(sorted(epochs), np.int64)
        self._of = np.searchsorted(self._groups, np.array([group for group, _ in pairs], np.int64))
        self._epochs = np.array([epoch for _, epoch in pairs], np.int64)
        self._all = np.unique(self._epochs)
        self._places = self._placed(self._of, self._epochs)

    def of(self, samples: pl.DataFrame) -> pl.DataFrame:
        """Return samples with such marks, and without those that no query sees."""
        groups = samples[QUERY_GROUP.name].to_numpy()
        of = np.minimum(np.searchsorted(self._groups, groups), len(self._groups) - 1)
        names = _marks_in(samples)
        marks = [pl.Series(name, self._raised(of, samples[name].to_numpy()), pl.Int64) for name in names]
        seen = pl.col(_SEEN) > (pl.col(_AFTER) if _AFTER in names else BEFORE_ALL)
        return samples.with_columns(marks).filter(pl.Series(self._groups[of] == groups) & seen)

    def _placed(self, of: Whole, marks: Whole) -> Whole:
        """Return numbers in the order of groups, and in each of the epochs up to a mark."""
        found: Whole = of * (len(self._all) + 1) + np.searchsorted(self._all, marks, side="right")
        return found

    def _raised(self, of: Whole, marks: Whole) -> Whole:
        behind = np.searchsorted(self._places, self._placed(of, marks), side="right")
        at = np.minimum(behind, len(self._of) - 1)
        followed = (behind < len(self._of)) & (self._of[at] == of)
        found: Whole = np.where(followed, self._epochs[at] - 1, self._all[-1])
        return np.where(behind > np.searchsorted(self._of, of), found, BEFORE_ALL)


def _marks_in(samples: pl.DataFrame) -> list[str]:
    return [name for name in (_SEEN, _AFTER) if name in samples.columns]


def epochs_of(subscribers: Iterable[Subscriber]) -> dict[int, list[int]]:
    """Return, by query group, the epochs with which its queries began."""
    found: dict[int, list[int]] = {}
    for each in subscribers:
        found.setdefault(each.group, []).append(each.visible_from)
    return found
