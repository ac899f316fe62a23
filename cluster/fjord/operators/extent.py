"""Extents: the samples that are valid at an instant, coalesced (docs/reference/sql.md, "Coalescing").

    samples in the window     81   81   79   81
    rows                      |---------)                 one for each run of linked samples, emitted once it changes
                                        |----)
                                             |

Kept *eagerly*, each sample is compared with its neighbour once, and rows change where samples enter or leave
(papers/coalescing.md section 2.3, in batches as decision 0068 has it). Kept *lazily*, samples are kept as they came,
and coalesced at each instant at which the window changes (section 2.2). Answers are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from cluster.fjord.batch import ALWAYS, END, INTERVAL, NEVER, START, Batch
from cluster.fjord.operator import State
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.operators.start_ordered import StartOrdered
from cluster.fjord.scalars import compile_scalar
from cluster.language.extents import Coalescing
from cluster.temporal.run_versions import (
    NONE,
    Flags,
    Samples,
    Versions,
    Whole,
    of_runs,
    of_snapshots,
    pairs_of_snapshots,
)

_SINCE, _LINKED, _ROW, _COPY = "fjord_since_us", "fjord_linked", "fjord_row", "fjord_copy"
_MOST_PAIRS = 1_000_000
"""Samples at instants that are coalesced at once."""


class Extent(StartOrdered):
    """Keeps the samples that are valid, and since when each row has been the same.

    Rows hold back the watermark of the answer while they stay the same. Where others wait for it, a row that has lasted
    for `lag_us` is cut at the watermark of the input, and goes on from there.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    keys
        Whose samples are coalesced together; NULL is a key like others.
    coalescing
        How.
    lag_us
        How far the answer's watermark may be behind the input's; None for any distance.
    """

    def __init__(
        self, columns: pl.DataFrame, keys: tuple[str, ...], coalescing: Coalescing, *, lag_us: int | None = None
    ) -> None:
        super().__init__(columns)
        self._how = coalescing
        self._lag_us = lag_us
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._shown = list(dict.fromkeys((*keys, *coalescing.columns)))
        needed = [START, END, *dict.fromkeys((*keys, *(each for each in columns.columns if each in coalescing.reads)))]
        self._columns = needed
        self._eager = coalescing.kept == "eager"
        extra = [pl.lit(NONE, pl.Int64).alias(_SINCE)]
        if self._eager:
            extra.append(pl.lit(None, pl.Boolean).alias(_LINKED))
        self._extra = extra
        self._kept = columns.clear().select(needed).with_columns(extra)
        self._reached_us = ALWAYS

    def _take(self, batch: Batch) -> Batch:
        """Take samples, and emit the rows that have changed."""
        self._add(batch.rows.select(self._columns))
        before_us, until_us = self._reached_us, max(self._reached_us, batch.watermark_us)
        emitted = self._advanced(before_us, until_us) if until_us > before_us and self._kept.height else self._nothing()
        self._reached_us = until_us
        since = self._kept.select(pl.col(_SINCE).filter(pl.col(_SINCE) != NONE).min()).item()
        return Batch(emitted, until_us if since is None else min(until_us, int(since)))

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all rows that are there are cut at the frontier."""
        self._lag_us = 0
        return super().ahead(frontier_us, inputs)

    def _add(self, rows: pl.DataFrame) -> None:
        """Keep samples; one that has been cut goes on as one."""
        if rows.height and self._kept.height:
            rows = self._continued(rows)
        if rows.height:
            self._kept = pl.concat([self._kept, rows.with_columns(self._extra)])

    def _continued(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Prolong the samples that go on where they were cut; return the others."""
        meeting = pl.col(END).is_in(rows[START].unique().implode())
        if not self._kept.select(meeting.any()).item():
            return rows
        values = [name for name in self._columns if name not in INTERVAL]
        same = [*values, _ROW, _COPY]
        kept = self._kept.with_columns(pl.col(END).alias(_ROW)).with_columns(_copies([*values, _ROW]))
        found = rows.with_columns(pl.col(START).alias(_ROW)).with_columns(_copies([*values, _ROW]))
        later = found.select(*same, pl.col(END).alias("fjord_later"))
        longer = kept.join(later, on=same, how="left", nulls_equal=True, maintain_order="left")
        if longer["fjord_later"].null_count() == longer.height:
            return rows
        self._kept = longer.with_columns(pl.coalesce("fjord_later", END).alias(END)).select(self._kept.columns)
        new = found.join(kept.select(same), on=same, how="anti", nulls_equal=True, maintain_order="left")
        return new.select(self._columns)

    def _advanced(self, before_us: int, until_us: int) -> pl.DataFrame:
        """Return the rows that have changed up to an instant, and those that have lasted too long."""
        times = [pl.col(each) for each in INTERVAL]
        moves = pl.any_horizontal((each >= before_us) & (each < until_us) for each in times)
        if self._lag_us is not None:
            moves |= (pl.col(_SINCE) != NONE) & (pl.col(_SINCE) <= until_us - self._lag_us)
        if until_us >= NEVER:
            moves = pl.lit(value=True)
        changing, rest = self._of_keys(moves)
        if not changing.height:
            return self._nothing()
        emitted = []
        ordered = self._ordered(changing)
        for start_us, end_us in self._steps(ordered, before_us, until_us):
            ordered, rows = self._step(ordered, start_us, end_us)
            emitted.append(rows)
        self._kept = pl.concat([ordered, rest])
        return pl.concat(emitted).sort(START, maintain_order=True)

    def _of_keys(self, moves: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the samples of keys of which some sample meets a condition, and all others."""
        moving = self._kept.filter(moves)
        if not self._keys or not moving.height:
            return (self._kept, moving.clear()) if moving.height else (moving, self._kept)
        keys = moving.select(self._keys).unique()
        changing = self._kept.join(keys, on=self._keys, how="semi", nulls_equal=True, maintain_order="left")
        if changing.height == self._kept.height:
            return changing, moving.clear()
        rest = self._kept.join(keys, on=self._keys, how="anti", nulls_equal=True, maintain_order="left")
        return changing, rest

    def _ordered(self, rows: pl.DataFrame) -> pl.DataFrame:
        by = [*self._keys, self._how.stamp, *(name for name in self._how.ties if name not in self._keys)]
        return rows.sort([_comparable(rows, name) for name in by], nulls_last=True, maintain_order=True)

    def _steps(self, ordered: pl.DataFrame, before_us: int, until_us: int) -> list[tuple[int, int]]:
        """Return spans of time with so few changes that what is there at each fits into memory."""
        samples = self._samples(ordered)
        if self._eager and samples.in_turn:
            return [(before_us, until_us)]
        pairs = pairs_of_snapshots(samples, before_us, until_us)
        times = np.unique(np.concatenate((samples.enters, samples.leaves)))
        times = times[(times > before_us) & (times < until_us)]
        cuts = times[:: max(len(times) * _MOST_PAIRS // max(pairs, 1), 1)].tolist() if pairs > _MOST_PAIRS else []
        return list(zip([before_us, *cuts], [*cuts, until_us], strict=True))

    def _step(self, ordered: pl.DataFrame, before_us: int, until_us: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the samples that are still needed, in their order, and the rows that have changed."""
        samples = self._samples(ordered)
        if self._eager:
            ordered = self._compared(ordered, samples.groups)
        if self._eager and samples.in_turn:
            linked = ordered[_LINKED].to_numpy()
            found = of_runs(samples, ~linked, before_us, until_us)
        else:
            found = of_snapshots(samples, lambda one, other: self._linked(ordered, one, other), before_us, until_us)
        since = np.full(ordered.height, NONE)
        open_ = found.until == NONE
        lasting = found.until.copy()
        lag_us = 0 if until_us >= NEVER else self._lag_us
        if lag_us is not None:
            lasting[open_ & (found.since <= until_us - lag_us)] = min(until_us, NEVER)
        since[found.first[open_]] = np.where(lasting != NONE, lasting, found.since)[open_]
        rows = self._rows(ordered, found, lasting)
        left = samples.leaves >= until_us if until_us < NEVER else np.zeros(ordered.height, np.bool_)
        kept = ordered.with_columns(pl.Series(_SINCE, since, pl.Int64))
        if self._eager:
            # Where a sample goes from between two others, these become neighbours.
            alone = np.zeros(len(left), np.bool_)
            alone[1:] = left[1:] & ~left[:-1]
            kept = kept.with_columns(pl.when(pl.Series(alone)).then(None).otherwise(_LINKED).alias(_LINKED))
        return kept.filter(pl.Series(left)), rows

    def _samples(self, ordered: pl.DataFrame) -> Samples:
        differs = [_comparable(ordered, name).ne_missing(_comparable(ordered, name).shift()) for name in self._keys]
        groups = np.zeros(ordered.height, np.int64)
        if differs:
            begins = ordered.select(pl.any_horizontal(differs)).to_series().to_numpy(writable=True)
            begins[:1] = False
            groups = np.cumsum(begins)
        times = (ordered[name].to_numpy() for name in (START, END, self._how.stamp, _SINCE))
        return Samples(groups, *times)

    def _compared(self, ordered: pl.DataFrame, groups: Whole) -> pl.DataFrame:
        """Compare the samples that have another one before them than they had."""
        open_ = ordered[_LINKED].is_null().to_numpy()
        open_ = open_ | np.append(False, open_[:-1])
        linked = ordered[_LINKED].fill_null(value=False).to_numpy(writable=True)
        linked[open_] = False
        places = np.flatnonzero(open_)
        places = places[places > 0]
        places = places[groups[places] == groups[places - 1]]
        linked[places] = self._linked(ordered, places - 1, places)
        return ordered.with_columns(pl.Series(_LINKED, linked, pl.Boolean))

    def _linked(self, ordered: pl.DataFrame, earlier: Whole, later: Whole) -> Flags:
        """Return whether samples go on with others."""
        link = self._how.link
        if not len(later):
            return np.zeros(0, np.bool_)
        if link is None:
            equal = np.ones(len(later), np.bool_)
            for name in self._how.columns:
                column = ordered[name]
                equal &= column[later].eq_missing(column[earlier]).to_numpy()
            return equal
        before = [ordered[column][earlier].alias(name) for name, column in link.before]
        found = ordered[later].with_columns(before).with_columns(compile_scalar(link.condition).alias(_LINKED))
        return found[_LINKED].fill_null(value=False).to_numpy()

    def _rows(self, ordered: pl.DataFrame, found: Versions, until: Whole) -> pl.DataFrame:
        """Return the rows that have changed or been cut."""
        done = until != NONE
        first = ordered[found.first[done]]
        begin, end = self._how.bounds
        intervals = {START: found.since[done], END: until[done], begin: first[self._how.stamp], end: found.ends[done]}
        columns = [pl.Series(name, values, pl.Int64) for name, values in intervals.items()]
        rows: pl.DataFrame = (
            first.select(self._shown).with_columns(columns).select(START, END, *self._shown, begin, end)
        )
        return rows.filter(pl.col(START) < pl.col(END))

    def _nothing(self) -> pl.DataFrame:
        nowhere = np.empty(0, np.int64)
        return self._rows(self._kept.clear(), Versions(nowhere, nowhere, nowhere, nowhere), nowhere)

    def save(self) -> State:
        """Return the samples, and up to where rows have been answered."""
        return {**super().save(), "kept": self._kept, "reached_us": self._reached_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        self._kept = table_of(state, "kept").select(self._kept.columns)
        self._reached_us = number_of(state, "reached_us")


def _comparable(rows: pl.DataFrame, name: str) -> pl.Expr:
    """Return a column in which zeros of both signs are equal."""
    return pl.col(name) + 0.0 if rows.schema[name].is_float() else pl.col(name)


def _copies(values: list[str]) -> pl.Expr:
    return pl.int_range(pl.len(), dtype=pl.Int64).over(values).alias(_COPY)
