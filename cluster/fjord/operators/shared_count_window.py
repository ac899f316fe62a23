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

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operator import State
from cluster.fjord.operators.live_marks import BEFORE_ALL, LiveMarks, marks_of
from cluster.fjord.operators.ordered_output import table_of
from cluster.fjord.operators.start_ordered import StartOrdered
from cluster.language.columns import VISIBLE_FROM
from cluster.physical.operations import SUPERSEDED_UNTIL
from cluster.physical.rules.awaited_windows import MOST_LAG_US

_SEEN, _AFTER = VISIBLE_FROM.name, SUPERSEDED_UNTIL.name
_BEGINS, _LEAVES, _PLACE, _LAGS = "fjord_begins", "fjord_leaves_at", "fjord_place", "fjord_lags"


class SharedCountWindow(StartOrdered):
    """Keeps of each key the last `rows` samples that each query sees.

    Equal stamps count in order of arrival. Samples that lag by more than `lag_us` are cut at the watermark of the
    input, and go on from there, as those of :class:`cluster.fjord.operators.count_window.CountWindow`.

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
        super().__init__(columns)
        self._rows = rows
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._marks = LiveMarks(epochs)
        self._lag_us = lag_us
        self._columns = [*columns.columns, _AFTER]
        # A sample begins where it entered, or where it was cut.
        self._waiting = columns.clear().with_columns(
            pl.lit(BEFORE_ALL, pl.Int64).alias(_AFTER), pl.lit(0, pl.Int64).alias(_BEGINS)
        )

    def _take(self, batch: Batch) -> Batch:
        """Process samples; emit those whose interval is known now, and those that lag too far behind."""
        watermark_us = batch.watermark_us
        emitted = []
        if batch.rows.height:
            new = batch.rows.with_columns(pl.lit(BEFORE_ALL, pl.Int64).alias(_AFTER), pl.col(START).alias(_BEGINS))
            self._waiting = pl.concat([self._waiting, self._marks.of(new.select(self._waiting.columns))])
        if batch.rows.height or watermark_us >= NEVER:
            emitted.append(self._leave(watermark_us))
        emitted.append(self._cut(watermark_us))
        earliest = self._earliest()
        answer = pl.concat(emitted).sort(START, maintain_order=True)
        return Batch(answer, watermark_us if earliest is None else min(watermark_us, earliest))

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all samples are cut at the frontier."""
        self._lag_us = 0
        return super().ahead(frontier_us, inputs)

    def _leave(self, watermark_us: int) -> pl.DataFrame:
        """Let samples leave; return those that have left, each with the queries for which it has."""
        found = self._with_ends()
        if watermark_us >= NEVER:  # no later sample will push them out
            found = found.with_columns(pl.col(_LEAVES).fill_null(NEVER))
        stays = pl.col(_LEAVES).is_null()
        self._waiting = found.filter(stays).select(self._waiting.columns)
        left = found.filter(~stays).with_columns(pl.col(_BEGINS).alias(START), pl.col(_LEAVES).alias(END))
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

    def _cut(self, watermark_us: int) -> pl.DataFrame:
        """Return, up to the watermark, the samples of keys that lag too far behind it."""
        earliest, latest_us = self._earliest(), watermark_us - self._lag_us
        if earliest is None or earliest >= latest_us:
            return self._waiting.clear().select(self._columns)
        # All samples of a key at once: the rows made of them above are then cut once, not once for each.
        lags = (pl.col(_BEGINS).min().over(self._keys) < latest_us).alias(_LAGS)
        marked = self._waiting.with_columns(lags)
        staying = pl.col(_LAGS) & (pl.col(_BEGINS) < watermark_us)
        pieces = marked.filter(staying).with_columns(
            pl.col(_BEGINS).alias(START), pl.lit(watermark_us, pl.Int64).alias(END)
        )
        begins = pl.when(staying).then(watermark_us).otherwise(_BEGINS).alias(_BEGINS)
        self._waiting = marked.with_columns(begins).select(self._waiting.columns)
        return pieces.select(self._columns)

    def _earliest(self) -> int | None:
        """Return the first begin of the samples that stay."""
        earliest = self._waiting.select(pl.col(_BEGINS).min()).item()
        return None if earliest is None else int(earliest)

    def save(self) -> State:
        """Return the samples that stay."""
        return {**super().save(), "waiting": self._waiting}

    def restore(self, state: State) -> None:
        """Restore them, perhaps for other queries; forget those that none of these may see."""
        super().restore(state)
        self._waiting = self._marks.of(table_of(state, "waiting").select(self._waiting.columns))
