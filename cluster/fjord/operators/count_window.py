"""Count windows, plain and partitioned (papers/pipes_algebra.md sections 3, 5.11 and 5.14, corrected form).

With N rows and a slide of A, tuple number i of its partition enters with tuple number ceil(i / A) * A and leaves with
tuple number ceil((i + N) / A) * A: its interval runs from the stamp of the one to the stamp of the other.
"""

from __future__ import annotations

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, table_of

_NUMBER, _STARTED, _COUNT = "fjord_number", "fjord_started", "fjord_count"
_ENTERS, _LEAVES = "fjord_enters", "fjord_leaves"
_ENTERS_AT, _LEAVES_AT = "fjord_enters_at", "fjord_leaves_at"


class CountWindow(Operator):
    """Keeps the tuples whose end is not known yet.

    Tuples arrive in start order; equal stamps count in order of arrival.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    rows
        How many tuples stay; None for all.
    slide_rows
        The window moves with every so many tuples.
    keys
        A window of its own for each combination of these columns.
    """

    def __init__(self, columns: pl.DataFrame, rows: int | None, slide_rows: int, keys: tuple[str, ...] = ()) -> None:
        if slide_rows < 1 or (rows is not None and rows < 1):
            raise PlanError(f"a window of {rows} rows that slides by {slide_rows}")
        self._rows = rows
        self._slide = slide_rows
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._output = OrderedOutput(columns)
        self._waiting = columns.clear().with_columns(pl.lit(0, pl.Int64).alias(_NUMBER))
        self._counts = columns.clear().select(*self._keys, pl.lit(0, pl.Int64).alias(_COUNT))

    def transition(self, port: int, batch: Batch) -> Batch:
        """Take tuples; emit those whose interval is known by now."""
        del port
        if batch.rows.height:
            self._take(batch.rows)
        stamps = self._waiting.select(*self._keys, pl.col(_NUMBER), pl.col(START).alias(_STARTED))
        enters = self._multiple(pl.col(_NUMBER))
        leaves = pl.lit(None, pl.Int64) if self._rows is None else self._multiple(pl.col(_NUMBER) + self._rows)
        known = self._look_up(
            self._look_up(self._waiting.with_columns(enters.alias(_ENTERS), leaves.alias(_LEAVES)), stamps, _ENTERS),
            stamps,
            _LEAVES,
        )
        if self._rows is None or batch.watermark_us >= NEVER:
            # Nothing will push them out any more.
            known = known.with_columns(pl.col(_LEAVES_AT).fill_null(NEVER))
        done = pl.col(_ENTERS_AT).is_not_null() & pl.col(_LEAVES_AT).is_not_null()
        emitted = known.filter(done).with_columns(pl.col(_ENTERS_AT).alias(START), pl.col(_LEAVES_AT).alias(END))
        self._waiting = known.filter(~done).select(self._waiting.columns)
        self._output.add(emitted.filter(pl.col(START) < pl.col(END)))
        # A tuple that has entered but not left will be emitted with a start that may lie far back.
        earliest = known.filter(~done).select(pl.col(_ENTERS_AT).min()).item()
        return self._output.release(batch.watermark_us if earliest is None else min(batch.watermark_us, earliest))

    def _take(self, rows: pl.DataFrame) -> None:
        """Number the new tuples, each partition on from where it stood."""
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
        self._waiting = pl.concat([self._waiting, numbered.select(self._waiting.columns)])

    def _multiple(self, number: pl.Expr) -> pl.Expr:
        return ((number + self._slide - 1) // self._slide) * self._slide

    def _look_up(self, rows: pl.DataFrame, stamps: pl.DataFrame, number: str) -> pl.DataFrame:
        """Add the stamp of the tuple with a number, NULL if it has not come yet."""
        found = stamps.rename({_NUMBER: number, _STARTED: f"{number}_at"})
        return rows.join(found, on=[*self._keys, number], how="left", nulls_equal=True, maintain_order="left")

    def save(self) -> State:
        """Return the tuples that wait, how many have come, and what is held."""
        return {**self._output.save(), "waiting": self._waiting, "counts": self._counts}

    def restore(self, state: State) -> None:
        """Go on from there."""
        self._output.restore(state)
        self._waiting, self._counts = table_of(state, "waiting"), table_of(state, "counts")
