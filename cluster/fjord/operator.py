"""The interface of operators: state machines with one method, `transition` (papers/fjords.md section 2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from cluster.errors import StateError
from cluster.fjord.batch import START, Batch

State = Mapping[str, pl.DataFrame | int | str]
"""An operator's state as a few named tables and scalars that can be saved."""


class Evictions(NamedTuple):
    """What an operator has dropped for lack of room (``KEEP``).

    `tuples` since its state began; `accuracy` is that of its rows as estimated, None while there is no estimate.
    """

    tuples: int = 0
    accuracy: float | None = None


NO_EVICTIONS = Evictions()


class Operator(ABC):
    """State and one method.

    An operator never blocks, does not depend on the source of a batch, and keeps no data that a watermark has made
    useless.
    """

    input_count: int = 1
    """How many inputs it has; ports count from 0."""
    repairs_disorder: bool = False
    """True if rows may arrive in any order and late: for operators where data enter a plan."""
    warning: Exception | None = None
    """What it could not do in its last transition although it went on; its query gets this as an error."""
    companions: int = 0
    """Of an extent: for each row that entered since it was built, how many rows of its key there were, with itself."""
    neighbours: int = 0
    """Of an extent: how many pairs of neighbours it has compared since it was built."""
    linked: int = 0
    """Of an extent: how many of these are coalesced."""

    @property
    def evictions(self) -> Evictions:
        """What it has dropped for lack of room."""
        return NO_EVICTIONS

    def begin(self, begun_us: Mapping[str, int]) -> bool:
        """Take note of where streams begin, by stream; return whether that changes the state."""
        del begun_us
        return False

    @abstractmethod
    def transition(self, port: int, batch: Batch) -> Batch:
        """Process one batch on one input and return the answers that are final now.

        Parameters
        ----------
        port
            The input on which `batch` arrived. :mod:`cluster.fjord.dataflow` describes the guarantees of batches: rows
            sorted by start within a batch, none before a watermark announced earlier, none with an empty interval, a
            watermark that never goes back; and no order from batch to batch.
        batch
            The batch. Its rows may be shared with other operators.

        Returns
        -------
        Batch
            Rows and the operator's own watermark, under the same contract. Without answers the rows are empty but
            have the output's columns.
        """

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Return the rows that are certain to begin before an instant, although they are not final.

        It changes the state: only a copy of an operator looks ahead (:mod:`cluster.fjord.early_answers`).

        Parameters
        ----------
        frontier_us
            Up to here all inputs are known.
        inputs
            By port: the rows that begin before `frontier_us` and have not arrived yet, cut there: one that ends at
            `frontier_us` lasts at least until then.

        Returns
        -------
        Batch
            The rows to come, of which the caller cuts off what lies behind the batch's watermark: up to there all are
            known, as far as the operator has answered. A row that ends at the watermark lasts at least until then.
        """
        found = [self.transition(port, Batch(rows, frontier_us)) for port, rows in enumerate(inputs)]
        rows = found[0].rows
        if len(found) > 1:
            rows = pl.concat([each.rows for each in found]).sort(START, maintain_order=True)
        return Batch(rows, min(frontier_us, found[-1].watermark_us))

    def save(self) -> State:
        """Return the state; empty for a stateless operator."""
        return {}

    def restore(self, state: State) -> None:
        """Restore a state returned by :meth:`save` of an operator built with the same parameters.

        Raises
        ------
        StateError
            If the state is not one of this operator's.
        """
        if state:
            raise StateError(f"{type(self).__name__} keeps no state, but was given {', '.join(state)}")
