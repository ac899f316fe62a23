"""Count windows, plain and partitioned (papers/pipes_algebra.md sections 3, 5.11 and 5.14, corrected form).

With N rows and a slide of A, tuple number i of its partition enters with tuple number ceil(i / A) * A and leaves with
tuple number ceil((i + N) / A) * A: its interval runs from the stamp of the one to the stamp of the other.

    ROWS 1, partitioned     a |---------------------------------------     no later a: it is cut at the
                            b |--)--)--)--)--)                             watermark, and goes on from there
    cut                     a |-----------)-----------)-----------
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operator import State
from cluster.fjord.operators.ordered_output import table_of
from cluster.fjord.operators.start_ordered import StartOrdered
from cluster.physical.rules.awaited_windows import MOST_LAG_US

_NUMBER, _COUNT = "fjord_number", "fjord_count"
_ENTERS, _LEAVES = "fjord_enters", "fjord_leaves"
_ENTERS_AT, _LEAVES_AT = "fjord_enters_at", "fjord_leaves_at"
_BEGINS, _LAGS = "fjord_begins", "fjord_lags"


class CountWindow(StartOrdered):
    """Keeps the tuples whose end is not known yet: of each key the last `rows`, and at most a slide of newer ones.

    Equal stamps count in order of arrival. A tuple leaves when its end is known, whatever other tuples wait for. One
    that stays holds back the watermark of the answer, and with it all operators above; so a tuple that lags by more
    than `lag_us` is emitted up to the watermark of the input, and goes on from there. Snapshots do not depend on the
    cuts, rows do: every key whose tuples stay costs `rows` more of them per `lag_us`.

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
        How far the answer's watermark may be behind the input's; None for no limit, where no operator above waits.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        rows: int | None,
        slide_rows: int,
        keys: tuple[str, ...] = (),
        *,
        lag_us: int | None = MOST_LAG_US,
    ) -> None:
        if slide_rows < 1 or (rows is not None and rows < 1):
            raise PlanError(f"a window of {rows} rows that slides by {slide_rows}")
        super().__init__(columns)
        self._rows = rows
        self._slide = slide_rows
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._lag_us = lag_us
        self._columns = columns.columns
        # A tuple that has entered begins where it entered, or where it was cut; NULL for one that has not.
        self._waiting = columns.clear().with_columns(
            pl.lit(0, pl.Int64).alias(_NUMBER), pl.lit(None, pl.Int64).alias(_BEGINS)
        )
        self._counts = columns.clear().select(*self._keys, pl.lit(0, pl.Int64).alias(_COUNT))
        self._owed = columns.clear()
        """Rows that an earlier version of this operator had yet to emit when its state was saved."""

    def _take(self, batch: Batch) -> Batch:
        """Process tuples; emit those whose interval is known now, and those that lag too far behind."""
        watermark_us = batch.watermark_us
        emitted = [self._owed]
        self._owed = self._owed.clear()
        if batch.rows.height:
            self._number(batch.rows)
        if batch.rows.height or watermark_us >= NEVER:
            emitted.append(self._leave(watermark_us))
        emitted.append(self._cut(watermark_us))
        earliest = self._earliest()
        answer = pl.concat(emitted).sort(START, maintain_order=True)
        return Batch(answer, watermark_us if earliest is None else min(watermark_us, earliest))

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all tuples that have entered are cut at the frontier."""
        self._lag_us = 0
        return super().ahead(frontier_us, inputs)

    def _number(self, rows: pl.DataFrame) -> None:
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
        new = numbered.with_columns(pl.lit(None, pl.Int64).alias(_BEGINS))
        self._waiting = pl.concat([self._waiting, new.select(self._waiting.columns)])

    def _leave(self, watermark_us: int) -> pl.DataFrame:
        """Let tuples enter and leave; return those that have left."""
        entered = self._entered(self._waiting)
        leaves = pl.lit(None, pl.Int64) if self._rows is None else self._multiple(pl.col(_NUMBER) + self._rows)
        known = self._look_up(entered.with_columns(leaves.alias(_LEAVES)), _LEAVES)
        if self._rows is None or watermark_us >= NEVER:
            # No later tuple will push them out.
            known = known.with_columns(pl.col(_LEAVES_AT).fill_null(NEVER))
        done = pl.col(_BEGINS).is_not_null() & pl.col(_LEAVES_AT).is_not_null()
        self._waiting = known.filter(~done).select(self._waiting.columns)
        left = known.filter(done).with_columns(pl.col(_BEGINS).alias(START), pl.col(_LEAVES_AT).alias(END))
        return left.filter(pl.col(START) < pl.col(END)).select(self._columns)

    def _cut(self, watermark_us: int) -> pl.DataFrame:
        """Return, up to the watermark, the tuples of keys that lag too far behind it."""
        nothing = self._waiting.clear().select(self._columns)
        earliest = self._earliest()
        if self._lag_us is None or earliest is None:
            return nothing
        latest_us = watermark_us - self._lag_us
        if earliest >= latest_us:
            return nothing
        # All tuples of a key at once: the rows made of them above are then cut once, not once for each.
        lags = pl.col(_BEGINS).min()
        marked = self._waiting.with_columns(((lags.over(self._keys) if self._keys else lags) < latest_us).alias(_LAGS))
        staying = pl.col(_LAGS).fill_null(value=False) & (pl.col(_BEGINS) < watermark_us)
        pieces = marked.filter(staying).with_columns(
            pl.col(_BEGINS).alias(START), pl.lit(watermark_us, pl.Int64).alias(END)
        )
        begins = pl.when(staying).then(watermark_us).otherwise(_BEGINS).alias(_BEGINS)
        self._waiting = marked.with_columns(begins).select(self._waiting.columns)
        return pieces.select(self._columns)

    def _earliest(self) -> int | None:
        """Return the first begin of the tuples that have entered and stay."""
        earliest = self._waiting.select(pl.col(_BEGINS).min()).item()
        return None if earliest is None else int(earliest)

    def _multiple(self, number: pl.Expr) -> pl.Expr:
        return ((number + self._slide - 1) // self._slide) * self._slide

    def _entered(self, waiting: pl.DataFrame) -> pl.DataFrame:
        """Return waiting tuples, with the begin of those that have entered."""
        enters = self._multiple(pl.col(_NUMBER)).alias(_ENTERS)
        found = self._look_up(waiting.with_columns(enters), _ENTERS)
        return found.with_columns(pl.coalesce(_BEGINS, _ENTERS_AT).alias(_BEGINS))

    def _look_up(self, rows: pl.DataFrame, number: str) -> pl.DataFrame:
        """Add the stamp of the tuple with a number, NULL if it has not come yet."""
        found = rows.select(*self._keys, pl.col(_NUMBER).alias(number), pl.col(START).alias(f"{number}_at"))
        return rows.join(found, on=[*self._keys, number], how="left", nulls_equal=True, maintain_order="left")

    def save(self) -> State:
        """Return the waiting tuples, and the count of tuples of each key."""
        return {**super().save(), "waiting": self._waiting, "counts": self._counts}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        waiting, self._counts = table_of(state, "waiting"), table_of(state, "counts")
        if _BEGINS not in waiting.columns:  # an earlier version cut nothing, and held rows back
            waiting = self._entered(waiting.with_columns(pl.lit(None, pl.Int64).alias(_BEGINS)))
            self._owed = table_of(state, "held")
        self._waiting = waiting.select(self._waiting.columns)
