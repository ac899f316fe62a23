"""Zip: tuples of two streams paired one to one in the order of their stamps (papers/fjords.md section 2).

**The pairing of a zipper join: arrays of stamps in, pairs of places out (:class:`Zip` in `zipping` uses it).**

    left      u1    u2              upstream: u1 is overtaken by u2 and stays unmatched
    right              d2     d3    downstream, from 0 to 3 later: d2 takes u2, d3 is unmatched

Tuples further apart than the bounds are wide can never be paired, so sorted stamps fall into blocks. Nearly all blocks
hold a tuple of each side, or of one side only, or one instant, and are answered all at once; the others one by one.

    left    a1      a2      a3
    right    b1             b3  b4       within 2
    answer   a1b1     a2    a3b3         and, in a full zip, b4 two later; a2 is unmatched at the end of its window

The tuples of an input before its watermark are complete. A tuple is kept until it has been paired, or until
both inputs have passed the last instant at which a partner might come.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.fjord.batch import END, START, Batch, empty_rows
from cluster.fjord.operator import Operator
from cluster.fjord.operators.ordered_output import TwoSided, rows_within, split_at
from cluster.fjord.row_flow import RowFlow, lasting, of_both
from cluster.fjord.row_order import comparable
from cluster.fjord.running_kind import Alone, InputFlows, PassesNoOrigins, StateEstimate
from cluster.fjord.state_rows import StateRows, with_numbers
from cluster.operators import ZipKind
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

Places = NDArray[np.int64]
Stamps = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds on the right stamp minus the left one."""

    low_us: int
    high_us: int


def zip_stamps(
    keys: Places, stamps: Stamps, sides: NDArray[np.bool_], bounds: Bounds, known_us: tuple[int, int]
) -> tuple[Places, Places, Places]:
    """Return the pairs of tuples, and those that stay unmatched.

    Parameters
    ----------
    keys
        A number for each combination of keys.
    stamps
        The stamps.
    sides
        False for left, True for right. Tuples are sorted by key and, within a key and a side, by stamp; and so that
        ``2 * stamp + low + high`` of the left and ``2 * stamp`` of the right are in order.
    bounds
        The bounds on pairs.
    known_us
        By side: the stamp before which all tuples are known.

    Returns
    -------
    tuple
        Places of the left tuples of pairs, of their partners, and of those that surely stay unmatched. The rest is
        undecided.
    """
    if not len(stamps):
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    position = 2 * stamps + np.where(sides, 0, bounds.low_us + bounds.high_us)
    begins = np.flatnonzero(
        np.concatenate(([True], (np.diff(keys) != 0) | (np.diff(position) > bounds.high_us - bounds.low_us)))
    )
    ends = np.append(begins[1:], len(stamps))
    of_right = np.add.reduceat(sides.astype(np.int64), begins)
    of_left = ends - begins - of_right
    pair = (of_left == 1) & (of_right == 1)
    one_side = (of_left == 0) | (of_right == 0)
    first = begins[pair]
    left_places = np.where(sides[first], first + 1, first)
    right_places = np.where(sides[first], first, first + 1)
    final = _final(stamps[left_places], stamps[right_places], bounds, known_us)
    lefts, rights = [left_places[final]], [right_places[final]]
    single = np.repeat(one_side, ends - begins)
    last = stamps + np.where(sides, -bounds.low_us, bounds.high_us)
    unmatched = [np.flatnonzero(single & (last < np.where(sides, known_us[0], known_us[1])))]
    for block in np.flatnonzero(~pair & ~one_side):
        found = _block(stamps, sides, range(begins[block], ends[block]), bounds, known_us)
        for places, more in zip((lefts, rights, unmatched), found, strict=True):
            places.append(np.asarray(more, np.int64))
    return np.concatenate(lefts), np.concatenate(rights), np.concatenate(unmatched)


def _final(left: Stamps, right: Stamps, bounds: Bounds, known_us: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pairs for which no nearer partner can come any more."""
    of_left = (left >= right) | (np.minimum(right, right - bounds.low_us) < known_us[0])
    of_right = (right >= left) | (np.minimum(left, left + bounds.high_us) < known_us[1])
    return of_left & of_right


def _block(
    stamps: Stamps, sides: NDArray[np.bool_], block: range, bounds: Bounds, known_us: tuple[int, int]
) -> tuple[list[int], list[int], list[int]]:
    """Pair the tuples of a block one by one."""
    places = np.arange(block.start, block.stop)
    right_ones = sides[block.start : block.stop]
    queues = (places[~right_ones].tolist(), places[right_ones].tolist())
    stamped = (stamps[queues[0]].tolist(), stamps[queues[1]].tolist())
    heads = [0, 0]
    pairs: tuple[list[int], list[int]] = ([], [])
    unmatched: list[int] = []
    low, high = bounds.low_us, bounds.high_us
    while heads[0] < len(queues[0]) and heads[1] < len(queues[1]):
        left, right = stamped[0][heads[0]], stamped[1][heads[1]]
        if not low <= right - left <= high:
            late = 0 if right - left > high else 1
            unmatched.append(queues[late][heads[late]])
            heads[late] += 1
            continue
        if left != right:
            early = 0 if left < right else 1
            nearest = min(right, right - low) if early == 0 else min(left, left + high)
            overtaking = bisect_right(stamped[early], nearest, heads[early]) - 1
            if stamped[early][overtaking] > stamped[early][heads[early]]:
                unmatched.append(queues[early][heads[early]])
                heads[early] += 1
                continue
            if known_us[early] <= nearest:
                return *pairs, unmatched  # a nearer partner may still come
        for side in (0, 1):
            pairs[side].append(queues[side][heads[side]])
            heads[side] += 1
    for side, reach in ((0, high), (1, -low)):
        rest = zip(queues[side][heads[side] :], stamped[side][heads[side] :], strict=True)
        unmatched += [place for place, stamp in rest if stamp + reach < known_us[1 - side]]
    return *pairs, unmatched


_PLACE, _SIDE, _POSITION, _KEY, _OTHER_START = (
    "fjord_place", "fjord_side", "fjord_position", "fjord_key", "fjord_other_start",
)  # fmt: skip


class Zip(TwoSided):
    """Keeps tuples that may still find a partner.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs; their payloads have different names. Rows are valid at one instant.
    keys
        Columns of left and right that must be equal, of one type.
    bounds_us
        Least and greatest value of the right stamp minus the left one.
    kind
        The sides whose unmatched tuples are answered.
    apart
        The column for the right stamp minus the left one.
    """

    def __init__(
        self,
        left: pl.DataFrame,
        right: pl.DataFrame,
        *,
        keys: tuple[tuple[str, str], ...],
        bounds_us: tuple[int, int],
        kind: ZipKind,
        apart: str,
    ) -> None:
        self._keys = [list(names) for names in zip(*keys, strict=True)] if keys else [[], []]
        # A column may be part of several keys.
        self._queued = [f"{_KEY}_{place}" for place in range(len(keys))]
        self._bounds = Bounds(*bounds_us)
        self._answered = (kind in ("left", "full"), kind == "full")
        self._apart = apart
        columns = left.clear().join(right.clear().drop(START, END), how="cross")
        super().__init__(left, right, columns.with_columns(pl.lit(None, pl.Int64).alias(apart)))

    def transition(self, port: int, batch: Batch) -> Batch:
        """Process rows of one input; answer the pairs and unmatched tuples that are certain now."""
        moved = batch.watermark_us > self._watermarks_us[port]
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        if batch.rows.height:
            self._kept[port] = pl.concat([self._kept[port], batch.rows])
        if (moved or batch.rows.height) and (self._kept[0].height or self._kept[1].height):
            self._close()
        return self._output.release(min(self._watermarks_us))

    def _close(self) -> None:
        """Answer what follows from the rows that are known to be complete."""
        known, later = [], []
        for rows, watermark_us in zip(self._kept, self._watermarks_us, strict=True):
            now, then = split_at(rows, watermark_us)
            # The order of equal stamps is that of the values, never that of arrival.
            known.append(now.sort(START, *(name for name in now.columns if name not in (START, END)), nulls_last=True))
            later.append(then)
        queues = pl.concat([self._queue(side, rows) for side, rows in enumerate(known)])
        ordered = queues.sort(*self._queued, _POSITION, _SIDE, _PLACE)
        others = (pl.col(key).ne(pl.col(key).shift()) for key in self._queued)
        changed = pl.any_horizontal(*others, pl.lit(value=False)).fill_null(value=False)
        numbered = ordered.with_columns(changed.cum_sum().cast(pl.Int64).alias(_KEY))
        places = numbered[_PLACE].to_numpy()
        left_us, right_us = self._watermarks_us
        sides = numbered[_SIDE].to_numpy() == 1
        lefts, rights, unmatched = zip_stamps(
            numbered[_KEY].to_numpy(), numbered[START].to_numpy(), sides, self._bounds, (left_us, right_us)
        )
        self._pair(known[0][places[lefts]], known[1][places[rights]])
        for side, pairs in enumerate((lefts, rights)):
            own = places[unmatched[sides[unmatched] == bool(side)]]
            gone = pl.Series([*places[pairs], *own], dtype=pl.Int64)
            keyless = self._without_key(side, known[side])
            self._answer_unmatched(side, pl.concat([known[side][own], known[side].filter(keyless)]))
            kept = known[side].with_row_index(_PLACE).filter(~pl.col(_PLACE).is_in(gone.implode()) & ~keyless)
            self._kept[side] = pl.concat([kept.drop(_PLACE), later[side]])

    def _without_key(self, side: int, rows: pl.DataFrame) -> pl.Series:
        """Return the rows without a partner because a key is NULL."""
        missing = pl.any_horizontal(*(pl.col(key).is_null() for key in self._keys[side]), pl.lit(value=False))
        return rows.select(pl.repeat(value=False, n=pl.len()) | missing).to_series()

    def _queue(self, side: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Return keys, stamps and places of one side's rows that have keys."""
        shift = 0 if side else self._bounds.low_us + self._bounds.high_us
        keys = [comparable(rows, own).alias(name) for own, name in zip(self._keys[side], self._queued, strict=True)]
        return (
            rows.with_row_index(_PLACE)
            .filter(~self._without_key(side, rows))
            .select(
                *keys,
                START,
                (2 * pl.col(START) + shift).alias(_POSITION),
                pl.lit(side, pl.Int8).alias(_SIDE),
                pl.col(_PLACE).cast(pl.Int64),
            )
        )

    def _pair(self, left: pl.DataFrame, right: pl.DataFrame) -> None:
        both = pl.concat([left, right.drop(END).rename({START: _OTHER_START})], how="horizontal")
        later = pl.max_horizontal(START, _OTHER_START)
        self._output.add(
            both.with_columns(
                (pl.col(_OTHER_START) - pl.col(START)).alias(self._apart), later.alias(START), (later + 1).alias(END)
            )
        )

    def _answer_unmatched(self, side: int, rows: pl.DataFrame) -> None:
        if not self._answered[side]:
            return
        ends_after = max(-self._bounds.low_us if side else self._bounds.high_us, 0)
        at = pl.col(START) + ends_after
        unmatched = rows.with_columns(at.alias(START), (at + 1).alias(END))
        schema = self._output.schema.items()
        missing = [pl.lit(None, kind).alias(name) for name, kind in schema if name not in rows.columns]
        self._output.add(unmatched.with_columns(missing))


@final
class RunningZip(PassesNoOrigins, Alone[kinds.Zip]):
    """A zipper join."""

    def operator(self, operation: kinds.Zip) -> Operator:
        """Return the operator."""
        return Zip(
            empty_rows(operation.left),
            empty_rows(operation.right),
            keys=operation.keys,
            bounds_us=(operation.low_us, operation.high_us),
            kind=operation.kind,
            apart=operation.apart,
        )

    def flow(self, operation: kinds.Zip, inputs: InputFlows) -> RowFlow:
        """Return a row for each of either side, valid at one instant."""
        del operation
        return lasting(of_both(*inputs.both), 1)

    def kept(self, operation: kinds.Zip, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the tuples of both sides that may still find a partner."""
        rows = rows_within(node, estimate, operation.low_us, operation.high_us)
        return StateRows(rows, with_numbers((*operation.left, *operation.right), operation.apart))
