"""Joins by stamps: pairs whose stamps are at most so far apart, or the latest that is not after the other.

**ASOF joins: each tuple of the left with the latest tuple of the right that is not after it.**

    right    b1      b2           b3
    left         a1     a2  a3        a4
    answer       a1b1   a2b2 a3b2     a4b3

A left tuple is answered once all right tuples up to its stamp are known. Of those, each key's latest is kept, and what
is later than the left tuples that are still to come.

**Interval joins: pairs of tuples whose stamps are at most so far apart.**

    left     a1       a2                       b from 1 before a to 4 after it
    right       b1  b2       b3
    answer      a1b1  a2b2   a2b3              each at the later stamp

A symmetric hash join, as of windows (papers/pipes_algebra.md section 5.5), but each pair is answered once: a tuple is
kept until the other input has passed the last instant at which a partner might come.
"""

from __future__ import annotations

import dataclasses
from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator
from cluster.fjord.operators.join import JoinCondition, matching_pairs
from cluster.fjord.operators.ordered_output import TwoSided, rows_within
from cluster.fjord.row_flow import RowFlow, larger, lasting, of_both
from cluster.fjord.row_order import comparable
from cluster.fjord.running_kind import Alone, InputFlows, PassesNoOrigins, StateEstimate
from cluster.fjord.scalars import compile_scalar
from cluster.fjord.state_rows import StateRows
from cluster.operators import ZipKind
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import QUERY_GROUP, RIGHT, Scalar
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

_AT, _SIDE, _PLACE, _FOUND = "fjord_at", "fjord_side", "fjord_place", "fjord_found"


class AsofJoin(TwoSided):
    """Keeps left tuples that wait for the right, and of the right the latest of each key and all later ones.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs; their payloads have different names. Rows are valid at one instant.
    keys
        Columns of left and right that must be equal, of one type.
    low_us, high_us
        Bounds of the right stamp minus the left one, not above zero; without a lower one, a key is kept for ever.
    kind
        Whether left tuples without a partner are answered.
    """

    def __init__(
        self,
        left: pl.DataFrame,
        right: pl.DataFrame,
        *,
        keys: tuple[tuple[str, str], ...],
        low_us: int | None,
        high_us: int,
        kind: ZipKind,
    ) -> None:
        self._keys = [list(names) for names in zip(*keys, strict=True)] if keys else [[], []]
        # A column may be part of several keys.
        self._compared = [f"fjord_key_{place}" for place in range(len(keys))]
        self._low_us, self._high_us = low_us, high_us
        self._keeps_left = kind != "inner"
        super().__init__(left, right, left.clear().join(right.clear().drop(START, END), how="cross"))

    def transition(self, port: int, batch: Batch) -> Batch:
        """Process rows of one input; answer the left tuples whose partner is known now."""
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        if batch.rows.height:
            rows = batch.rows if port == 0 else batch.rows.filter(~self._without_key(1))
            self._kept[port] = pl.concat([self._kept[port], rows])
        left_us, right_us = self._watermarks_us
        known = pl.col(START) + self._high_us < right_us
        ready = self._kept[0].filter(known)
        if ready.height:
            self._kept[0] = self._kept[0].filter(~known)
            self._answer(ready)
        waiting = self._kept[0]
        self._forget(min(left_us, waiting.select(pl.col(START).min()).item()) if waiting.height else left_us)
        return self._output.release(min(left_us, right_us))

    def _without_key(self, side: int) -> pl.Expr:
        """Return whether a row has no partner because a key is NULL."""
        return pl.any_horizontal(*(pl.col(key).is_null() for key in self._keys[side]), pl.lit(value=False))

    def _compared_keys(self, side: int) -> list[pl.Expr]:
        """Return the keys of a side under the same names; zeros of both signs are equal."""
        return [
            comparable(self._kept[side], own).alias(name)
            for own, name in zip(self._keys[side], self._compared, strict=True)
        ]

    def _in_order(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of the right with the latest last; of equal stamps, the one with the greatest values."""
        values = [name for name in rows.columns if name not in (START, END)]
        return rows.sort(START, *values, nulls_last=False)

    def _answer(self, ready: pl.DataFrame) -> None:
        """Answer left tuples."""
        right = self._kept[1] = self._in_order(self._kept[1])
        place = pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE)
        sides = [
            right.select(*self._compared_keys(1), pl.col(START).alias(_AT), pl.lit(0, pl.Int8).alias(_SIDE), place),
            ready.select(
                *self._compared_keys(0),
                (pl.col(START) + self._high_us).alias(_AT),
                pl.lit(1, pl.Int8).alias(_SIDE),
                place,
            ),
        ]
        latest = pl.when(pl.col(_SIDE) == 0).then(_PLACE).forward_fill()
        found = (
            pl.concat(sides)
            .sort(_AT, _SIDE, maintain_order=True)
            .with_columns((latest.over(self._compared) if self._compared else latest).alias(_FOUND))
            .filter(pl.col(_SIDE) == 1)
            .sort(_PLACE)[_FOUND]
        )
        partners = right.drop(END).rename({START: _AT})[found.fill_null(0)] if right.height else None
        alone = found.is_null()
        if partners is None:
            pairs = ready.clear().join(right.clear().drop(START, END), how="cross")
        else:
            both = ready.hstack(partners)
            too_old = False if self._low_us is None else both[_AT] < both[START] + self._low_us
            alone |= ready.select(self._without_key(0).alias(_FOUND))[_FOUND] | too_old
            pairs = both.filter(~alone)
        self._output.add(pairs)
        if self._keeps_left:
            schema = self._output.schema.items()
            missing = [pl.lit(None, kind).alias(name) for name, kind in schema if name not in ready.columns]
            self._output.add(ready.filter(alone).with_columns(missing))

    def _forget(self, from_us: int) -> None:
        """Drop the tuples of the right that are no partner of any left tuple from an instant on."""
        right = self._kept[1]
        if not right.height:
            return
        if from_us >= NEVER:
            self._kept[1] = right.clear()
            return
        before = pl.col(START) <= from_us + self._high_us
        old, new = right.filter(before), right.filter(~before)
        if self._low_us is not None:
            old = old.filter(pl.col(START) >= from_us + self._low_us)
        if old.height > 1:
            keyed = self._in_order(old).with_columns(self._compared_keys(1))
            last = keyed.unique(self._compared, keep="last", maintain_order=True) if self._compared else keyed.tail(1)
            old = last.select(right.columns)
        self._kept[1] = pl.concat([old, new])


_OTHER_START, _OTHER_END = "fjord_other_start", "fjord_other_end"
_NUMBER, _OTHER_NUMBER, _MET = "fjord_number", "fjord_other_number", "fjord_met"


class StampJoin(TwoSided):
    """Keeps tuples that may still find a partner.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs; their payloads have different names. Rows are valid at one instant.
    keys
        Columns of left and right that must be equal.
    predicate
        Another condition on pairs; None for none.
    bounds_us
        Least and greatest value of the right stamp minus the left one.
    kind
        The sides whose tuples without a partner are answered.
    """

    def __init__(
        self,
        left: pl.DataFrame,
        right: pl.DataFrame,
        *,
        keys: tuple[tuple[str, str], ...],
        predicate: Scalar | None,
        bounds_us: tuple[int, int],
        kind: ZipKind,
    ) -> None:
        rest = None if predicate is None else compile_scalar(predicate)
        self._condition = JoinCondition(tuple(one for one, _ in keys), tuple(other for _, other in keys), rest)
        self._low_us, self._high_us = bounds_us
        self._answered = (kind in ("left", "full"), kind == "full")
        columns = left.clear().join(right.clear().drop(START, END), how="cross")
        super().__init__(self._noting(0, left.clear()), self._noting(1, right.clear()), columns)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Pair new rows with the kept rows of the other side; answer those that cannot find a partner any more."""
        other = 1 - port
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        if batch.rows.height:
            new = self._noting(port, batch.rows)
            sides = [new, self._kept[1]] if port == 0 else [self._kept[0], new]
            sides = self._pair(*sides)
            self._kept[other] = sides[other]
            self._kept[port] = pl.concat([self._kept[port], sides[port].select(self._kept[port].columns)])
        for side in (0, 1):
            self._forget(side)
        return self._output.release(min(self._watermarks_us))

    def _noting(self, side: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Return new rows of a side with the note that they have met no partner, if that is to be answered."""
        return rows.with_columns(pl.lit(value=False).alias(_MET)) if self._answered[side] else rows

    def _pair(self, left: pl.DataFrame, right: pl.DataFrame) -> list[pl.DataFrame]:
        """Answer the pairs of some rows; return these rows, with the notes of those that have met a partner."""
        if not left.height or not right.height:
            return [left, right]
        lefts, rights = left.with_row_index(_NUMBER), right.with_row_index(_OTHER_NUMBER)
        pairs = matching_pairs(
            lefts.drop(_MET, strict=False),
            rights.drop(_MET, strict=False).rename({START: _OTHER_START, END: _OTHER_END}),
            self._condition,
        )
        apart = pl.col(_OTHER_START) - pl.col(START)
        later = pl.max_horizontal(START, _OTHER_START)
        found = pairs.filter(apart.is_between(self._low_us, self._high_us)).with_columns(
            later.alias(START), (later + 1).alias(END)
        )
        answers = found.collect()
        self._output.add(answers)
        numbers = (_NUMBER, _OTHER_NUMBER)
        return [
            side.with_columns(pl.col(_MET) | pl.int_range(pl.len()).is_in(answers[number].unique().implode()))
            if answered and answers.height
            else side
            for side, answered, number in zip((left, right), self._answered, numbers, strict=True)
        ]

    def _forget(self, side: int) -> None:
        """Drop the rows of a side for which no partner can come; answer those that have met none."""
        kept = self._kept[side]
        if not kept.height:
            return
        waits_us = -self._low_us if side else self._high_us
        gone = pl.col(START) + waits_us < self._watermarks_us[1 - side]
        if self._answered[side]:
            at = pl.col(START) + max(waits_us, 0)
            alone = kept.filter(gone & ~pl.col(_MET)).with_columns(at.alias(START), (at + 1).alias(END))
            schema = self._output.schema.items()
            missing = [pl.lit(None, kind).alias(name) for name, kind in schema if name not in alone.columns]
            self._output.add(alone.with_columns(missing))
        self._kept[side] = kept.filter(~gone)


@final
class RunningStampJoin(PassesNoOrigins, Alone[kinds.StampJoin]):
    """A join of stamps: of all within bounds, or of the latest."""

    def operator(self, operation: kinds.StampJoin) -> Operator:
        """Return the operator.

        Raises
        ------
        PlanError
            If a join of all within bounds lacks one.
        """
        sides = empty_rows(operation.left), empty_rows(operation.right)
        keys, low_us, high_us, kind = operation.keys, operation.low_us, operation.high_us, operation.kind
        if operation.latest:
            return AsofJoin(*sides, keys=keys, low_us=low_us, high_us=high_us, kind=kind)
        if low_us is None:
            raise PlanError("an interval join needs both bounds")
        return StampJoin(*sides, keys=keys, predicate=operation.predicate, bounds_us=(low_us, high_us), kind=kind)

    def flow(self, operation: kinds.StampJoin, inputs: InputFlows) -> RowFlow:
        """Return a row for each of the left, or the pairs within the bounds; all valid at one instant."""
        left, right = inputs.both
        if operation.latest:
            return dataclasses.replace(lasting(left, 1), because=larger(left, right).because)
        return _near(operation, left, right)

    def kept(self, operation: kinds.StampJoin, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the tuples that may still find a partner; of the latest, those of the right alone."""
        columns, low_us = (*operation.left, *operation.right), operation.low_us
        if not operation.latest:
            return StateRows(rows_within(node, estimate, low_us or 0, operation.high_us), columns)
        # Of the right the latest of each key, as long as it may be a partner.
        right = estimate.flow(node.inputs[1]).per_second / 1e6
        keyed = set(operation.keys) - {(QUERY_GROUP.name, RIGHT + QUERY_GROUP.name)}
        latest = float(KEYS_ASSUMED if keyed else 1)
        return StateRows(latest if low_us is None else min(latest, right * (1 - low_us)), columns)


def _near(join: kinds.StampJoin, left: RowFlow, right: RowFlow) -> RowFlow:
    """Return the pairs of an interval join: those within the bounds, of equal keys, and one for each tuple at least."""
    both, pairs = of_both(left, right), 2 * left.per_tuple * right.per_tuple
    alone = both.per_second if join.kind != "inner" else 0.0
    near = (join.high_us - (join.low_us or 0) + 1) / 1e6
    tried = left.per_second * right.per_second * near
    if any(one != QUERY_GROUP.name for one, _ in join.keys):
        tried = min(tried / KEYS_ASSUMED, both.per_second)
    made = max(tried - both.per_second, 0.0)
    found = RowFlow(
        pairs,
        1,
        max(both.per_second, tried) + alone,
        1,
        both.valid,
        both.per_key,
        because=both.because,
        read_once=max(pairs, both.read_once),
    )
    return dataclasses.replace(lasting(found, 1), made_per_second=made)
