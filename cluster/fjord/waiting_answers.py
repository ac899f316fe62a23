"""Answers of plans that take over from others: they wait until those have answered all that lies before the instant.

    old plan    |------|    |--------------|          known only once it has ended
    new plan                       |---|              known before that: waits, so that starts stay in order
                              instant

Which micro-batch they are given out in follows from the watermarks of streams alone, which are the same in each bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from cluster.fjord.batch import ALWAYS, END, START
from cluster.fjord.operator import State
from cluster.fjord.operators.ordered_output import table_of
from cluster.physical.nodes import Fragment
from cluster.plan.epoch import name_of

_COLUMNS = pl.Schema({"query": pl.String, START: pl.Int64, END: pl.Int64, "kind": pl.String, "row": pl.String})


class WaitingAnswers:
    """The answers of a fragment's subscribers that take over from other plans.

    Parameters
    ----------
    fragment
        The fragment.
    """

    def __init__(self, fragment: Fragment) -> None:
        self.name = f"{fragment.identity} Handover"
        """The state entry of the answers that wait."""
        self.moved = False
        """Whether the last micro-batch has changed which answers wait."""
        self._streams = fragment.streams
        self._opens_us = {each.identity: each.since.opens_us for each in fragment.subscribers if each.since is not None}
        self._waiting = pl.DataFrame(schema=_COLUMNS)

    @property
    def exist(self) -> bool:
        """Whether there are such subscribers."""
        return bool(self._opens_us)

    def given(self, answers: Iterable[pl.DataFrame], passed_us: Mapping[str, int]) -> pl.DataFrame:
        """Return what is given out of some answers, and of those that wait.

        Parameters
        ----------
        answers
            Answers, with identities of queries; each query's in start order.
        passed_us
            By stream: its low watermark.

        Returns
        -------
        polars.DataFrame
            Answers with names of queries.
        """
        come = [each.select(_COLUMNS.names()) for each in answers if each.height]
        self.moved = False
        if not come and not self._waiting.height:
            return self._waiting
        reached_us = min((passed_us.get(each, ALWAYS) for each in self._streams), default=ALWAYS)
        closed = [identity for identity, opens_us in self._opens_us.items() if reached_us < opens_us]
        had = self._waiting.height
        rows = pl.concat([self._waiting, *come])
        waits = pl.col("query").is_in(closed)
        self._waiting = rows.filter(waits)
        self.moved = self._waiting.height > 0 or had > 0
        given = rows.filter(~waits).sort(START, maintain_order=True)
        return given.with_columns(_names(given["query"]))

    def save(self) -> State:
        """Return the answers that wait."""
        return {"waiting": self._waiting}

    def restore(self, state: State) -> None:
        """Restore those of the queries that there are."""
        rows = table_of(state, "waiting")
        self._waiting = rows.filter(pl.col("query").is_in(list(self._opens_us)))


def _names(identities: pl.Series) -> pl.Series:
    known = {each: name_of(each) for each in identities.unique().to_list()}
    return identities.replace_strict(known, return_dtype=pl.String)
