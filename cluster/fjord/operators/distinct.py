"""Distinct: each tuple once at every instant (papers/pipes_algebra.md sections 3 and 5.6, corrected form).

a              |--------)
a      |-----------------------)    emitted at once: the parts that no earlier tuple covers
       |-------)        |------)

Over pieces, a row is there until it ends, and only then another one that equals it:

    a, origin 1    |-------)-------)                  the first one, however it is cut
    a, origin 3        |-------------------)          there from where the first one has ended
    answers        |-------)-------)-------)
    origins        1       1       9

How long a piece goes on is not known before the watermark has passed its end. Until then nothing is answered of equal
rows that began later, at instants behind its end.
"""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.fjord.batch import ALWAYS, END, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.operators.origins import with_origins, without_origins
from cluster.fjord.running_kind import Alone, PassesRows, RuntimeContext, StateEstimate, alive_below
from cluster.fjord.state_rows import StateRows
from cluster.operators.mark_columns import ORIGIN
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

_AT, _COVERED, _NEW, _ENDS = "fjord_at", "fjord_covered", "fjord_new", "fjord_ends"
_WAS, _IS, _RUN = "fjord_was_covered", "fjord_is_covered", "fjord_run"
_FROM, _ANSWERED, _REACHED = "fjord_from", "fjord_answered", "fjord_reached"
_KEPT, _UNTIL = "rows", "before_us"


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


class DistinctPieces(Operator):
    """Distinct over pieces: keeps rows that have not ended, and up to where they have been answered.

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


def _steps(rows: pl.DataFrame, values: list[str], name: str) -> pl.DataFrame:
    """Return a step up where each row starts and one down where it ends."""
    return pl.concat(
        rows.select(*values, pl.col(edge).alias(_AT), pl.lit(step, pl.Int64).alias(name))
        for edge, step in ((START, 1), (END, -1))
    )


@final
class RunningDistinct(PassesRows, Alone[kinds.Distinct]):
    """Each tuple once at every instant."""

    def operator(self, operation: kinds.Distinct) -> Operator:
        """Return the operator."""
        return Distinct(empty_rows(operation.columns))

    def with_origins(self, operation: kinds.Distinct, context: RuntimeContext) -> Operator:
        """Return one in which equal rows take turns."""
        del context
        return DistinctPieces(empty_rows(operation.columns))

    def kept(self, operation: kinds.Distinct, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the rows that are valid."""
        return StateRows(alive_below(node, estimate), operation.columns)
