"""What a fragment knows already although it may not flow yet: rows that have begun, and whose end is not known.

    ROWS 3     a |--------------)        d has come: the end of a is known, and a flows.
               b      |------------...   b, c and d have begun, and stay valid at least up to the frontier, before
               c         |---------...   which all tuples are known. Rows flow when they are final; but what begins
               d              |----...   before the frontier, and up to there, is certain now.
                             frontier

The rows that flow, and the state of the operators, stay as they are. After each micro-batch a copy of every operator
that holds such rows back, and of those above, is given the operator's state, and what is ahead of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from cluster.fjord.batch import END, START, Batch
from cluster.fjord.graph import RunningOperator
from cluster.fjord.instantiation import operator_of_node
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operator import State
from cluster.physical.nodes import Fragment, OperatorNode


class LookAhead:
    """The operators of a fragment that are late, and their copies.

    Parameters
    ----------
    fragment
        The fragment.
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
        running: Mapping[str, RunningOperator],
        crossing: Mapping[str, pl.DataFrame],
        tables: Tables | None,
    ) -> None:
        self._running = running
        self._crossing = crossing
        self._late = fragment.late_nodes
        self._top = fragment.sink.inputs[0]
        self._copies = {each.id: operator_of_node(each, fragment, tables) for each in self._late}

    def known(self, frontier_us: int) -> Batch | None:
        """Return the rows of the fragment that begin before its watermark and have not flowed yet, cut there.

        Rows that end at the watermark last at least until then. None if that is not known now: an operator fails, or
        cannot read a relation. Once the rows flow, the query has the error, or its answer.

        Parameters
        ----------
        frontier_us
            All tuples stamped before this instant have come.
        """
        found: dict[str, Batch] = {}
        try:
            states = {node.id: self._running[node.id].operator.save() for node in self._late}
            if not any(map(_holds, states.values())):
                return self._nothing(self._top, frontier_us)
            for node in self._late:
                batch = self._ahead(node, states[node.id], found, frontier_us)
                if batch is None:
                    return None
                found[node.id] = batch
        except Exception:  # noqa: BLE001 - whatever it is, it is reported once the rows flow
            return None
        return found[self._top]

    def _ahead(self, node: OperatorNode, state: State, found: Mapping[str, Batch], frontier_us: int) -> Batch | None:
        inputs = [found.get(each) or self._nothing(each, frontier_us) for each in node.inputs]
        known = [each for each in inputs if each is not None]
        if len(known) < len(inputs):
            return None
        # One input may be known further than the other.
        until_us = min(each.watermark_us for each in known)
        operator = self._copies[node.id]
        operator.restore(state)
        batch = operator.ahead(until_us, [_cut(each.rows, until_us) for each in known])
        if operator.warning is not None:
            return None
        return Batch(_cut(batch.rows, batch.watermark_us), batch.watermark_us)

    def _nothing(self, node: str, frontier_us: int) -> Batch | None:
        """Return the batch of a node that holds nothing back: all rows that begin before its watermark have flowed."""
        if node in self._crossing:
            return Batch(self._crossing[node], frontier_us)
        running = self._running[node]
        return None if running.empty is None else Batch(running.empty, min(frontier_us, running.emitted.watermark_us))


def _holds(state: State) -> bool:
    return any(isinstance(value, pl.DataFrame) and value.height > 0 for value in state.values())


def _cut(rows: pl.DataFrame, until_us: int) -> pl.DataFrame:
    """Return the rows that begin before an instant, with their ends no later."""
    if not rows.height:
        return rows
    begun = rows.filter(pl.col(START) < until_us)
    return begun.with_columns(pl.min_horizontal(END, pl.lit(until_us, pl.Int64)).alias(END))
