"""Joins: pairs that are valid together, and tuples with or without a partner (papers/pipes_algebra.md section 5.5).

**Join: pairs of tuples that are valid together (papers/pipes_algebra.md sections 3 and 5.5).**

    left    |------)
    right       |--------)
    answer      |--)           the intersection of the two intervals

A symmetric hash join: each input is kept until the other has passed its rows' ends. Every pair is found once, when the
later of the two rows comes.

**Semi-join and anti-join: left tuples at the instants at which some, or no, right tuple matches.**

papers/pipes_algebra.md section 3, with native existence: a left tuple keeps its multiplicity however many match.

    left    |--------------)
    right     |--)   |---)  |...
    semi      |--)   |---)
    anti    |-)  |---)   |-)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import polars as pl
from msgspec import structs

from cluster.expressions.conditions import all_of, equal_sides
from cluster.expressions.nodes import Chain, Column, Expression, bare
from cluster.expressions.walks import columns_read
from cluster.fjord.batch import ALWAYS, END, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, TwoSided, number_of, table_of
from cluster.fjord.operators.origins import MADE_OF_COLUMN, RIGHT_ORIGIN_COLUMN, OriginJoin
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.row_flow import MOST, RowFlow, of_both, paired, shortest
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate, alive_below
from cluster.fjord.scalars import Program, compile_scalar, program_of
from cluster.fjord.state_rows import StateRows
from cluster.operators.columns import ORIGIN, QUERY_GROUP, Scalar
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode
from protocols.wire.streams import FieldType


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """A predicate in two parts.

    Parameters
    ----------
    left_keys, right_keys
        Columns that must be equal, pair by pair (NULL equals nothing).
    residual
        The rest of the predicate; None for nothing.
    left_computed, right_computed
        Those of the keys that are no columns of an input but computed from some.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    residual: pl.Expr | None
    left_computed: tuple[ComputedKey, ...] = ()
    right_computed: tuple[ComputedKey, ...] = ()


@dataclass(frozen=True, slots=True)
class ComputedKey:
    """An expression over the columns of one side that must equal one over those of the other."""

    name: str
    program: Program

    def of(self, rows: pl.DataFrame) -> pl.Series:
        """Return its value for each row."""
        found = self.program.run([rows[name] for name in self.program.columns]).alias(self.name)
        return found if len(found) == rows.height else found.new_from_index(0, rows.height)


def with_keys(rows: pl.DataFrame, computed: Sequence[ComputedKey]) -> pl.DataFrame:
    """Return rows with their computed keys behind all other columns."""
    if not computed:
        return rows
    return rows.hstack([key.of(rows) for key in computed])


def join_condition(predicate: Scalar | None, right: Collection[str], *, right_computes: bool = True) -> JoinCondition:
    """Split a predicate.

    Parameters
    ----------
    predicate
        Over the columns of both sides.
    right
        The columns of the right side; all others are of the left.
    right_computes
        False if keys of the right must be columns, because an index on them exists.
    """
    parts = _parts_of(predicate)
    equal = {part: pair for part in parts if (pair := _equality(part, right)) is not None}
    usable = {part: pair for part, pair in equal.items() if right_computes or isinstance(pair[1], Column)}
    plain = {part: pair for part, pair in usable.items() if all(isinstance(side, Column) for side in pair)}
    if any(one != Column(QUERY_GROUP.name) for one, _ in plain.values()):
        usable = plain  # a computed key costs its computation, and finds little that columns have not found
    together = all_of(part for part in parts if part not in usable)
    residual = None if together is None else compile_scalar(Scalar(together, FieldType.BOOLEAN))
    pairs = list(dict.fromkeys(usable.values()))  # a condition that is written twice counts once
    left_keys, left_computed = _keys_of([one for one, _ in pairs], LEFT_KEY)
    right_keys, right_computed = _keys_of([other for _, other in pairs], RIGHT_KEY)
    return JoinCondition(left_keys, right_keys, residual, left_computed, right_computed)


LEFT_KEY, RIGHT_KEY = "fjord_left_key_", "fjord_right_key_"


def _keys_of(sides: Sequence[Expression], prefix: str) -> tuple[tuple[str, ...], tuple[ComputedKey, ...]]:
    keys: list[str] = []
    computed: list[ComputedKey] = []
    for number, side in enumerate(sides):
        if isinstance(side, Column):
            keys.append(side.name)
        else:
            keys.append(f"{prefix}{number}")
            computed.append(ComputedKey(keys[-1], program_of(side)))
    return tuple(keys), tuple(computed)


def equal_columns(predicate: Scalar | None, right: Collection[str]) -> list[frozenset[str]]:
    """Return the columns read by each equality of left and right by which :func:`join_condition` finds pairs."""
    pairs = [pair for part in _parts_of(predicate) if (pair := _equality(part, right)) is not None]
    return [columns_read(one) | columns_read(other) for one, other in pairs]


def _parts_of(predicate: Scalar | None) -> list[Expression]:
    if predicate is None:
        return []
    whole = predicate.expression
    return [bare(part) for part in (whole.parts if isinstance(whole, Chain) and whole.word == "AND" else (whole,))]


def _equality(part: Expression, right: Collection[str]) -> tuple[Expression, Expression] | None:
    """Return an expression of the left and one of the right that must be equal; None if a condition is none such."""
    sides = equal_sides(part)
    if sides is None:
        return None
    one, other = map(bare, sides)
    on_right = [{name in right for name in columns_read(each)} for each in (one, other)]
    match on_right:
        case [each, another] if each == {False} and another == {True}:
            return one, other
        case [each, another] if each == {True} and another == {False}:
            return other, one
        case _:
            return None


def matching_pairs(left: pl.DataFrame, right: pl.DataFrame, condition: JoinCondition) -> pl.LazyFrame:
    """Return all pairs of rows that satisfy a condition; columns of both sides have different names.

    Lazy, so that pairs that the caller removes are never materialised.
    """
    if condition.left_keys:
        left, right = with_keys(left, condition.left_computed), with_keys(right, condition.right_computed)
        keys = [
            _comparable(one, left.schema[one], other, right.schema[other])
            for one, other in zip(condition.left_keys, condition.right_keys, strict=True)
        ]
        pairs = left.lazy().join(
            right.lazy(),
            left_on=[one for one, _ in keys],
            right_on=[other for _, other in keys],
            coalesce=False,
            maintain_order="left_right",
        )
        computed = [key.name for key in (*condition.left_computed, *condition.right_computed)]
        pairs = pairs.drop(computed) if computed else pairs
    else:
        pairs = left.lazy().join(right.lazy(), how="cross", maintain_order="left_right")
    return pairs if condition.residual is None else pairs.filter(condition.residual)


def _comparable(one: str, left: pl.DataType, other: str, right: pl.DataType) -> tuple[pl.Expr, pl.Expr]:
    """Return two columns in types with the same hash: an integer may equal a real."""
    if left == right:
        return pl.col(one), pl.col(other)
    if pl.Null in {left, right}:  # such as NULLIF(1, 1): equals nothing
        return pl.lit(None, pl.Boolean), pl.lit(None, pl.Boolean)
    return pl.col(one).cast(pl.Float64), pl.col(other).cast(pl.Float64)


def finds_by_key(predicate: Scalar | None, right: Iterable[str]) -> bool:
    """Return whether a hash table finds partners; otherwise all pairs of each query group are tried.

    Parameters
    ----------
    predicate
        Of the join.
    right
        Columns of its right input.
    """
    return any(QUERY_GROUP.name not in columns for columns in equal_columns(predicate, list(right)))


_OTHER_START, _OTHER_END = "fjord_other_start", "fjord_other_end"


class Join(TwoSided):
    """Keeps rows that may still find a partner.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs; their payloads have different names.
    predicate
        The condition on pairs; None for all.
    """

    def __init__(self, left: pl.DataFrame, right: pl.DataFrame, predicate: Scalar | None) -> None:
        self._condition = join_condition(predicate, right.columns)
        columns = left.clear().join(right.clear().drop(START, END), how="cross")
        self._names = columns.columns
        super().__init__(left, right, columns)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Pair new rows with the kept rows of the other side."""
        other = 1 - port
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        if batch.rows.height:
            sides = [batch.rows, self._kept[other]] if port == 0 else [self._kept[other], batch.rows]
            self._pair(*sides)
            alive = batch.rows.filter(pl.col(END) > self._watermarks_us[other])
            self._kept[port] = pl.concat([self._kept[port], alive])
        self._kept[other] = self._kept[other].filter(pl.col(END) > self._watermarks_us[port])
        return self._output.release(min(self._watermarks_us))

    def _pair(self, left: pl.DataFrame, right: pl.DataFrame) -> None:
        if not left.height or not right.height:
            return
        renamed = right.rename({START: _OTHER_START, END: _OTHER_END})
        together = (pl.col(START) < pl.col(_OTHER_END)) & (pl.col(_OTHER_START) < pl.col(END))
        interval = [
            pl.max_horizontal(START, _OTHER_START).alias(START),
            pl.min_horizontal(END, _OTHER_END).alias(END),
        ]
        pairs = matching_pairs(left, renamed, self._condition).filter(together).with_columns(interval)
        self._output.add(pairs.select(self._names).collect())


@final
class RunningJoin(Alone[kinds.Join]):
    """A join of rows that are valid together."""

    def operator(self, operation: kinds.Join) -> Operator:
        """Return the operator."""
        return Join(empty_rows(operation.left), empty_rows(operation.right), operation.predicate)

    def with_origins(self, operation: kinds.Join, context: RuntimeContext) -> Operator:
        """Return one of rows that have origins as a column."""
        sides = {"left": (*operation.left, ORIGIN), "right": (*operation.right, RIGHT_ORIGIN_COLUMN)}
        return OriginJoin(self.instantiate(structs.replace(operation, **sides), context))

    def flow(self, operation: kinds.Join, inputs: InputFlows) -> RowFlow:
        """Return the pairs of a join: of two joined rows, one begins while the other is valid."""
        left, right = inputs.both
        both = of_both(left, right)
        by_key = finds_by_key(operation.predicate, (column.name for column in operation.right))
        of_left, of_right = (
            max(each.at_once, each.per_key if by_key else each.valid) for each in (left, right)
        )  # how many partners each has to offer
        per_tuple = left.per_tuple * right.at_once + right.per_tuple * left.at_once
        per_second = paired(left, of_left, right, of_right)
        lasting_us = shortest(left, right)
        ended = MOST if lasting_us is None else per_second * lasting_us / 1e6
        of_a_key = (left.per_key * of_right, right.per_key * of_left)
        valid = (left.valid * of_right, right.valid * of_left)
        return RowFlow(
            per_tuple,
            left.at_once * right.at_once,
            per_second,
            lasting_us,
            min(sum(valid) if by_key else min(valid), ended),
            min(of_a_key) if by_key else max(of_a_key),
            max(per_second - both.per_second, 0.0),
            both.because,
            per_tuple,
        )

    def kept(self, operation: kinds.Join, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the rows of both sides that are valid."""
        return StateRows(alive_below(node, estimate), operation.left)


_ROW, _BEGIN, _UNTIL, _REACHED, _FROM, _STRETCH = (
    "fjord_row", "fjord_begin", "fjord_until", "fjord_reached", "fjord_from", "fjord_stretch",
)  # fmt: skip


class SemiJoin(Operator):
    """Keeps a left row until both inputs have passed its end; by then all possible matches have come.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs; their payloads have different names.
    predicate
        The condition on matches; None for any.
    anti
        True to answer at the instants without a match.
    """

    input_count = 2

    def __init__(self, left: pl.DataFrame, right: pl.DataFrame, predicate: Scalar | None, *, anti: bool) -> None:
        self._condition = join_condition(predicate, right.columns)
        self._anti = anti
        self._left = left.clear()
        self._right = right.clear()
        self._watermarks_us = [ALWAYS, ALWAYS]
        self._output = OrderedOutput(left)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Process rows of one input; answer the left rows that have ended."""
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        if batch.rows.height:
            if port == 0:
                self._left = pl.concat([self._left, batch.rows])
            else:
                self._right = pl.concat([self._right, batch.rows])
        reached = min(self._watermarks_us)
        ended = self._left.filter(pl.col(END) <= reached)
        if ended.height:
            self._left = self._left.filter(pl.col(END) > reached)
            self._output.add(self._answer(ended))
        earliest = reached
        if self._left.height:
            earliest = min(reached, int(self._left.select(pl.col(START).min()).item()))
        self._right = self._right.filter(pl.col(END) > min(earliest, self._watermarks_us[0]))
        return self._output.release(earliest)

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: left rows are cut at the frontier, so that all have ended."""
        left, right = inputs
        begun = pl.concat([self._left, left]).filter(pl.col(START) < frontier_us)
        self._right = pl.concat([self._right, right])
        if begun.height:
            self._output.add(self._answer(begun.with_columns(pl.min_horizontal(END, pl.lit(frontier_us)).alias(END))))
        return self._output.release(frontier_us)

    def _answer(self, rows: pl.DataFrame) -> pl.DataFrame:
        numbered = rows.with_row_index(_ROW)
        right = self._right.rename({START: _BEGIN, END: _UNTIL})
        matches = (
            matching_pairs(numbered, right, self._condition)
            .select(_ROW, pl.max_horizontal(START, _BEGIN).alias(_BEGIN), pl.min_horizontal(END, _UNTIL).alias(_UNTIL))
            .filter(pl.col(_BEGIN) < pl.col(_UNTIL))
            .sort(_ROW, _BEGIN)
            .collect()
        )
        # Up to where earlier matches cover the row.
        before = pl.col(_UNTIL).cum_max().shift(1).over(_ROW)
        covered = matches.with_columns(before.alias(_REACHED))
        if not self._anti:
            # Stretches without a gap, whichever matches they consist of: these come in no order.
            gap = (pl.col(_BEGIN) > pl.col(_REACHED)).fill_null(value=True)
            stretches = covered.group_by(gap.cum_sum().alias(_STRETCH), maintain_order=True)
            pieces = stretches.agg(pl.col(_ROW, _BEGIN).first(), pl.col(_UNTIL).max())
        else:
            bounds = numbered.select(_ROW, START, END)
            inner = covered.join(bounds, on=_ROW, how="left").select(
                _ROW, pl.col(_REACHED).fill_null(pl.col(START)).alias(_FROM), pl.col(_BEGIN).alias(_UNTIL)
            )
            last = covered.group_by(_ROW).agg(pl.col(_UNTIL).max().alias(_FROM))
            tail = bounds.join(last, on=_ROW, how="left").select(
                _ROW, pl.col(_FROM).fill_null(pl.col(START)), pl.col(END).alias(_UNTIL)
            )
            pieces = pl.concat([inner, tail]).rename({_FROM: _BEGIN})
        pieces = pieces.filter(pl.col(_BEGIN) < pl.col(_UNTIL)).select(_ROW, _BEGIN, _UNTIL)
        return (
            pieces.join(numbered, on=_ROW, how="left", maintain_order="left")
            .with_columns(pl.col(_BEGIN).alias(START), pl.col(_UNTIL).alias(END))
            .select(rows.columns)
        )

    def save(self) -> State:
        """Return the kept and held rows, and the positions of the inputs."""
        left_us, right_us = self._watermarks_us
        kept = {"left": self._left, "right": self._right}
        return {**self._output.save(), **kept, "left_us": left_us, "right_us": right_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._output.restore(state)
        self._left, self._right = table_of(state, "left"), table_of(state, "right")
        self._watermarks_us = [number_of(state, "left_us"), number_of(state, "right_us")]


@final
class RunningSemiJoin(Alone[kinds.SemiJoin]):
    """A semi-join or anti-join."""

    def operator(self, operation: kinds.SemiJoin) -> Operator:
        """Return the operator."""
        sides = empty_rows(operation.left), empty_rows(operation.right)
        return SemiJoin(*sides, operation.predicate, anti=operation.anti)

    def with_origins(self, operation: kinds.SemiJoin, context: RuntimeContext) -> Operator:
        """Return one that puts together what goes on of a row of the left."""
        of_rows = structs.replace(operation, left=(*operation.left, MADE_OF_COLUMN))
        return ChainedPieces(self.instantiate(of_rows, context), made_of=True)

    def flow(self, operation: kinds.SemiJoin, inputs: InputFlows) -> RowFlow:
        """Return the rows of the left, cut where those of the right begin and end; made are all pairs tried."""
        left, right = inputs.both
        both = of_both(left, right)
        by_key = finds_by_key(operation.predicate, (column.name for column in operation.right))
        tried = 0.0 if by_key else paired(left, left.valid, right, right.valid)
        made = max(tried - both.per_second, 0.0)
        return dataclasses.replace(both, at_once=left.at_once, lasting_us=left.lasting_us, made_per_second=made)

    def kept(self, operation: kinds.SemiJoin, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the rows of both sides that are valid."""
        return StateRows(alive_below(node, estimate), operation.left)
