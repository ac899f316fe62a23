"""Distinct over pieces: a row is there until it ends, and only then another one that equals it.

    a, origin 1    |-------)-------)                  the first one, however it is cut
    a, origin 3        |-------------------)          there from where the first one has ended
    answers        |-------)-------)-------)
    origins        1       1       9

How long a piece goes on is not known before the watermark has passed its end. Until then nothing is answered of equal
rows that began later, at instants behind its end.
"""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import ALWAYS, END, START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.distinct import Distinct
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.operators.origins import with_origins, without_origins
from cluster.operators.mark_columns import ORIGIN

_FROM, _ANSWERED, _REACHED = "fjord_from", "fjord_answered", "fjord_reached"
_KEPT, _UNTIL = "rows", "before_us"


class DistinctPieces(Operator):
    """Keeps rows that have not ended, and up to where they have been answered.

    Parameters
    ----------
    columns
        No rows, with the columns of the input, without origins. NULL equals NULL.
    """

    def __init__(self, columns: pl.DataFrame) -> None:
        self._columns = columns.columns
        self._values = [name for name in columns.columns if name not in (START, END)]
        none = [pl.lit(None, pl.Int64).alias(name) for name in (ORIGIN.name, _FROM, _ANSWERED)]
        self._rows = columns.clear().with_columns(none)
        """START is that of the first piece, and _FROM from where on a row is answered, if that is known."""
        self._empty = columns.clear()
        self._before: Distinct | None = None
        """What an earlier version had answered, and until when it matters."""
        self._before_us = ALWAYS

    def transition(self, port: int, batch: Batch) -> Batch:
        """Put pieces together, and emit what is certain."""
        del port
        self._add(with_origins(batch.rows))
        rows = self._decided(batch.watermark_us)
        done = pl.max_horizontal(START, _FROM, _ANSWERED)
        emitted = rows.filter(pl.col(_FROM).is_not_null() & (done < pl.col(END)))
        answer = emitted.select(
            done.alias(START), *(name for name in self._columns if name != START), pl.col(_FROM).alias(ORIGIN.name)
        ).select(*self._columns, ORIGIN.name)
        answered = pl.when(pl.col(_FROM).is_not_null()).then(pl.max_horizontal(_ANSWERED, END)).alias(_ANSWERED)
        # One that ends at the watermark may go on there.
        self._rows = rows.with_columns(answered).filter(pl.col(END) >= batch.watermark_us)
        ordered = Batch(answer.sort(START, maintain_order=True), batch.watermark_us)
        return ordered if self._before is None else self._besides(self._before, ordered)

    def _besides(self, before: Distinct, batch: Batch) -> Batch:
        """Return what an earlier version has not answered: which rows that was of is not known."""
        rows = before.transition(0, Batch(without_origins(batch.rows), batch.watermark_us)).rows
        if batch.watermark_us > self._before_us:
            self._before = None
        return Batch(with_origins(rows), batch.watermark_us)

    def _add(self, pieces: pl.DataFrame) -> None:
        """Let pieces prolong the rows that they are of, or begin one."""
        if not pieces.height:
            return
        none = (pl.lit(None, pl.Int64).alias(name) for name in (_FROM, _ANSWERED))
        both = pl.concat([self._rows, pieces.with_columns(none).select(self._rows.columns)])
        merged = [pl.col(START).min(), pl.col(END).max(), pl.col(_FROM, _ANSWERED).max()]
        by = [*self._values, ORIGIN.name]
        self._rows = both.group_by(by, maintain_order=True).agg(merged).select(self._rows.columns)

    def _decided(self, watermark_us: int) -> pl.DataFrame:
        """Return rows in the order in which they began, with from where on they are answered, where that is known."""
        ordered = self._rows.sort(ORIGIN.name, START, END)
        before = pl.col(END).cum_max().shift(1)
        reached = ordered.with_columns((before.over(self._values) if self._values else before).alias(_REACHED))
        begins = pl.max_horizontal(START, ORIGIN.name, _REACHED)
        decided = pl.when((begins < watermark_us) & (begins < pl.col(END))).then(begins)
        return reached.with_columns(pl.coalesce(_FROM, decided).alias(_FROM)).drop(_REACHED)

    def save(self) -> State:
        """Return the rows."""
        before = {} if self._before is None else {_UNTIL: self._before_us, **self._before.save()}
        return {_KEPT: self._rows, **before}

    def restore(self, state: State) -> None:
        """Restore them; of an earlier version, what has been answered."""
        self._rows = table_of(state, _KEPT) if _KEPT in state else self._rows.clear()
        self._before = None
        others = {name: value for name, value in state.items() if name not in (_KEPT, _UNTIL)}
        if others:
            self._before = Distinct(self._empty)
            self._before.restore(others)
            ends = table_of(self._before.save(), "intervals")[END]
            self._before_us = number_of(state, _UNTIL) if _UNTIL in state else int(ends.max() or ALWAYS)  # type: ignore[arg-type] # integers
