"""Distinct: each tuple once at every instant (papers/pipes_algebra.md sections 3 and 5.6, corrected form).

a              |--------)
a      |-----------------------)    emitted at once: the parts that no earlier tuple covers
       |-------)        |------)
"""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import ALWAYS, END, START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import table_of

_AT, _COVERED, _NEW, _ENDS = "fjord_at", "fjord_covered", "fjord_new", "fjord_ends"
_WAS, _IS, _RUN = "fjord_was_covered", "fjord_is_covered", "fjord_run"


class Distinct(Operator):
    """Remembers, per tuple, the emitted intervals, until the watermark has passed them.

    Parameters
    ----------
    columns
        No rows, with the columns of the input. NULL equals NULL.
    """

    def __init__(self, columns: pl.DataFrame) -> None:
        self._values = [name for name in columns.columns if name not in (START, END)]
        self._covered = columns.clear().select(START, END, *self._values)
        """By tuple, intervals that neither overlap nor touch."""
        self._owed = columns.clear()
        """Rows that an earlier version of this operator had yet to emit when its state was saved."""

    def transition(self, port: int, batch: Batch) -> Batch:
        """Emit the parts of each row that are not covered yet."""
        del port
        fresh = self._cover(batch.rows) if batch.rows.height else self._covered.clear()
        if self._owed.height:
            fresh, self._owed = pl.concat([self._owed.select(fresh.columns), fresh]), self._owed.clear()
        self._covered = self._covered.filter(pl.col(END) > batch.watermark_us)
        return Batch(fresh.sort(START, maintain_order=True), batch.watermark_us)

    def _cover(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Cover rows; return the intervals that were not covered before."""
        touched, rest = self._of_same_tuples(rows)
        new = _steps(rows, self._values, _NEW).with_columns((pl.col(_NEW) < 0).alias(_ENDS))
        steps = pl.concat([_steps(touched, self._values, _COVERED), new], how="diagonal")
        # Coverage is a step function of time, before these rows and with them.
        sums = [pl.col(_COVERED, _NEW).sum(), pl.col(_ENDS).any()]
        ordered = steps.group_by([*self._values, _AT], maintain_order=True).agg(sums).sort(_AT, maintain_order=True)
        spans = ordered.with_columns(
            (self._over(pl.col(_COVERED).cum_sum()) > 0).alias(_WAS),
            (self._over((pl.col(_COVERED) + pl.col(_NEW)).cum_sum()) > 0).alias(_IS),
            self._over(pl.col(_AT).shift(-1)).alias(END),
        )
        self._covered = pl.concat([rest, self._runs(spans, pl.col(_IS))])
        # Cut where rows end, so that no part is longer than its row: a window above may need instants.
        return self._runs(spans, pl.col(_IS) & ~pl.col(_WAS), cuts=pl.col(_ENDS))

    def _of_same_tuples(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the intervals of the tuples that are among some rows, and the other intervals."""
        if not self._values or not self._covered.height:
            return self._covered, self._covered.clear()
        tuples = rows.select(self._values).unique()
        touched = self._covered.join(tuples, on=self._values, how="semi", nulls_equal=True)
        return touched, self._covered.join(tuples, on=self._values, how="anti", nulls_equal=True)

    def _runs(self, spans: pl.DataFrame, wanted: pl.Expr, cuts: pl.Expr | None = None) -> pl.DataFrame:
        """Return the longest intervals of consecutive wanted spans, cut at some of their starts."""
        first = wanted & ~self._over(wanted.shift(1)).fill_null(value=False)
        if cuts is not None:
            first |= wanted & cuts
        numbered = spans.with_columns(self._over(first.cum_sum()).alias(_RUN)).filter(wanted)
        runs = numbered.group_by([*self._values, _RUN], maintain_order=True).agg(
            pl.col(_AT).first().alias(START), pl.col(END).last()
        )
        return runs.select(self._covered.columns)

    def _over(self, of: pl.Expr) -> pl.Expr:
        return of.over(self._values) if self._values else of

    def save(self) -> State:
        """Return the covered intervals."""
        return {"intervals": self._covered}

    def restore(self, state: State) -> None:
        """Restore them."""
        if "intervals" not in state:  # an earlier version kept only the ends of covered intervals, and held rows back
            ends = pl.col(_COVERED).alias(END)
            begins = pl.lit(ALWAYS, pl.Int64).alias(START)
            self._covered = table_of(state, "covered").select(begins, ends, *self._values)
            self._owed = table_of(state, "held")
            return
        self._covered = table_of(state, "intervals")


def _steps(rows: pl.DataFrame, values: list[str], name: str) -> pl.DataFrame:
    """Return a step up where each row starts and one down where it ends."""
    return pl.concat(
        rows.select(*values, pl.col(edge).alias(_AT), pl.lit(step, pl.Int64).alias(name))
        for edge, step in ((START, 1), (END, -1))
    )
