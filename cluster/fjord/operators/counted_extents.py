"""Shared extents over windows by count: a sample may have left for older queries, and still be there for younger ones.

See :mod:`cluster.fjord.operators.shared_count_window`: such a sample is one of the queries that began after
``SUPERSEDED_UNTIL``, up to ``VISIBLE_FROM``. And samples of keys that fall silent stay for ever, with their marks; so
these are marks of the queries that there are, and rows of their own are for queries that differ in what they see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from cluster.fjord.batch import END
from cluster.fjord.operator import State
from cluster.fjord.operators.extent import LINKED, Mark, Shown
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.operators.shared_count_window import LiveMarks, marks_of
from cluster.fjord.operators.shared_extents import SharedExtents
from cluster.fjord.operators.start_ordered import StartOrdered
from cluster.language.columns import QUERY_GROUP, VISIBLE_FROM
from cluster.language.extents import Coalescing
from cluster.physical.operations import SUPERSEDED_UNTIL
from cluster.temporal.overtaken import Whole
from cluster.temporal.run_versions import NONE


class CountedExtents(SharedExtents):
    """Keeps the samples of a window by count once for all queries, eagerly.

    Parameters
    ----------
    columns, keys, extents
        As of :class:`SharedExtents`; there is one extent.
    epochs
        By query group: with which its queries began.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        keys: tuple[str, ...],
        extents: Mapping[int, Coalescing],
        epochs: Mapping[int, Iterable[int]],
    ) -> None:
        super().__init__(columns, keys, extents, oldest=min(min(each) for each in epochs.values()), eager=True)
        self._live = LiveMarks(epochs)

    def _marks(self, since_us: int) -> list[Mark]:
        """Return the epochs up to which queries see the same of the samples that do not leave before an instant."""
        return [*marks_of(self._kept.filter(pl.col(END) >= since_us))]

    def _seen(self, ordered: pl.DataFrame, mark: Mark) -> Whole:
        """Return the places of the samples that are there for queries up to a mark."""
        epoch = 0 if mark is None else mark
        seen = ordered[VISIBLE_FROM.name].to_numpy() >= epoch
        return np.flatnonzero(seen & (ordered[SUPERSEDED_UNTIL.name].to_numpy() < epoch))

    def restore(self, state: State) -> None:
        """Restore samples, perhaps for other queries, with the marks of these; forget those that none may see."""
        StartOrdered.restore(self, state)
        self._early = self._live.of(self._early)
        saved = table_of(state, "kept")
        kept = self._live.of(saved)
        since = [self._since_of(shown, mark, saved.columns) for shown in self._shown for mark in marks_of(kept)]
        # The sample before may have gone.
        linked = pl.lit(None, pl.Boolean).alias(LINKED) if kept.height < saved.height else pl.col(LINKED)
        self._kept = kept.select(*self._columns, LINKED, *since).with_columns(linked)
        self._reached_us = number_of(state, "reached_us")

    def _since_of(self, shown: Shown, mark: int, saved: list[str]) -> pl.Expr:
        """Return since when rows have been the same that queries up to a mark see, and no earlier ones of their groups.

        They are those of the queries up to the next mark that there was behind the last query of the group.
        """
        prefix = f"{shown.since(None)} "
        known = sorted(int(name.removeprefix(prefix)) for name in saved if name.startswith(prefix))
        of: dict[int, list[int]] = {}
        for group, epochs in self._live.epochs.items():
            last = max((each for each in epochs if each <= mark), default=None)
            was = None if last is None else next((each for each in known if each >= last), None)
            if was is not None:
                of.setdefault(was, []).append(group)
        found = pl.lit(NONE, pl.Int64)
        for was, groups in of.items():
            of_groups = pl.col(QUERY_GROUP.name).is_in(groups)
            found = pl.when(of_groups).then(pl.col(shown.since(was))).otherwise(found)
        return found.alias(shown.since(mark))
