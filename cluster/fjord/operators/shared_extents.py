"""Extents of several queries over the same samples: kept once, coalesced for each in its way.

    a window of an hour of traffic, by sensor      kept once for all queries with its condition
    lane of q1 and q2                              rows of one extent, with its number: of both queries
    speed of q3, lazily                            rows of another one, if both are kept lazily

A query must not see samples from before its beginning. So samples carry the newest query's epoch at their arrival
(``VISIBLE_FROM``, raised by :mod:`cluster.fjord.operators.live_marks`), and while there are samples that only older
queries see, these get rows of their own: a row is for the queries that began after ``SUPERSEDED_UNTIL``, up to
``VISIBLE_FROM`` (cluster/physical/rules/shared_panes.py).

Over windows by count, a sample may have left for older queries, and still be there for younger ones
(:mod:`cluster.fjord.operators.count_window`): it is one of the queries that began after ``SUPERSEDED_UNTIL``, up
to ``VISIBLE_FROM``. And samples of keys that fall silent stay for ever, with their marks; so these are marks of the
queries that there are, and rows of their own are for queries that differ in what they see. The window below raises the
marks of what comes; those of what is kept here are raised when the queries are others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

import numpy as np
import polars as pl

from cluster.fjord.batch import END, INTERVAL, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.extent import LINKED, Extent, Mark, Shown
from cluster.fjord.operators.live_marks import LiveMarks, epochs_of, marks_of
from cluster.fjord.operators.ordered_output import StartOrdered, number_of, table_of
from cluster.fjord.running_kind import PassesNoOrigins, PassesRows, StateEstimate, Subscribed, alive_below
from cluster.fjord.state_rows import StateRows, with_numbers
from cluster.operators.columns import EXTENT, QUERY_GROUP, RUN_BEGIN, RUN_END, SUPERSEDED_UNTIL, VISIBLE_FROM
from cluster.operators.extent import Coalescing
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.rules.shared_extents import extents_of
from cluster.temporal.run_versions import NONE
from cluster.temporal.windows import Whole


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
    epochs
        By query group: with which its queries began.
    eager
        Whether samples are compared as they come; there is one extent then.
    """

    _marked = True

    def __init__(
        self,
        columns: pl.DataFrame,
        keys: tuple[str, ...],
        extents: Mapping[int, Coalescing],
        epochs: Mapping[int, Iterable[int]],
        *,
        eager: bool,
    ) -> None:
        needed = [name for name in columns.columns if name not in INTERVAL]
        shown = [Shown(how, keys, f" {number}") for number, how in sorted(extents.items())]
        self._numbers = dict(zip(shown, sorted(extents), strict=True))
        self._live = LiveMarks(epochs)
        self._lag_us = None
        self._begin_with(columns, keys, needed, shown, eager=eager)
        own = {name: kind for name, kind in columns.schema.items() if name != VISIBLE_FROM.name}
        added = (RUN_BEGIN, RUN_END, EXTENT, VISIBLE_FROM, SUPERSEDED_UNTIL)
        self._answer = pl.DataFrame(schema={**own, **{column.name: pl.Int64 for column in added}})

    def _marks(self, since_us: int) -> list[Mark]:
        """Return the epochs up to which queries see the same of the samples that do not leave before an instant."""
        return [*marks_of(self._kept.filter(pl.col(END) >= since_us))]

    def _add(self, rows: pl.DataFrame) -> None:
        """Keep samples; what they are marked with is what most have, so that rows are made once for all groups."""
        super()._add(self._with_live_marks(rows))

    def _with_live_marks(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return samples that come with the marks of the queries there are."""
        return self._live.of(rows)

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
        """Restore samples, perhaps for other queries, with the marks of these; forget those that none may see."""
        StartOrdered.restore(self, state)
        saved = table_of(state, "kept")
        kept = self._live.of(saved)
        since = [self._since_of(shown, mark, saved.columns) for shown in self._shown for mark in marks_of(kept)]
        self._kept = kept.select(*self._columns, *([LINKED] if self._eager else []), *since)
        if self._eager and kept.height < saved.height:  # the sample before may have gone
            self._kept = self._kept.with_columns(pl.lit(None, pl.Boolean).alias(LINKED))
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


class CountedExtents(SharedExtents):
    """Keeps the samples of a window by count once for all queries; eagerly, as there is one extent."""

    def _with_live_marks(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return samples with the marks that the window has given them."""
        return rows

    def _seen(self, ordered: pl.DataFrame, mark: Mark) -> Whole:
        """Return the places of the samples that are there for queries up to a mark."""
        epoch = 0 if mark is None else mark
        seen = ordered[VISIBLE_FROM.name].to_numpy() >= epoch
        return np.flatnonzero(seen & (ordered[SUPERSEDED_UNTIL.name].to_numpy() < epoch))

    def restore(self, state: State) -> None:
        """Restore samples, also those that wait for the watermark, with the marks of the queries there are."""
        super().restore(state)
        self._early = self._live.of(self._early)


@final
class RunningSharedExtents(PassesRows, PassesNoOrigins, Subscribed[kinds.SharedExtents]):
    """Extents of several queries over the same samples."""

    def operator(self, operation: kinds.SharedExtents, fragment: Fragment) -> Operator:
        """Return the operator for the extents and epochs of the queries."""
        rows, extents = empty_rows(operation.columns), extents_of(fragment.subscribers)
        kind = CountedExtents if SUPERSEDED_UNTIL in operation.columns else SharedExtents
        return kind(rows, operation.keys, extents, epochs_of(fragment.subscribers), eager=operation.eager)

    def kept(self, operation: kinds.SharedExtents, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the samples that are valid, each with since when its row has been the same."""
        return StateRows(alive_below(node, estimate), with_numbers(operation.columns, "since"))
