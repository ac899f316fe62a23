"""Base of windows whose tuples stay until later ones push them out, however long that takes.

    b    |--)--)--)--)--)              each b pushes out the one before
    a    |-----------)-----------)     no later a: it is cut at the watermark once it lags, and goes on from there

When a tuple enters, and which later one pushes it out, is for the kinds of windows by count to decide.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import polars as pl

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operator import State
from cluster.fjord.operators.start_ordered import StartOrdered
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import QUERY_GROUP

BEGINS = "fjord_begins"
"""Where a waiting tuple entered the window, or was cut; NULL for one that has not entered."""
_LAGS = "fjord_lags"


class LaggingWindow(StartOrdered):
    """Keeps the tuples whose end is not known yet.

    A tuple leaves when its end is known, whatever other tuples wait for. One that stays holds back the watermark of the
    answer, and with it all operators above; so a tuple that lags by more than `lag_us` is emitted up to the watermark
    of the input, and goes on from there. Snapshots do not depend on the cuts, rows do: every key whose tuples stay
    costs all of these once more per `lag_us`.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    keys
        A window of its own for each combination of these columns; of none for one window.
    lag_us
        How far the answer's watermark may be behind the input's; None for no limit, where no operator above waits.
    kept
        Names of whole numbers that are kept with each tuple.
    shown
        Those of them that the answer has behind the columns of the input.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        keys: Iterable[str],
        lag_us: int | None,
        *,
        kept: Sequence[str],
        shown: Sequence[str] = (),
    ) -> None:
        super().__init__(columns)
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._lag_us = lag_us
        self._columns = [*columns.columns, *shown]
        numbers = (pl.lit(None, pl.Int64).alias(name) for name in (*kept, BEGINS))
        self._waiting = columns.clear().with_columns(numbers)

    def _take(self, batch: Batch) -> Batch:
        """Process tuples; emit those whose interval is known now, and those that lag too far behind."""
        watermark_us = batch.watermark_us
        emitted = []
        if batch.rows.height:
            self._add(batch.rows)
        if batch.rows.height or watermark_us >= NEVER:
            emitted.append(self._leave(watermark_us))
        emitted.append(self._cut(watermark_us))
        earliest = self._earliest()
        answer = pl.concat(emitted).sort(START, maintain_order=True)
        return Batch(answer, watermark_us if earliest is None else min(watermark_us, earliest))

    @abstractmethod
    def _add(self, rows: pl.DataFrame) -> None:
        """Let new tuples wait, which are in order."""

    @abstractmethod
    def _leave(self, watermark_us: int) -> pl.DataFrame:
        """Remove and return the tuples whose end is known, from where they begin to there."""

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all tuples that have entered are cut at the frontier."""
        self._lag_us = 0
        return super().ahead(frontier_us, inputs)

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
        lags = pl.col(BEGINS).min()
        marked = self._waiting.with_columns(((lags.over(self._keys) if self._keys else lags) < latest_us).alias(_LAGS))
        staying = pl.col(_LAGS).fill_null(value=False) & (pl.col(BEGINS) < watermark_us)
        pieces = marked.filter(staying).with_columns(
            pl.col(BEGINS).alias(START), pl.lit(watermark_us, pl.Int64).alias(END)
        )
        begins = pl.when(staying).then(watermark_us).otherwise(BEGINS).alias(BEGINS)
        self._waiting = marked.with_columns(begins).select(self._waiting.columns)
        return pieces.select(self._columns)

    def _earliest(self) -> int | None:
        """Return the first begin of the tuples that have entered and stay."""
        earliest = self._waiting.select(pl.col(BEGINS).min()).item()
        return None if earliest is None else int(earliest)

    def save(self) -> State:
        """Return the waiting tuples."""
        return {**super().save(), "waiting": self._waiting}


def rows_by_count(rows: int | None, slide_rows: int, keys: Iterable[str]) -> float:
    """Return how many tuples a window by count has of all its keys: those in it, and those of the incomplete slide.

    Of a shared one, a younger query has tuples that an older one has, too: so many for all of them.
    """
    partitioned = set(keys) - {QUERY_GROUP.name}
    return float((rows or 0) + slide_rows - 1) * (KEYS_ASSUMED if partitioned else 1)
