"""Union, difference, intersection and each tuple once (papers/pipes_algebra.md section 3), in start order.

**Difference and intersection: the multiplicities of a tuple on both sides determine that of the answer.**

papers/pipes_algebra.md sections 3 and 5.7. Per tuple, both multiplicities are step functions of time; the answer is cut
wherever one of them steps. A span is emitted once both inputs have passed its end.

**Distinct: each tuple once at every instant (papers/pipes_algebra.md sections 3 and 5.6, corrected form).**

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

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar, final

import polars as pl
from msgspec import structs

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch, empty_rows, types_of
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, number_of, table_of
from cluster.fjord.operators.origins import OriginUnion, with_origins, without_origins
from cluster.fjord.operators.partial_aggregation import BoundedMultiplicities
from cluster.fjord.row_flow import RowFlow, larger, longest, of_both, shortest
from cluster.fjord.running_kind import (
    Alone,
    InputFlows,
    KeepsNothing,
    PassesRows,
    RuntimeContext,
    StateEstimate,
    alive_below,
)
from cluster.fjord.state_rows import StateRows
from cluster.operators.columns import ORIGIN
from cluster.operators.source import MOST_READINGS
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode


class Union(Operator):
    """Holds the rows of the input that is ahead until the other has come as far.

    Parameters
    ----------
    columns
        No rows, with the columns of the left input; those of the right one get their names, by position.
    """

    input_count = 2

    def __init__(self, columns: pl.DataFrame) -> None:
        self._names = columns.columns
        self._output = OrderedOutput(columns)
        self._watermarks_us = [ALWAYS, ALWAYS]

    def transition(self, port: int, batch: Batch) -> Batch:
        """Process rows of one input and emit those that both have passed."""
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        self._output.add(batch.rows.rename(dict(zip(batch.rows.columns, self._names, strict=True))))
        return self._output.release(min(self._watermarks_us))

    def save(self) -> State:
        """Return the held rows, and the positions of the inputs."""
        left_us, right_us = self._watermarks_us
        return {**self._output.save(), "left_us": left_us, "right_us": right_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._output.restore(state)
        self._watermarks_us = [number_of(state, "left_us"), number_of(state, "right_us")]


@final
class RunningUnion(KeepsNothing, Alone[kinds.Union]):
    """The union of two inputs."""

    def operator(self, operation: kinds.Union) -> Operator:
        """Return the operator."""
        return Union(empty_rows(operation.columns))

    def with_origins(self, operation: kinds.Union, context: RuntimeContext) -> Operator:
        """Return one of rows that have origins as a column."""
        with_column = structs.replace(operation, columns=(*operation.columns, ORIGIN))
        return OriginUnion(self.instantiate(with_column, context))

    def flow(self, operation: kinds.Union, inputs: InputFlows) -> RowFlow:
        """Return the rows of both sides, with at most as many copies of a tuple as a query may read its stream.

        Conditions joined by OR unite the rows that satisfy the first with those that satisfy only the second, so many
        unions in a row have far fewer rows than the sum of their sides.
        """
        del operation
        left, right = inputs.both
        most_read = max((left, right), key=lambda each: each.read_once)
        both = left.per_tuple + right.per_tuple
        share = min(1.0, MOST_READINGS * most_read.read_once / both) if both else 1.0
        return dataclasses.replace(
            most_read,
            per_tuple=both * share,
            at_once=(left.at_once + right.at_once) * share,
            per_second=(left.per_second + right.per_second) * share,
            lasting_us=longest(left, right),
            valid=(left.valid + right.valid) * share,
            per_key=(left.per_key + right.per_key) * share,
            made_per_second=0.0,
            because=larger(left, right).because,
        )


_AT_INSTANT, _LEFT, _RIGHT = "fjord_at", "fjord_left", "fjord_right"


class Multiplicities(Operator):
    """Computes a function of two multiplicities.

    Parameters
    ----------
    columns
        No rows, with the columns of the left input; those of the right one get their names, by position. NULL equals
        NULL.
    count
        The answer's multiplicity, given those of both sides.
    """

    input_count = 2

    def __init__(self, columns: pl.DataFrame, count: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> None:
        self._names = columns.columns
        self._values = [name for name in columns.columns if name not in (START, END)]
        self._count = count
        # A row is two steps: up at its start, down at its end. Steps that have been answered become one base step.
        self._steps = columns.clear().select(
            *self._values,
            pl.col(START).alias(_AT_INSTANT),
            pl.lit(0, pl.Int64).alias(_LEFT),
            pl.lit(0, pl.Int64).alias(_RIGHT),
        )
        self._watermarks_us = [ALWAYS, ALWAYS]
        self._output = OrderedOutput(columns)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Take rows of one input and emit the spans that have ended for both."""
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        self._add(port, batch.rows)
        return self._emit(min(self._watermarks_us))

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all multiplicities step down to zero at the frontier."""
        for port, rows in enumerate(inputs):
            self._add(port, rows)
        known = self._steps.filter(pl.col(_AT_INSTANT) < frontier_us)
        down = known.with_columns(pl.lit(frontier_us, pl.Int64).alias(_AT_INSTANT), -pl.col(_LEFT, _RIGHT))
        by = [*self._values, _AT_INSTANT]
        self._steps = pl.concat([known, down.group_by(by, maintain_order=True).agg(pl.col(_LEFT, _RIGHT).sum())])
        return self._emit(frontier_us)

    def _add(self, port: int, rows: pl.DataFrame) -> None:
        if not rows.height:
            return
        rows = rows.rename(dict(zip(rows.columns, self._names, strict=True)))

        def step(at: str, change: int) -> pl.DataFrame:
            left, right = (change, 0) if port == 0 else (0, change)
            return rows.select(
                *self._values,
                pl.col(at).alias(_AT_INSTANT),
                pl.lit(left, pl.Int64).alias(_LEFT),
                pl.lit(right, pl.Int64).alias(_RIGHT),
            )

        both = pl.concat([self._steps, step(START, 1), step(END, -1)])
        self._steps = both.group_by([*self._values, _AT_INSTANT], maintain_order=True).agg(pl.col(_LEFT, _RIGHT).sum())

    def _emit(self, watermark_us: int) -> Batch:
        ordered = self._steps.sort(_AT_INSTANT, maintain_order=True)
        left, right, until = pl.col(_LEFT).cum_sum(), pl.col(_RIGHT).cum_sum(), pl.col(_AT_INSTANT).shift(-1)
        if self._values:
            left, right, until = (each.over(self._values) for each in (left, right, until))
        spans = ordered.with_columns(left.alias(_LEFT), right.alias(_RIGHT), until.alias(END))
        ended = spans.filter(pl.col(END) <= watermark_us)
        answered = (
            ended.with_columns(self._count(pl.col(_LEFT), pl.col(_RIGHT)).alias("fjord_count"))
            .filter(pl.col("fjord_count") > 0)
            .with_columns(pl.col(_AT_INSTANT).repeat_by("fjord_count").alias(START))
            .explode(START)
            .select(self._names)
        )
        # Of each tuple the last step up to the watermark stays, as the base of later ones.
        rest = spans.filter(pl.col(END).is_null() | (pl.col(END) > watermark_us))
        begins = rest.filter((pl.col(_AT_INSTANT) <= watermark_us) & ((pl.col(_LEFT) != 0) | (pl.col(_RIGHT) != 0)))
        later = ordered.filter(pl.col(_AT_INSTANT) > watermark_us)
        self._steps = pl.concat([begins.select(self._steps.columns), later])
        # Only where a tuple has been answered may its next span begin before the watermark.
        answering = begins.filter(self._count(pl.col(_LEFT), pl.col(_RIGHT)) > 0)
        reached = watermark_us
        if answering.height and watermark_us < NEVER:
            reached = min(watermark_us, int(answering.select(pl.col(_AT_INSTANT).min()).item()))
        # A span that began earlier may still last: spans that have ended wait for it, so that rows leave in start
        # order.
        self._output.add(answered)
        return self._output.release(reached)

    def save(self) -> State:
        """Return all steps, the held rows, and the positions of the inputs."""
        left_us, right_us = self._watermarks_us
        return {**self._output.save(), "steps": self._steps, "left_us": left_us, "right_us": right_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._output.restore(state)
        self._steps = table_of(state, "steps")
        self._watermarks_us = [number_of(state, "left_us"), number_of(state, "right_us")]


def difference(columns: pl.DataFrame) -> Multiplicities:
    """Return the operator of the bag difference: max(left - right, 0)."""
    return Multiplicities(columns, lambda left, right: (left - right).clip(lower_bound=0))


def intersection(columns: pl.DataFrame) -> Multiplicities:
    """Return the operator of the bag intersection: min(left, right)."""
    return Multiplicities(columns, pl.min_horizontal)


_K = TypeVar("_K", bound=kinds.Difference | kinds.Intersection)


class _RunningMultiplicities(Alone[_K]):
    """What both have in common."""

    def with_origins(self, operation: _K, context: RuntimeContext) -> Operator:
        """Return one whose rows begin where an equal one does, on either side."""
        return BoundedMultiplicities(self.instantiate(operation, context), types_of(operation.columns))

    def kept(self, operation: _K, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the rows of both sides that are valid."""
        return StateRows(alive_below(node, estimate), operation.columns)


@final
class RunningDifference(_RunningMultiplicities[kinds.Difference]):
    """The difference of two inputs."""

    def operator(self, operation: kinds.Difference) -> Operator:
        """Return the operator."""
        return difference(empty_rows(operation.columns))

    def flow(self, operation: kinds.Difference, inputs: InputFlows) -> RowFlow:
        """Return the rows of the left, cut where those of the right begin and end."""
        del operation
        left, right = inputs.both
        return dataclasses.replace(of_both(left, right), at_once=left.at_once, lasting_us=left.lasting_us)


@final
class RunningIntersection(_RunningMultiplicities[kinds.Intersection]):
    """The intersection of two inputs."""

    def operator(self, operation: kinds.Intersection) -> Operator:
        """Return the operator."""
        return intersection(empty_rows(operation.columns))

    def flow(self, operation: kinds.Intersection, inputs: InputFlows) -> RowFlow:
        """Return rows that are valid as long as both sides have them."""
        del operation
        left, right = inputs.both
        return dataclasses.replace(of_both(left, right), lasting_us=shortest(left, right))


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
