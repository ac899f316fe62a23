"""Ranked: the tuples with the first places of every snapshot, or every tuple with its place.

Places change when rows begin or end, so a row is cut where its place does, or where it gets or loses one:

    1   |-----------------)          answers, most = 2      1   |-----------------)
    2        |-------)                                      2        |-------)
    3   |---------------------)                             3   |----)       |--------)

A piece is emitted once it has ended, whatever pieces that began before it still last. Rows that enough others precede
and outlast are forgotten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

import numpy as np
import polars as pl
from msgspec import structs

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.operators.origins import MADE_OF, MADE_OF_COLUMN
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.operators.rank_sweep import CLOSED, RankedRows, RankSweep, undominated
from cluster.fjord.row_flow import MOST, RowFlow, groups_of
from cluster.fjord.row_order import comparable, group_numbers
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate, alive_below
from cluster.fjord.state_rows import StateRows, with_numbers
from cluster.operators.columns import Ordering, RankFunction
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

_SINCE, _PLACE = "fjord_since_us", "fjord_place"
MOST_PASSES = 64
"""With more places than this, rows that others outlast are kept unless these end at the same instant."""


class Ranked(Operator):
    """Keeps the rows that have a place, or may still get one.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    keys
        Columns of the groups, each with an order of its own; NULL equals NULL.
    order
        What rows are ordered by.
    function
        How places are counted.
    above, most
        Rows have places above the first and at most the second, if there is one.
    name
        The column for the place; None for no such column.
    lag_us
        How far the output may stay behind the input: pieces that have lasted this long are cut. None for any distance.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        *,
        keys: tuple[str, ...],
        order: tuple[Ordering, ...],
        function: RankFunction = "row_number",
        above: int = 0,
        most: int | None = None,
        name: str | None = None,
        lag_us: int | None = None,
    ) -> None:
        self._columns = columns.columns
        self._keys = list(keys)
        self._order = order
        self._function = function
        self._above, self._most = above, most
        self._name = name
        self._lag_us = lag_us
        unplaced = [pl.lit(CLOSED, pl.Int64).alias(_SINCE), pl.lit(0, pl.Int64).alias(_PLACE)]
        self._unplaced = unplaced
        self._kept = columns.clear().with_columns(unplaced)
        self._nothing = self._named(self._kept.clear())
        self._watermark_us = ALWAYS

    def transition(self, port: int, batch: Batch) -> Batch:
        """Take rows, and emit the pieces that have ended."""
        del port
        self._add(batch.rows)
        return Batch(self._advanced(batch.watermark_us), self._reached())

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: the pieces that are still going on end at the frontier."""
        (rows,) = inputs
        self._add(rows)
        ended = self._advanced(frontier_us)
        lasting = self._cut(self._kept.filter(pl.col(_SINCE) != CLOSED), frontier_us)
        return Batch(pl.concat([ended, lasting]).sort(START, maintain_order=True), frontier_us)

    def save(self) -> State:
        """Return the rows that are still needed."""
        return {"kept": self._kept, "watermark_us": self._watermark_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._kept = table_of(state, "kept")
        self._watermark_us = number_of(state, "watermark_us")

    def _add(self, rows: pl.DataFrame) -> None:
        if rows.height:
            self._kept = pl.concat([self._kept, rows.select(self._columns).with_columns(self._unplaced)])

    def _reached(self) -> int:
        """Return the instant before which no more pieces can begin."""
        placed = self._kept.select(pl.col(_SINCE).filter(pl.col(_SINCE) != CLOSED).min())
        first: int | None = placed.item()
        return self._watermark_us if first is None else min(self._watermark_us, first)

    def _advanced(self, watermark_us: int) -> pl.DataFrame:
        """Return the pieces that end when the watermark moves."""
        before_us, self._watermark_us = self._watermark_us, max(self._watermark_us, watermark_us)
        if self._watermark_us == before_us or not self._kept.height:
            return self._nothing
        changing, rest = self._of_changing_groups(before_us)
        ended = self._swept(changing, rest, before_us) if changing.height else self._nothing
        if self._lag_us is None:
            return ended
        return pl.concat([ended, self._cut_off()]).sort(START, maintain_order=True)

    def _of_changing_groups(self, before_us: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the known rows of groups in which some begins or ends, and all other rows."""
        known = pl.col(START) < self._watermark_us
        # One that ended at the last watermark leaves its place to others from there on.
        moves = known & ((pl.col(START) >= before_us) | pl.col(END).is_between(before_us, self._watermark_us))
        moving = self._kept.filter(moves)
        if not moving.height:
            return moving, self._kept
        rows, later = self._kept.filter(known), self._kept.filter(~known)
        if not self._keys:
            return rows, later
        groups = moving.select(self._keys).unique()
        others = rows.join(groups, on=self._keys, how="anti", nulls_equal=True)
        if others.height:
            rows = rows.join(groups, on=self._keys, how="semi", nulls_equal=True)
        return rows, pl.concat([others, later])

    def _swept(self, changing: pl.DataFrame, rest: pl.DataFrame, before_us: int) -> pl.DataFrame:
        """Sweep over the rows of some groups up to the watermark; return the pieces that end."""
        until_us = self._watermark_us
        ordered = self._ordered(changing)
        rows = self._numbered(ordered)
        sweep = RankSweep(rows, self._function, self._above, self._most, shown=self._name is not None)
        sweep.run(before_us, until_us)
        number, start, end, place = sweep.ended.joined()
        pieces = ordered[number].with_columns(
            pl.Series(START, start), pl.Series(END, end), pl.Series(_PLACE, place)
        )  # fmt: skip
        left = rows.end >= until_us if until_us < NEVER else np.zeros(ordered.height, np.bool_)
        if self._most is not None:
            left &= undominated(rows, self._most, MOST_PASSES)
        kept = ordered.with_columns(pl.Series(_SINCE, rows.since), pl.Series(_PLACE, rows.place))
        self._kept = pl.concat([kept.filter(pl.Series(left)), rest])
        return self._named(pieces.sort(START, maintain_order=True))

    def _ordered(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows by group and order; those of equal order stay as they came."""
        if rows.height < 2:  # noqa: PLR2004 - nothing to sort
            return rows
        columns = [*self._keys, *(each.column for each in self._order)]
        count = len(self._keys)
        return rows.sort(
            [comparable(rows, name) for name in columns],
            descending=[False] * count + [each.descending for each in self._order],
            nulls_last=[True] * count + [not each.nulls_first for each in self._order],
            maintain_order=True,
        ) if columns else rows  # fmt: skip

    def _numbered(self, ordered: pl.DataFrame) -> RankedRows:
        """Return ordered rows as numbers."""
        group = group_numbers(ordered, self._keys)
        if self._function == "row_number":
            value = np.arange(ordered.height)
        else:
            value = group_numbers(ordered, [*self._keys, *(each.column for each in self._order)])
        start, end, since, place = (ordered[name].to_numpy(writable=True) for name in (START, END, _SINCE, _PLACE))
        return RankedRows(group, value, start, end, since, place)

    def _cut_off(self) -> pl.DataFrame:
        """Cut the present pieces that have lasted too long; return what is cut off."""
        assert self._lag_us is not None  # noqa: S101 - asked for only then
        until_us = self._watermark_us
        long = (pl.col(_SINCE) != CLOSED) & (pl.col(_SINCE) <= until_us - self._lag_us)
        cut = self._kept.filter(long)
        if not cut.height:
            return self._nothing
        self._kept = self._kept.with_columns(pl.when(long).then(until_us).otherwise(_SINCE).alias(_SINCE))
        return self._cut(cut, until_us)

    def _cut(self, rows: pl.DataFrame, at_us: int) -> pl.DataFrame:
        """Return the present pieces of rows up to an instant."""
        begun = rows.filter(pl.col(_SINCE) < at_us)
        pieces = begun.with_columns(pl.col(_SINCE).alias(START), pl.lit(at_us, pl.Int64).alias(END))
        return self._named(pieces.sort(START, maintain_order=True))

    def _named(self, pieces: pl.DataFrame) -> pl.DataFrame:
        place = [] if self._name is None else [pl.col(_PLACE).alias(self._name)]
        return pieces.select(*self._columns, *place)


@final
class RunningRanked(Alone[kinds.Ranked]):
    """Tuples by their places."""

    def operator(self, operation: kinds.Ranked) -> Operator:
        """Return the operator."""
        return Ranked(
            empty_rows(operation.columns),
            keys=operation.keys,
            order=operation.order,
            function=operation.function,
            above=operation.above,
            most=operation.most,
            name=operation.name,
            lag_us=operation.lag_us,
        )

    def with_origins(self, operation: kinds.Ranked, context: RuntimeContext) -> Operator:
        """Return one that puts together what goes on of a row.

        Of equal rows that are numbered, the one that began first comes first, wherever it was cut.
        """
        ties = (Ordering(MADE_OF),) if operation.function == "row_number" else ()
        columns, order = (*operation.columns, MADE_OF_COLUMN), (*operation.order, *ties)
        of_rows = structs.replace(operation, columns=columns, order=order)
        return ChainedPieces(self.instantiate(of_rows, context), made_of=True)

    def flow(self, operation: kinds.Ranked, inputs: InputFlows) -> RowFlow:
        """Return rows by their places: when one begins or ends, those behind it move, or one takes the last place.

        With many rows in a group, few of them have one of the first places.
        """
        rows = inputs.first
        most = MOST if operation.most is None else float(max(operation.most, 1))
        valid = rows.valid / _groups(operation)
        share = 1.0 if valid <= most else most / valid
        moved = 1.0 if operation.name is None else max(min(most, valid) - operation.above, 1.0)
        per_second = rows.per_second * (1 + 2 * share * moved)
        return dataclasses.replace(
            rows,
            per_tuple=rows.per_tuple * 2,
            at_once=min(rows.at_once, most),
            per_second=per_second,
            made_per_second=per_second - rows.per_second,
        )

    def kept(self, operation: kinds.Ranked, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the rows that are valid; of rows that last for ever, only those with a place."""
        columns = with_numbers(operation.columns, "since", "place")
        (below,) = node.inputs
        if estimate.flow(below).lasting_us is not None or operation.most is None:
            return StateRows(alive_below(node, estimate), columns)
        return StateRows(_groups(operation) * float(operation.most), columns)


def _groups(operation: kinds.Ranked) -> int:
    """Return how many groups there are, each with an order of its own."""
    return groups_of(tuple(each for each in operation.columns if each.name in operation.keys))
