"""Windows of sessions: runs of tuples of a key without a gap.

    gap 3              first                   last     closes
    stamps of a key    10    12    15    16    18       .            a tuple at 22 would begin another session
    valid                                               |)           or, EARLY, from the stamp until then

A session is not snapshot-reducible: which tuples it has is defined over their order (docs/reference/sql.md). Late
tuples have been removed below; when a session closes is decided by the watermark alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import StartOrdered, table_of
from cluster.fjord.row_flow import RowFlow, lasting, windowed
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate
from cluster.fjord.state_rows import StateRows
from cluster.operators.columns import ORIGIN
from cluster.operators.window_shapes import Session
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode
from cluster.physical.rules.pieces import MOST_LAG_US

_SESSION, _FIRST, _LAST, _CLOSES = "fjord_session", "fjord_first", "fjord_last", "fjord_closes"
_CUT, _FROM = "fjord_cut", "fjord_from"
_PLACE = "fjord_place"
_CUTS_PER_AGE = 8
"""An open session is cut again once an eighth of its age has passed: so it is cut some tens of times at most."""


class SessionWindow(StartOrdered):
    """Keeps the tuples of open sessions; a session is final once the watermark has passed its closing.

    Where tuples are valid until their session closes, they hold back the watermark of the answer. So those of sessions
    that lag by more than `lag_us`, and by an eighth of their age, are emitted up to the watermark of the input, and go
    on from there. Snapshots do not depend on the cuts.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    keys
        Sessions of their own for each combination of these columns, of which NULL is one value.
    session
        Gap and longest session.
    lag_us
        How far the answer's watermark may be behind the input's, besides; None for no limit.
    origins
        Whether the answer has the stamps of tuples, although they were cut since.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        keys: tuple[str, ...],
        session: Session,
        *,
        lag_us: int | None = MOST_LAG_US,
        origins: bool = False,
    ) -> None:
        if session.gap_us < 1 or session.longest_us < session.gap_us:
            raise PlanError(f"sessions with gaps of {session.gap_us} us of at most {session.longest_us} us")
        super().__init__(columns)
        self._columns = [*columns.columns, *([ORIGIN.name] if origins else [])]
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._shape = session
        self._lag_us = lag_us
        self._ages = _CUTS_PER_AGE
        number = pl.lit(0, pl.Int64)
        self._waiting = columns.clear().with_columns(number.alias(_SESSION))
        bounds = dict.fromkeys((_SESSION, _FIRST, _LAST, _CUT), pl.Int64)
        self._open = pl.DataFrame(schema={**{key: columns.schema[key] for key in self._keys}, **bounds})
        """One for each key at most: when another begins, the closing of the one before has passed."""
        self._next = 0

    def _take(self, batch: Batch) -> Batch:
        """Process tuples; emit those of the sessions that have closed, and of those that lag too far behind."""
        if batch.rows.height:
            self._assign(batch.rows)
        emitted = self._close(batch.watermark_us)
        watermark_us = batch.watermark_us
        if self._shape.early:
            emitted = pl.concat([emitted, self._cut(watermark_us)])
            earliest = self._open[_CUT].min()
            watermark_us = watermark_us if earliest is None else min(watermark_us, int(earliest))  # type: ignore[arg-type] # a column of integers
        return Batch(emitted.sort(START, maintain_order=True), watermark_us)

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all tuples of open sessions are cut at the frontier."""
        self._lag_us, self._ages = 0, NEVER
        return super().ahead(frontier_us, inputs)

    def _assign(self, rows: pl.DataFrame) -> None:
        """Assign new tuples, which come in order, to sessions."""
        latest = self._open
        ordered = rows.sort(self._keys, maintain_order=True) if self._keys else rows  # by stamp already
        starts = ordered[START].to_numpy()
        heads = self._heads(ordered)
        known = ordered[heads].select(self._keys)
        if self._keys:
            found = known.join(latest, on=self._keys, how="left", nulls_equal=True, maintain_order="left")
        else:
            found = latest if latest.height else latest.clear(1)
        begins = self._begins(starts, heads, found)
        number = np.cumsum(begins) - 1 + self._next
        self._next += int(begins.sum())
        # Tuples before the first beginning of their key go on with its open session.
        lengths = np.diff(np.append(heads, len(starts)))
        opened = np.maximum.accumulate(np.where(begins, np.arange(len(starts)), -1)) >= np.repeat(heads, lengths)
        continued = np.repeat(found[_SESSION].fill_null(-1).to_numpy(), lengths)
        sessions = np.where(opened, number, continued)
        ordered = ordered.with_columns(pl.Series(_SESSION, sessions))
        self._waiting = pl.concat([self._waiting, ordered.select(self._waiting.columns)])
        self._extend(ordered)

    def _heads(self, ordered: pl.DataFrame) -> npt.NDArray[np.int64]:
        """Return the places of the first tuple of each key."""
        if not self._keys:
            return np.zeros(1, dtype=np.int64)
        changed = pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift(1)) for key in self._keys)
        places = ordered.select(changed.alias(_PLACE))[_PLACE].to_numpy().nonzero()[0]
        return np.unique(np.append(0, places))

    def _begins(
        self, starts: npt.NDArray[np.int64], heads: npt.NDArray[np.int64], found: pl.DataFrame
    ) -> npt.NDArray[np.bool_]:
        """Return which tuples begin a session.

        Parameters
        ----------
        starts
            Stamps, key by key.
        heads
            Places of the first tuple of each key.
        found
            By key: its latest open session; NULL where there is none.
        """
        gap_us, longest_us = self._shape.gap_us, self._shape.longest_us
        before = np.empty_like(starts)
        before[1:] = starts[:-1]
        none = -NEVER
        before[heads] = found[_LAST].fill_null(none).to_numpy()
        begins = starts - before > gap_us
        runs = np.flatnonzero(begins | _at(heads, len(starts)))
        first = np.where(begins[runs], starts[runs], 0)
        first[np.isin(runs, heads) & ~begins[runs]] = found[_FIRST].fill_null(0).to_numpy()[~begins[heads]]
        ends = np.append(runs[1:], len(starts))
        for run in np.flatnonzero(starts[ends - 1] - first >= longest_us):
            start, end, since = runs[run], ends[run], first[run]
            while (cut := start + np.searchsorted(starts[start:end], since + longest_us)) < end:
                begins[cut] = True
                start, since = cut, starts[cut]
        return begins

    def _extend(self, ordered: pl.DataFrame) -> None:
        """Take the bounds of sessions from their new tuples."""
        new = ordered.group_by(_SESSION, maintain_order=True).agg(
            *(pl.col(key).first() for key in self._keys),
            pl.col(START).min().alias(_FIRST),
            pl.col(START).max().alias(_LAST),
            pl.col(START).min().alias(_CUT),
        )
        both = pl.concat([self._open, new.select(self._open.columns)])
        self._open = (
            both.group_by(_SESSION, maintain_order=True)
            .agg(
                *(pl.col(key).first() for key in self._keys),
                pl.col(_FIRST).min(),
                pl.col(_LAST).max(),
                pl.col(_CUT).first(),
            )
            .select(self._open.columns)
        )

    def _close(self, watermark_us: int) -> pl.DataFrame:
        """Remove the sessions that have closed; return their tuples."""
        gap_us, longest_us = self._shape.gap_us, self._shape.longest_us
        whole = (pl.col(_FIRST) + longest_us).clip(upper_bound=NEVER)
        # A tuple stamped exactly a gap after the last one belongs to the session.
        final = (pl.col(_LAST) + gap_us < watermark_us) | (whole <= watermark_us)
        closed = self._open.filter(final)
        if closed.height == 0:
            return self._nothing()
        self._open = self._open.filter(~final)
        closes = closed.select(_SESSION, _CUT, pl.min_horizontal(pl.col(_LAST) + gap_us, whole).alias(_CLOSES))
        found = self._waiting.join(closes, on=_SESSION, how="left", maintain_order="left")
        self._waiting = found.filter(pl.col(_CLOSES).is_null()).select(self._waiting.columns)
        left = found.filter(pl.col(_CLOSES).is_not_null()).with_columns(pl.col(START).alias(ORIGIN.name))
        if self._shape.early:
            left = left.with_columns(pl.max_horizontal(START, _CUT).alias(START), pl.col(_CLOSES).alias(END))
        else:
            left = left.with_columns(pl.col(_CLOSES).alias(START), (pl.col(_CLOSES) + 1).alias(END))
        return left.filter(pl.col(START) < pl.col(END)).select(self._columns)

    def _cut(self, watermark_us: int) -> pl.DataFrame:
        """Return, up to the watermark, the tuples of open sessions that lag too far behind it."""
        if self._lag_us is None or watermark_us >= NEVER or self._open.height == 0:
            return self._nothing()
        allowed = pl.max_horizontal(pl.lit(self._lag_us), (pl.col(_CUT) - pl.col(_FIRST)) // self._ages)
        lags = pl.lit(watermark_us) - pl.col(_CUT) > allowed
        marked = self._open.select(_SESSION, pl.when(lags).then(_CUT).alias(_FROM)).drop_nulls()
        if marked.height == 0:
            return self._nothing()
        pieces = self._waiting.join(marked, on=_SESSION, maintain_order="left").with_columns(
            pl.max_horizontal(START, _FROM).alias(START),
            pl.lit(watermark_us, pl.Int64).alias(END),
            pl.col(START).alias(ORIGIN.name),
        )
        self._open = self._open.with_columns(pl.when(lags).then(watermark_us).otherwise(_CUT).alias(_CUT))
        return pieces.filter(pl.col(START) < pl.col(END)).select(self._columns)

    def _nothing(self) -> pl.DataFrame:
        return self._waiting.clear().with_columns(pl.col(START).alias(ORIGIN.name)).select(self._columns)

    def save(self) -> State:
        """Return the tuples of open sessions, and the sessions."""
        return {**super().save(), "waiting": self._waiting, "open": self._open, "next": self._next}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        self._waiting, self._open = table_of(state, "waiting"), table_of(state, "open")
        assert isinstance(state["next"], int)  # noqa: S101 - written by save()
        self._next = state["next"]


def _at(places: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(length, dtype=np.bool_)
    found[places] = True
    return found


@final
class RunningSessionWindow(Alone[kinds.SessionWindow]):
    """A window of sessions."""

    def operator(self, operation: kinds.SessionWindow, *, origins: bool = False) -> Operator:
        """Return the operator, whose rows have origins or not."""
        rows, session = empty_rows(operation.columns), operation.session
        return SessionWindow(rows, operation.keys, session, lag_us=operation.lag_us, origins=origins)

    def with_origins(self, operation: kinds.SessionWindow, context: RuntimeContext) -> Operator:
        """Return one that notes where tuples began."""
        del context
        return self.operator(operation, origins=True)

    def flow(self, operation: kinds.SessionWindow, inputs: InputFlows) -> RowFlow:
        """Return rows of an instant; of sessions that are answered early, rows that are valid as long as one lasts."""
        return lasting(windowed(inputs.first), operation.session.longest_us if operation.session.early else 1)

    def kept(self, operation: kinds.SessionWindow, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the tuples of sessions that are open, each as long as one may last."""
        per_second = estimate.flow(node.inputs[0]).per_second
        return StateRows(per_second * operation.session.longest_us / 1e6, operation.columns)
