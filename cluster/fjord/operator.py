"""What an operator is: a state machine with one method, `transition` (papers/fjords.md section 2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import polars as pl

from cluster.errors import StateError
from cluster.fjord.batch import Batch

State = Mapping[str, pl.DataFrame | int | str]
"""An operator's state as a few named tables and scalars, fit to be written down."""


class Operator(ABC):
    """State and one method.

    An operator never blocks, does not depend on where a batch came from, and keeps nothing that a watermark has made
    useless.
    """

    input_count: int = 1
    """How many inputs it has; ports count from 0."""
    repairs_disorder: bool = False
    """True if rows may arrive in any order and late: what stands where data enter a plan."""
    warning: Exception | None = None
    """What it could not do in its last transition, though it goes on; its query gets it as an error."""

    @abstractmethod
    def transition(self, port: int, batch: Batch) -> Batch:
        """Take one batch on one input and return what can be answered now.

        Parameters
        ----------
        port
            The input on which `batch` arrived. What batches promise is in :mod:`cluster.fjord.contract`: rows sorted by
            start within a batch, none before a watermark announced earlier, none that is never valid, a watermark
            that never goes back; and nothing about order from batch to batch.
        batch
            What arrived. Its rows may be shared with other operators.

        Returns
        -------
        Batch
            Rows and the operator's own watermark, which promise the same. With nothing to answer the rows are empty but
            have the output's columns.
        """

    def save(self) -> State:
        """Return the state; empty for a stateless operator."""
        return {}

    def restore(self, state: State) -> None:
        """Take up a state returned by :meth:`save` of an operator built with the same parameters.

        Raises
        ------
        StateError
            If the state is not one of this operator's.
        """
        if state:
            raise StateError(f"{type(self).__name__} keeps no state, but was given {', '.join(state)}")
