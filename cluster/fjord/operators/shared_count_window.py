"""Windows by count for queries that began at different times: samples are kept once for all that see them.

ROWS 2; q1 sees all samples; q2 began when a, which is stamped later than b, had come, and b had not

    sample   b    a    c    d
    of q1    |---------)              b leaves as c enters, the second one behind it
    of q2    |--------------)         b leaves as d enters: q2 does not see a

The window of a query is the last samples of those that it sees. Samples are marked with the epoch of the newest query
at their arrival (``VISIBLE_FROM``), and queries between two marks see the same ones. Where samples came in the order of
their stamps, those that a younger query sees are the last ones of all, and both have the same end. Else the older query
loses a sample earlier, never later: it sees more samples behind it. From then on the sample is one of the younger
queries only: of those that began after ``SUPERSEDED_UNTIL``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.lagging_window import BEGINS, LaggingWindow, rows_by_count
from cluster.fjord.operators.live_marks import BEFORE_ALL, LiveMarks, epochs_of, marks_of
from cluster.fjord.operators.ordered_output import table_of
from cluster.fjord.row_flow import RowFlow, lasting, windowed
from cluster.fjord.running_kind import InputFlows, PassesNoOrigins, StateEstimate, Subscribed
from cluster.fjord.state_rows import StateRows, with_numbers
from cluster.operators.columns import VISIBLE_FROM
from cluster.operators.mark_columns import SUPERSEDED_UNTIL
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.rules.awaited_windows import MOST_LAG_US

_SEEN, _AFTER = VISIBLE_FROM.name, SUPERSEDED_UNTIL.name
_LEAVES, _PLACE = "fjord_leaves_at", "fjord_place"


class SharedCountWindow(LaggingWindow):
    """Keeps of each key the last `rows` samples that each query sees.

    Equal stamps count in order of arrival. Marks are raised here, as samples come: those of what leaves are the marks
    of the queries there are, and the extents above take them as they are.

    Parameters
    ----------
    columns
        No rows, with the columns of the input, among them the marks.
    rows
        How many samples stay.
    keys
        A window of its own for each combination of these columns, with the query group.
    epochs
        By query group: with which its queries began.
    lag_us
        How far the answer's watermark may be behind the input's.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        rows: int,
        keys: tuple[str, ...],
        epochs: Mapping[int, Iterable[int]],
        *,
        lag_us: int = MOST_LAG_US,
    ) -> None:
        if rows < 1:
            raise PlanError(f"a window of {rows} rows")
        super().__init__(columns, keys, lag_us, kept=(_AFTER,), shown=(_AFTER,))
        self._rows = rows
        self._marks = LiveMarks(epochs)

    def _add(self, rows: pl.DataFrame) -> None:
        """Let samples wait, with the marks of the queries there are; each begins where it enters."""
        new = rows.with_columns(pl.lit(BEFORE_ALL, pl.Int64).alias(_AFTER), pl.col(START).alias(BEGINS))
        self._waiting = pl.concat([self._waiting, self._marks.of(new.select(self._waiting.columns))])

    def _leave(self, watermark_us: int) -> pl.DataFrame:
        """Let samples leave; return those that have left, each with the queries for which it has."""
        found = self._with_ends()
        if watermark_us >= NEVER:  # no later sample will push them out
            found = found.with_columns(pl.col(_LEAVES).fill_null(NEVER))
        stays = pl.col(_LEAVES).is_null()
        self._waiting = found.filter(stays).select(self._waiting.columns)
        left = found.filter(~stays).with_columns(pl.col(BEGINS).alias(START), pl.col(_LEAVES).alias(END))
        return left.filter(pl.col(START) < pl.col(END)).select(self._columns)

    def _with_ends(self) -> pl.DataFrame:
        """Return the samples with when they leave, NULL if that is not known; one row for each end that one has."""
        leaves = pl.col(START).shift(-self._rows).over(self._keys).alias(_LEAVES)
        marks = marks_of(self._waiting)
        if len(marks) <= 1:
            return self._waiting.with_columns(leaves)
        placed = self._waiting.with_row_index(_PLACE)
        pieces = []
        for before, mark in zip([BEFORE_ALL, *marks], marks, strict=False):
            seen = placed.filter((pl.col(_SEEN) >= mark) & (pl.col(_AFTER) < mark)).with_columns(leaves)
            pieces.append(
                seen.with_columns(pl.lit(before, pl.Int64).alias(_AFTER), pl.lit(mark, pl.Int64).alias(_SEEN))
            )
        merged = [pl.col(_AFTER).min(), pl.col(_SEEN).max(), pl.exclude(_AFTER, _SEEN, _PLACE, _LEAVES).first()]
        return pl.concat(pieces).group_by(_PLACE, _LEAVES).agg(merged).sort(_PLACE, _AFTER)

    def restore(self, state: State) -> None:
        """Restore them, perhaps for other queries; forget those that none of these may see."""
        super().restore(state)
        self._waiting = self._marks.of(table_of(state, "waiting").select(self._waiting.columns))


@final
class RunningSharedCountWindow(PassesNoOrigins, Subscribed[kinds.SharedCountWindow]):
    """A window by count that several queries share."""

    def operator(self, operation: kinds.SharedCountWindow, fragment: Fragment) -> Operator:
        """Return the operator for the epochs of the queries."""
        rows, epochs = empty_rows(operation.columns), epochs_of(fragment.subscribers)
        return SharedCountWindow(rows, operation.rows, operation.keys, epochs, lag_us=operation.lag_us)

    def flow(self, operation: kinds.SharedCountWindow, inputs: InputFlows) -> RowFlow:
        """Return rows that are valid for no known time, so many at an instant as the window has."""
        return lasting(windowed(inputs.first), None, rows_by_count(operation.rows, 1, operation.keys))

    def kept(self, operation: kinds.SharedCountWindow, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the tuples that the window has."""
        del node, estimate
        columns = with_numbers((*operation.columns, SUPERSEDED_UNTIL), "begins")
        return StateRows(rows_by_count(operation.rows, 1, operation.keys), columns)
