"""The subscribers of a fragment whose rows are given out as soon as their beginning is certain (EMIT EARLY)."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec.structs import replace

from cluster.fjord.answers import Answers
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.early_answers import (
    NOTHING_GIVEN,
    Given,
    frontier_state_of,
    given_of,
    given_out,
    state_of,
    with_frontier,
)
from cluster.fjord.graph import RunningOperator
from cluster.fjord.kinds import CLOSES, OPEN
from cluster.fjord.look_ahead import LookAhead
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operator import State
from cluster.physical.nodes import Fragment
from cluster.physical.operations import Held

_NO_ANSWERS = pl.DataFrame(
    schema={"query": pl.String, START: pl.Int64, END: pl.Int64, "kind": pl.String, "row": pl.String, "key": pl.String}
)


def early_part(fragment: Fragment) -> Fragment | None:
    """Return a fragment with only those subscribers that are given rows before they flow; None if there are none.

    Where every row flows once its beginning is certain, there is nothing to be given out before.
    """
    early = tuple(each for each in fragment.subscribers if each.early)
    return replace(fragment, subscribers=early) if early and fragment.late_nodes else None


class EarlyQueries:
    """What they are given, micro-batch by micro-batch, and what has been given out to them.

    Parameters
    ----------
    fragment
        The fragment, with these subscribers only: see :func:`early_part`.
    answers
        Their answers, with keys and identities.
    running
        Its operators behind the exchanges, by id of their node.
    crossing
        By exchange: no rows, with the columns that cross it.
    tables
        The tables of lookups.
    """

    def __init__(
        self,
        fragment: Fragment,
        answers: Answers,
        running: Mapping[str, RunningOperator],
        crossing: Mapping[str, pl.DataFrame],
        tables: Tables | None,
    ) -> None:
        self.name = f"{fragment.identity} Early"
        """The state entry of what has been given out."""
        self.frontier_name = f"{fragment.identity} Frontier"
        """The state entry of a frontier that has moved since then: with it, open rows are not written again."""
        self.answers = answers
        self._rows_moved = self._frontier_moved = False
        self._fragment = fragment
        self._look_ahead = LookAhead(fragment, running, crossing, tables)
        self._began = {each.identity: each.visible_from for each in fragment.subscribers}
        self._cut = any(isinstance(each.operation, Held) for each in fragment.nodes)
        self._given: Given = NOTHING_GIVEN

    def answer(self, final: list[pl.DataFrame], watermarks_us: Mapping[str, int], *, failed: bool) -> pl.DataFrame:
        """Return what is given out after a micro-batch: rows, open rows, and ends of open rows, by identities.

        Parameters
        ----------
        final
            The fragment's rows that have flowed.
        watermarks_us
            By exchange: no later row starts before this instant.
        failed
            True if operators of the fragment have failed: what they know is not certain.
        """
        found = self._own(final)
        ahead = None if failed else self._ahead(watermarks_us)
        before = self._given
        answers, self._given = given_out(before, found, ahead, cut=self._cut)
        self._rows_moved = bool(answers["kind"].str.contains(f"^({OPEN}|{CLOSES})").any())
        # A frontier that has moved over nothing need not be saved: from the old one on, there is nothing new either.
        self._frontier_moved = (
            answers.height > 0
            or found.height > 0
            or (self._given.open.height > 0 and self._given.frontier_us != before.frontier_us)
        )
        return answers

    def save(self) -> State:
        """Return what has been given out."""
        return state_of(self._given, self._began)

    def changes(self, *, everything: bool) -> dict[str, State]:
        """Return the state entries that the last micro-batch has changed; all of what they hold with `everything`."""
        if everything or self._rows_moved:
            return {self.name: self.save()}
        return {self.frontier_name: frontier_state_of(self._given)} if self._frontier_moved else {}

    def restore(self, state: State | None, frontier: State | None = None) -> None:
        """Restore what was given out, for the queries there are now; None for an entry that was never written."""
        given = NOTHING_GIVEN if state is None else given_of(state, self._began)
        self._given = given if frontier is None else with_frontier(given, frontier)

    def _ahead(self, watermarks_us: Mapping[str, int]) -> Batch | None:
        reached = [watermarks_us.get(each.id, ALWAYS) for each in self._fragment.exchanges]
        frontier_us = min(reached)
        if frontier_us <= max(self._given.frontier_us, ALWAYS):
            return None
        if frontier_us >= NEVER:
            return Batch(_NO_ANSWERS, NEVER)  # the streams have ended, and everything has flowed
        known = self._look_ahead.known(frontier_us)
        return None if known is None else Batch(self._own([known.rows]), known.watermark_us)

    def _own(self, rows: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat([_NO_ANSWERS, *(each for piece in rows if piece.height for each in self.answers.of(piece))])
