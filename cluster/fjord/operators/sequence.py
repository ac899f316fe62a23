"""Sequence: functions over the tuples of a key in the order of their stamps (docs/reference/sql.md, "Order").

    stamp          1    2    3    4       watermark 4: all tuples before it are known, and their order with them
    LAG(x)         -    x1   x2
    LEAD(x)        x2   x3   ?            the last one waits for its neighbour, or until none can come any more

Of each key the last tuples are kept that functions may need again; those whose age bounds them are forgotten when they
are too old, and with the last tuple the key.
"""

from __future__ import annotations

from typing import final

import numpy as np
import polars as pl

from cluster.fjord.batch import NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import StartOrdered, table_of
from cluster.fjord.operators.sequence_results import (
    Flags,
    OrderedTuples,
    SequenceResults,
    running_columns,
    with_present_running,
)
from cluster.fjord.row_order import Places
from cluster.fjord.running_kind import Alone, PassesNoOrigins, PassesRows, StateEstimate
from cluster.fjord.scalars import POLARS_TYPES
from cluster.fjord.state_rows import StateRows
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import QUERY_GROUP, Column
from cluster.operators.sequence import SequenceCall
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

_OPEN, _KEY = "fjord_open", "fjord_key"


class Sequence(StartOrdered):
    """Keeps the tuples that functions may need again, and those that wait for later ones.

    Parameters
    ----------
    columns
        No rows, with the columns of the input; rows are valid at one instant.
    keys
        Columns whose values are the key; NULL is a value like others.
    ties
        Columns by which tuples of equal stamps are ordered, NULLs last.
    calls
        The functions.
    """

    def __init__(
        self, columns: pl.DataFrame, keys: tuple[str, ...], ties: tuple[str, ...], calls: tuple[SequenceCall, ...]
    ) -> None:
        super().__init__(columns)
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._ties = list(ties)
        self._calls = calls
        self._columns = columns.columns
        types = {name: type(kind) for name, kind in columns.schema.items()}
        self._running = running_columns(calls, types)
        self._kept = columns.clear().with_columns(
            *(pl.lit(None, each.type).alias(each.name) for each in self._running), pl.lit(value=False).alias(_OPEN)
        )
        results = (pl.lit(None, POLARS_TYPES[call.type]).alias(call.name) for call in calls)
        self._nothing = columns.clear().with_columns(*results)
        self._reach_rows = max((call.reach_rows for call in calls), default=0)
        ages = (call.reach_us for call in calls if call.function != "lead" and call.reach_us is not None)
        self._reach_us = max(ages, default=None)  # 0: other tuples of the same stamp
        untils = (call.until_us for call in calls if call.whole and call.until_us)
        self._until_us = max(untils, default=None)  # of frames of all tuples that are so much older
        self._leads = [call for call in calls if call.function == "lead"]

    def _take(self, batch: Batch) -> Batch:
        """Process tuples that are complete up to the watermark; answer those whose results are certain."""
        if batch.rows.height == 0 and not (self._leads and self._kept[_OPEN].any()):
            self._forget(batch.watermark_us)
            return Batch(self._nothing, batch.watermark_us)
        missing = (pl.lit(None, each.type).alias(each.name) for each in self._running)
        new = batch.rows.with_columns(*missing, pl.lit(value=True).alias(_OPEN))
        rows, order = self._ordered(new)
        results = SequenceResults(rows, order)
        waiting = rows[_OPEN].to_numpy().copy()
        places = np.flatnonzero(waiting)
        places = places[self._certain(order, places, batch.watermark_us)]
        columns = [results.result(number, call, places) for number, call in enumerate(self._calls)]
        answered = rows.select(self._columns)[places].with_columns(columns).sort(START, maintain_order=True)
        waiting[places] = False
        running = [results.running[each.name] for each in self._running]
        self._keep(rows.with_columns(*running, pl.Series(_OPEN, waiting)), order, waiting, batch.watermark_us)
        earliest = int(order.stamps[waiting].min()) if waiting.any() else batch.watermark_us
        return Batch(answered, min(batch.watermark_us, earliest))

    def _ordered(self, new: pl.DataFrame) -> tuple[pl.DataFrame, OrderedTuples]:
        """Return the tuples that were there before and the new ones, by key, stamp and values."""
        before = self._kept.height
        rows = pl.concat([self._kept, new])
        keys = pl.Series(_KEY, np.zeros(rows.height, np.int64))
        if self._keys:
            numbered = rows.select(*self._keys, pl.int_range(pl.len(), dtype=pl.Int64).alias(_KEY))
            keys = numbered.select(pl.col(_KEY).first().over(self._keys)).to_series()
        numbers, stamps = keys.to_numpy(), rows[START].to_numpy()
        places = np.lexsort((stamps, numbers))
        same = (np.diff(numbers[places]) == 0) & (np.diff(stamps[places]) == 0)
        if self._ties and same.any():
            # Those that were there before are older than the new ones, and among themselves in order.
            age = pl.Series("fjord_age", np.minimum(np.arange(rows.height), before), pl.Int64)
            by_values = [age, *(rows[name] for name in self._ties)]
            tied = pl.DataFrame([keys, rows[START], *(each.alias(f"fjord_{n}") for n, each in enumerate(by_values))])
            by = [pl.col(name) for name in tied.columns]
            places = tied.select(pl.arg_sort_by(by, nulls_last=True, maintain_order=True)).to_series().to_numpy()
        return rows[places], OrderedTuples(numbers[places], stamps[places], places < before)

    def _certain(self, order: OrderedTuples, places: Places, watermark_us: int) -> Flags:
        """Return which tuples have found the later ones that they look at, or will find none."""
        certain = np.ones(len(places), np.bool_)
        for call in self._leads:
            assert call.rows is not None and call.within_us is not None  # noqa: S101, PT018 - LEAD has both
            known = places + call.rows < order.end[places]
            certain &= known | (order.stamps[places] + call.within_us < watermark_us)
        return certain

    def _keep(self, rows: pl.DataFrame, order: OrderedTuples, waiting: Flags, watermark_us: int) -> None:
        if watermark_us >= NEVER:
            self._kept = self._kept.clear()
            return
        places = np.arange(rows.height)
        # By key: the first tuple that is not answered; behind the last one if all are.
        opens = np.minimum.reduceat(np.where(waiting, places, order.end), order.begins) if rows.height else places
        opens = np.repeat(opens, order.counts)
        kept = places >= opens - self._reach_rows
        since_us = np.where(opens < order.end, order.stamps[np.minimum(opens, rows.height - 1)], watermark_us)
        if self._reach_us is not None:
            kept |= order.stamps >= since_us - self._reach_us
        if self._until_us is not None:
            late = order.stamps > since_us - self._until_us
            kept |= late
            kept[:-1] |= late[1:]  # the last one before them, whose running result is that of all so far
        self._kept = rows.filter(pl.Series(kept)).select(self._kept.columns)

    def _forget(self, watermark_us: int) -> None:
        if watermark_us >= NEVER:
            self._kept = self._kept.clear()
        elif not self._reach_rows and self._kept.height:
            self._kept = self._kept.filter(pl.col(START) >= watermark_us - (self._reach_us or 0))

    def save(self) -> State:
        """Return the tuples that are kept."""
        return {**super().save(), "kept": self._kept}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        columns = self._kept.columns
        self._kept = with_present_running(table_of(state, "kept"), columns).select(columns)


@final
class RunningSequence(PassesRows, PassesNoOrigins, Alone[kinds.Sequence]):
    """Functions over tuples in the order of their stamps."""

    def operator(self, operation: kinds.Sequence) -> Operator:
        """Return the operator."""
        return Sequence(empty_rows(operation.columns), operation.keys, operation.ties, operation.calls)

    def kept(self, operation: kinds.Sequence, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the tuples that functions may need again: so many of each key, and some by age."""
        keyed = bool(set(operation.keys) - {QUERY_GROUP.name})
        by_count = max((call.reach_rows for call in operation.calls), default=0)
        reach_us = max(call.span_us for call in operation.calls)
        per_second = estimate.flow(node.inputs[0]).per_second
        rows = by_count * (KEYS_ASSUMED if keyed else 1) + per_second * reach_us / 1e6
        return StateRows(rows, (*operation.columns, *(Column(call.name, call.type) for call in operation.calls)))
