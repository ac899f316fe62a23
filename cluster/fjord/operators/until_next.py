"""Tuples that hold until the next one of their key (``VALID UNTIL NEXT``, docs/reference/sql.md).

    at most 9    a |------)                     until the next a
                        a |--------)            no next one within 9
                                        a |---------------      the next one is not known yet
    whole        a comes with its end once that is known, and holds back all that begins later

Of several tuples of a key with one stamp each holds until the next *later* stamp: no order among them matters. As
everywhere, late tuples have been removed below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import StartOrdered, table_of
from cluster.fjord.row_flow import RowFlow, groups_of, lasting, windowed
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate
from cluster.fjord.state_rows import StateRows
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import ORIGIN, QUERY_GROUP
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode
from cluster.physical.rules.pieces import MOST_LAG_US

_BEGINS, _ENDS = "fjord_begins", "fjord_ends"


class UntilNext(StartOrdered):
    """Keeps the tuples with the latest stamp of each key, until another comes or their time is over.

    They hold back the watermark of the answer. So one that lags by more than `lag_us` is emitted up to the watermark of
    the input, and goes on from there; snapshots do not depend on such cuts. Tuples whose interval is in columns are
    never cut.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    keys
        Whose next tuple ends one; NULL is a key like others.
    longest_us
        How long a tuple holds at most; None for any time.
    bounds
        Names of the columns with begin and end; None for none.
    lasts
        Whether a row is valid as long as the tuple holds, or at its own instant only.
    lag_us
        How far the answer's watermark may be behind the input's where rows may be cut; None for no limit.
    origins
        Whether the answer has the stamps of tuples, although they were cut since.

    Raises
    ------
    PlanError
        If a tuple whose end would be a column may hold for ever.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        keys: tuple[str, ...],
        longest_us: int | None,
        bounds: tuple[str, str] | None = None,
        lasts: bool = True,  # noqa: FBT001, FBT002 - as in the plan
        *,
        lag_us: int | None = MOST_LAG_US,
        origins: bool = False,
    ) -> None:
        if longest_us is None and (bounds is not None or not lasts):
            raise PlanError("a tuple whose end is a column holds for a bounded time")
        super().__init__(columns)
        self._columns = columns.columns
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._longest_us = longest_us
        self._bounds = bounds
        self._lasts = lasts
        self._lag_us = lag_us
        self._origin = {ORIGIN.name: pl.col(START)} if origins else {}
        # A tuple begins at its stamp, or where it was cut.
        self._waiting = columns.clear().with_columns(pl.lit(0, pl.Int64).alias(_BEGINS))

    def _take(self, batch: Batch) -> Batch:
        """Process tuples; emit those whose end is known now, and parts of those that lag too far behind."""
        watermark_us = batch.watermark_us
        if batch.rows.height:
            new = batch.rows.with_columns(pl.col(START).alias(_BEGINS))
            self._waiting = pl.concat([self._waiting, new.select(self._waiting.columns)])
        emitted = pl.concat([self._done(watermark_us), self._cut(watermark_us)]).sort(START, maintain_order=True)
        earliest = self._waiting[_BEGINS].min()
        reached = watermark_us if earliest is None else min(watermark_us, int(earliest))  # type: ignore[arg-type] # a column of integers
        return Batch(emitted, reached)

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all tuples that hold are cut at the frontier. Where their end is a column, they have to wait."""
        self._lag_us = 0
        return super().ahead(frontier_us, inputs)

    def _done(self, watermark_us: int) -> pl.DataFrame:
        """Remove and return the tuples whose end is known."""
        following = pl.col(START).shift(-1)
        following = following.over(self._keys) if self._keys else following
        # Tuples of one stamp end together, with the stamp behind the last of them.
        later = pl.when(following > pl.col(START)).then(following)
        marked = self._waiting.with_columns(later.alias(_ENDS))
        filled = pl.col(_ENDS).fill_null(strategy="backward")
        ends = filled.over(self._keys) if self._keys else filled
        if self._longest_us is not None:
            over = (pl.col(START) + self._longest_us).clip(
                upper_bound=NEVER
            )  # a next one that is known has come before the watermark
            ends = pl.min_horizontal(ends, pl.when(over <= watermark_us).then(over))
        elif watermark_us >= NEVER:
            ends = ends.fill_null(NEVER)  # no later tuple will come
        marked = marked.with_columns(ends.alias(_ENDS))
        self._waiting = marked.filter(pl.col(_ENDS).is_null()).select(self._waiting.columns)
        done = marked.filter(pl.col(_ENDS).is_not_null())
        begins, lasting = pl.col(_BEGINS), pl.col(_ENDS)
        bounds = dict(zip(self._bounds or (), (pl.col(START), lasting), strict=False))
        until = lasting if self._lasts else begins + 1
        return self._shown(done.with_columns(begins.alias(START), until.alias(END), **bounds, **self._origin))

    def _cut(self, watermark_us: int) -> pl.DataFrame:
        """Return, up to the watermark, the tuples that lag too far behind it."""
        whole = self._lag_us is None or self._bounds is not None or watermark_us >= NEVER
        lags = pl.lit(value=False) if whole else pl.col(_BEGINS) < watermark_us - (self._lag_us or 0)
        pieces = self._waiting.filter(lags).with_columns(
            pl.col(_BEGINS).alias(START),
            pl.lit(watermark_us, pl.Int64).alias(END),
            **dict.fromkeys(self._bounds or (), pl.lit(0, pl.Int64)),
            **self._origin,
        )
        if pieces.height:
            begins = pl.when(lags).then(watermark_us).otherwise(_BEGINS).alias(_BEGINS)
            self._waiting = self._waiting.with_columns(begins)
        return self._shown(pieces)

    def _shown(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(pl.col(START) < pl.col(END)).select(*self._columns, *(self._bounds or ()), *self._origin)

    def save(self) -> State:
        """Return the tuples whose end is not known."""
        return {**super().save(), "waiting": self._waiting}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        self._waiting = table_of(state, "waiting")


@final
class RunningUntilNext(Alone[kinds.UntilNext]):
    """Tuples that hold until the next one of their key."""

    def operator(self, operation: kinds.UntilNext, *, origins: bool = False) -> Operator:
        """Return the operator, whose rows have origins or not."""
        rows, held = empty_rows(operation.columns), (operation.bounds, operation.lasts)
        lag_us = operation.lag_us
        return UntilNext(rows, operation.keys, operation.longest_us, *held, lag_us=lag_us, origins=origins)

    def with_origins(self, operation: kinds.UntilNext, context: RuntimeContext) -> Operator:
        """Return one that notes the stamps of tuples."""
        del context
        return self.operator(operation, origins=True)

    def flow(self, operation: kinds.UntilNext, inputs: InputFlows) -> RowFlow:
        """Return the tuples, of which one for each key is valid at an instant if they last."""
        if not operation.lasts:
            return lasting(windowed(inputs.first), 1)
        keys = groups_of(tuple(each for each in operation.columns if each.name in operation.keys))
        return lasting(windowed(inputs.first), operation.longest_us, keys)

    def kept(self, operation: kinds.UntilNext, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the last tuple of each key, as long as it may hold."""
        last = float(KEYS_ASSUMED if set(operation.keys) - {QUERY_GROUP.name} else 1)
        if operation.longest_us is not None:
            last = min(last, estimate.flow(node.inputs[0]).per_second * operation.longest_us / 1e6)
        return StateRows(last, operation.columns)
