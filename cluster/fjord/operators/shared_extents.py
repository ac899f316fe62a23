"""Extents of several queries over the same samples: kept once, coalesced for each in its way.

    a window of an hour of traffic, by sensor      kept once for all queries with its condition
    lane of q1 and q2                              rows of one extent, with its number: of both queries
    speed of q3, lazily                            rows of another one, if both are kept lazily

A query must not see samples from before its beginning. So samples carry the newest query's epoch at their arrival
(``VISIBLE_FROM``), and while there are samples that only older queries see, these get rows of their own: a row is for
the queries that began after ``SUPERSEDED_UNTIL``, up to ``VISIBLE_FROM`` (cluster/physical/rules/shared_panes.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from cluster.fjord.batch import END, INTERVAL
from cluster.fjord.operator import State
from cluster.fjord.operators.extent import LINKED, Extent, Mark, Shown
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.operators.start_ordered import StartOrdered
from cluster.language.columns import VISIBLE_FROM
from cluster.language.extents import Coalescing
from cluster.physical.operations import EXTENT, RUN_BEGIN, RUN_END, SUPERSEDED_UNTIL
from cluster.temporal.overtaken import Whole


class SharedExtents(Extent):
    """Keeps samples once, and for each extent since when each of its rows has been the same.

    Parameters
    ----------
    columns
        No rows, with the columns of the input, among them the marks.
    keys
        As of :class:`Extent`, with the query group.
    extents
        By number: how samples are coalesced.
    oldest
        The epoch with which the oldest query began: samples that only older ones saw are forgotten.
    eager
        Whether samples are compared as they come; there is one extent then.
    """

    _marked = True

    def __init__(
        self,
        columns: pl.DataFrame,
        keys: tuple[str, ...],
        extents: Mapping[int, Coalescing],
        *,
        oldest: int,
        eager: bool,
    ) -> None:
        needed = [name for name in columns.columns if name not in INTERVAL]
        shown = [Shown(how, keys, f" {number}") for number, how in sorted(extents.items())]
        self._numbers = dict(zip(shown, sorted(extents), strict=True))
        self._oldest = oldest
        self._lag_us = None
        self._begin_with(columns, keys, needed, shown, eager=eager)
        own = {name: kind for name, kind in columns.schema.items() if name != VISIBLE_FROM.name}
        added = (RUN_BEGIN, RUN_END, EXTENT, VISIBLE_FROM, SUPERSEDED_UNTIL)
        self._answer = pl.DataFrame(schema={**own, **{column.name: pl.Int64 for column in added}})

    def _marks(self, since_us: int) -> list[Mark]:
        """Return the epochs up to which queries see some sample that does not leave before an instant."""
        there = self._kept.filter(pl.col(END) >= since_us)
        return [int(each) for each in there[VISIBLE_FROM.name].unique().sort()]

    def _order(self) -> list[str]:
        """Return the columns of whole samples, whichever extents there are; an eager one is the only one."""
        return super()._order() if self._eager else [*self._keys, *sorted({*self._values} - {*self._keys})]

    def _seen(self, ordered: pl.DataFrame, mark: Mark) -> Whole:
        """Return the places of the samples that queries of an epoch see."""
        return np.flatnonzero(ordered[VISIBLE_FROM.name].to_numpy() >= (0 if mark is None else mark))

    def _for_queries(self, rows: pl.DataFrame, shown: Shown, before: Mark, mark: Mark) -> pl.DataFrame:
        """Return rows with the number of their extent and their marks; columns that it does not show are NULL."""
        marks = {EXTENT.name: self._numbers[shown], VISIBLE_FROM.name: mark, SUPERSEDED_UNTIL.name: before}
        marked = rows.with_columns(pl.lit(value, pl.Int64).alias(name) for name, value in marks.items())
        return pl.concat([self._answer, marked], how="diagonal")

    def restore(self, state: State) -> None:
        """Restore samples, perhaps for other queries; forget those that none of these may see."""
        StartOrdered.restore(self, state)
        saved = table_of(state, "kept")
        rows = tuple(each.since(None) for each in self._shown)
        known = [name for name in saved.columns if name in self._kept.columns or name.startswith(rows)]
        self._kept = saved.select(known).filter(pl.col(VISIBLE_FROM.name) >= self._oldest)
        if self._eager and self._kept.height < saved.height:  # the sample before may have gone
            self._kept = self._kept.with_columns(pl.lit(None, pl.Boolean).alias(LINKED))
        self._reached_us = number_of(state, "reached_us")
