"""Count windows, plain and partitioned (papers/pipes_algebra.md sections 3, 5.11 and 5.14, corrected form).

With N rows and a slide of A, tuple number i of its partition enters with tuple number ceil(i / A) * A and leaves with
tuple number ceil((i + N) / A) * A: its interval runs from the stamp of the one to the stamp of the other.
"""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.lagging_window import BEGINS, LaggingWindow, rows_by_count
from cluster.fjord.operators.ordered_output import table_of
from cluster.fjord.row_flow import RowFlow, lasting, windowed
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate
from cluster.fjord.state_rows import StateRows
from cluster.operators.mark_columns import ORIGIN
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode
from cluster.physical.rules.awaited_windows import MOST_LAG_US

_NUMBER, _COUNT = "fjord_number", "fjord_count"
_ENTERS, _LEAVES = "fjord_enters", "fjord_leaves"
_ENTERS_AT, _LEAVES_AT = "fjord_enters_at", "fjord_leaves_at"


class CountWindow(LaggingWindow):
    """Keeps of each key the last `rows` tuples, and at most a slide of newer ones.

    Equal stamps count in order of arrival.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    rows
        How many tuples stay; None for all.
    slide_rows
        The window slides after so many tuples.
    keys
        A window of its own for each combination of these columns.
    lag_us
        How far the answer's watermark may be behind the input's; None for no limit.
    origins
        Whether the answer has where tuples entered, although they were cut since.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        rows: int | None,
        slide_rows: int,
        keys: tuple[str, ...] = (),
        *,
        lag_us: int | None = MOST_LAG_US,
        origins: bool = False,
    ) -> None:
        if slide_rows < 1 or (rows is not None and rows < 1):
            raise PlanError(f"a window of {rows} rows that slides by {slide_rows}")
        shown = (ORIGIN.name,) if origins else ()
        super().__init__(columns, keys, lag_us, kept=(_NUMBER, *shown), shown=shown)
        self._origins = origins
        self._rows = rows
        self._slide = slide_rows
        self._counts = columns.clear().select(*self._keys, pl.lit(0, pl.Int64).alias(_COUNT))
        self._owed = columns.clear()
        """Rows that an earlier version of this operator had yet to emit when its state was saved."""

    def _take(self, batch: Batch) -> Batch:
        """Process tuples; emit also what an earlier version owes."""
        answer = super()._take(batch)
        if not self._owed.height:
            return answer
        rows = pl.concat([self._owed, answer.rows]).sort(START, maintain_order=True)
        self._owed = self._owed.clear()
        return Batch(rows, answer.watermark_us)

    def _add(self, rows: pl.DataFrame) -> None:
        """Number the new tuples of each partition, continuing from its last number."""
        number = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
        if self._keys:
            numbered = rows.with_columns(number.over(self._keys).alias(_NUMBER)).join(
                self._counts, on=self._keys, how="left", nulls_equal=True, maintain_order="left"
            )
            numbered = numbered.with_columns(pl.col(_NUMBER) + pl.col(_COUNT).fill_null(0))
            latest = numbered.group_by(self._keys, maintain_order=True).agg(pl.col(_NUMBER).max().alias(_COUNT))
            both = pl.concat([self._counts, latest])
            self._counts = both.group_by(self._keys, maintain_order=True).agg(pl.col(_COUNT).max())
        else:
            before = int(self._counts[_COUNT].max() or 0)  # type: ignore[arg-type] # a column of integers
            numbered = rows.with_columns((number + before).alias(_NUMBER))
            self._counts = numbered.select(pl.col(_NUMBER).max().alias(_COUNT))
        new = numbered.with_columns(pl.lit(None, pl.Int64).alias(name) for name in (BEGINS, ORIGIN.name))
        self._waiting = pl.concat([self._waiting, new.select(self._waiting.columns)])

    def _leave(self, watermark_us: int) -> pl.DataFrame:
        """Let tuples enter and leave; return those that have left."""
        entered = self._entered(self._waiting)
        leaves = pl.lit(None, pl.Int64) if self._rows is None else self._multiple(pl.col(_NUMBER) + self._rows)
        known = self._look_up(entered.with_columns(leaves.alias(_LEAVES)), _LEAVES)
        if self._rows is None or watermark_us >= NEVER:
            # No later tuple will push them out.
            known = known.with_columns(pl.col(_LEAVES_AT).fill_null(NEVER))
        done = pl.col(BEGINS).is_not_null() & pl.col(_LEAVES_AT).is_not_null()
        self._waiting = known.filter(~done).select(self._waiting.columns)
        left = known.filter(done).with_columns(pl.col(BEGINS).alias(START), pl.col(_LEAVES_AT).alias(END))
        return left.filter(pl.col(START) < pl.col(END)).select(self._columns)

    def _multiple(self, number: pl.Expr) -> pl.Expr:
        return ((number + self._slide - 1) // self._slide) * self._slide

    def _entered(self, waiting: pl.DataFrame) -> pl.DataFrame:
        """Return waiting tuples, with the begin of those that have entered."""
        enters = self._multiple(pl.col(_NUMBER)).alias(_ENTERS)
        found = self._look_up(waiting.with_columns(enters), _ENTERS)
        begun = found.with_columns(pl.coalesce(BEGINS, _ENTERS_AT).alias(BEGINS))
        return begun.with_columns(pl.coalesce(ORIGIN.name, BEGINS).alias(ORIGIN.name)) if self._origins else begun

    def _look_up(self, rows: pl.DataFrame, number: str) -> pl.DataFrame:
        """Add the stamp of the tuple with a number, NULL if it has not come yet."""
        found = rows.select(*self._keys, pl.col(_NUMBER).alias(number), pl.col(START).alias(f"{number}_at"))
        return rows.join(found, on=[*self._keys, number], how="left", nulls_equal=True, maintain_order="left")

    def save(self) -> State:
        """Return the waiting tuples, and the count of tuples of each key."""
        return {**super().save(), "counts": self._counts}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        waiting, self._counts = table_of(state, "waiting"), table_of(state, "counts")
        if BEGINS not in waiting.columns:  # an earlier version cut nothing, and held rows back
            waiting = self._entered(waiting.with_columns(pl.lit(None, pl.Int64).alias(BEGINS)))
            self._owed = table_of(state, "held")
        if self._origins and ORIGIN.name not in waiting.columns:
            # An earlier version knew only where it had cut them; where each tuple enters by itself, that is its stamp.
            waiting = waiting.with_columns(
                pl.when(pl.col(BEGINS).is_not_null()).then(START if self._slide == 1 else BEGINS).alias(ORIGIN.name)
            )
        self._waiting = waiting.select(self._waiting.columns)


@final
class RunningCountWindow(Alone[kinds.CountWindow]):
    """A window by count."""

    def operator(self, operation: kinds.CountWindow, *, origins: bool = False) -> Operator:
        """Return the operator, whose rows have origins or not."""
        rows, shape = empty_rows(operation.columns), (operation.rows, operation.slide_rows, operation.keys)
        return CountWindow(rows, *shape, lag_us=operation.lag_us, origins=origins)

    def with_origins(self, operation: kinds.CountWindow, context: RuntimeContext) -> Operator:
        """Return one that notes where tuples entered."""
        del context
        return self.operator(operation, origins=True)

    def flow(self, operation: kinds.CountWindow, inputs: InputFlows) -> RowFlow:
        """Return rows that are valid for no known time, so many at an instant as the window has."""
        most = rows_by_count(operation.rows, operation.slide_rows, operation.keys)
        return lasting(windowed(inputs.first), None, most)

    def kept(self, operation: kinds.CountWindow, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the tuples that the window has."""
        del node, estimate
        return StateRows(rows_by_count(operation.rows, operation.slide_rows, operation.keys), operation.columns)
