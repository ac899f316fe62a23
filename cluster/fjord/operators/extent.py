"""Extents: the samples that are valid at an instant, coalesced (docs/reference/sql/intervals.md, "Coalescing").

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
from typing import final

import numpy as np
import polars as pl

from cluster.fjord.batch import ALWAYS, END, INTERVAL, NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.live_marks import BEFORE_ALL
from cluster.fjord.operators.ordered_output import StartOrdered, number_of, table_of
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.row_order import group_numbers, places_by
from cluster.fjord.running_kind import Alone, PassesRows, RuntimeContext, StateEstimate, alive_below
from cluster.fjord.scalars import compile_scalar
from cluster.fjord.state_rows import StateRows, with_numbers
from cluster.operators.extent import Coalescing
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode
from cluster.temporal.run_versions import NONE, Samples, Versions, of_runs, of_snapshots, pairs_of_snapshots
from cluster.temporal.windows import Flags, Whole

SINCE = "fjord_since_us"
"""How the columns begin that have since when rows have been the same."""
LINKED = "fjord_linked"
"""Whether a sample goes on with the one before; NULL if that is not known yet."""
Mark = int | None
"""The mark of samples, and all later ones; None for all there are."""


class Shown:
    """One way in which samples are coalesced, and what is kept of it.

    Parameters
    ----------
    how
        The way.
    keys
        Whose samples are coalesced together.
    suffix
        Distinguishes its columns from those of others.
    """

    def __init__(self, how: Coalescing, keys: Sequence[str], suffix: str = "") -> None:
        self.how = how
        self.columns = list(dict.fromkeys((*keys, *how.columns)))
        self.order = [*keys, how.stamp, *(name for name in how.ties if name not in keys)]
        self._suffix = suffix

    def since(self, mark: Mark) -> str:
        """Return the column that has, with the first sample of a row, since when it has been the same."""
        return f"{SINCE}{self._suffix}{'' if mark is None else f' {mark}'}"

    def linked(self, ordered: pl.DataFrame, earlier: Whole, later: Whole) -> Flags:
        """Return whether samples go on with others.

        Parameters
        ----------
        ordered
            Samples.
        earlier, later
            The places in them, pair by pair.
        """
        if not len(later):
            return np.zeros(0, np.bool_)
        link = self.how.link
        if link is None:
            equal = np.ones(len(later), np.bool_)
            for name in self.how.columns:
                column = ordered[name]
                equal &= column[later].eq_missing(column[earlier]).to_numpy()
            return equal
        before = [ordered[column][earlier].alias(name) for name, column in link.before]
        found = ordered[later].with_columns(before).with_columns(compile_scalar(link.condition).alias(LINKED))
        return found[LINKED].fill_null(value=False).to_numpy()


_MEETS, _COPY, _LATER = "fjord_meets", "fjord_copy", "fjord_later"
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
        needed = [each for each in columns.columns if each in {*keys, *coalescing.reads}]
        self._lag_us = lag_us
        self._begin_with(columns, keys, needed, [Shown(coalescing, keys)], eager=coalescing.kept == "eager")

    def _begin_with(
        self,
        columns: pl.DataFrame,
        keys: Sequence[str],
        needed: Sequence[str],
        shown: Sequence[Shown],
        *,
        eager: bool,
    ) -> None:
        StartOrdered.__init__(self, columns)
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._columns = [START, END, *needed]
        self._values = list(needed)
        self._shown = shown
        self._eager = eager
        state = {LINKED: pl.lit(None, pl.Boolean)} if eager else {}
        self._state = state | {each.since(None): pl.lit(NONE, pl.Int64) for each in shown if not self._marked}
        self._kept = columns.clear().select(self._columns).with_columns(**self._state)
        self._reached_us = ALWAYS

    _marked = False
    """Whether samples have marks, by which queries see them or do not."""

    def _take(self, batch: Batch) -> Batch:
        """Take samples, and emit the rows that have changed."""
        self._add(batch.rows.select(self._columns))
        before_us, until_us = self._reached_us, max(self._reached_us, batch.watermark_us)
        # Where nothing may lag, rows are cut even at an instant up to which they have been known before.
        goes_on = (until_us > before_us or self._lag_us == 0) and self._kept.height > 0
        emitted = self._advanced(before_us, until_us) if goes_on else self._nothing()
        self._reached_us = until_us
        firsts = [self._kept.select(pl.col(name).filter(pl.col(name) != NONE).min()).item() for name in self._open()]
        return Batch(emitted, min([until_us, *(int(each) for each in firsts if each is not None)]))

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all rows that are there are cut at the frontier."""
        self._lag_us = 0
        return super().ahead(frontier_us, inputs)

    def _open(self) -> list[str]:
        """Return the columns with the instants since when rows have been the same."""
        return [name for name in self._kept.columns if name.startswith(SINCE)]

    def _add(self, rows: pl.DataFrame) -> None:
        """Keep samples; one that has been cut goes on as one."""
        if rows.height and self._kept.height:
            rows = self._continued(rows)
        if rows.height:
            self._kept = pl.concat([self._kept, rows.with_columns(**self._state)], how="diagonal")
            self._kept = self._kept.with_columns(pl.col(name).fill_null(NONE) for name in self._open())

    def _continued(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Prolong the samples that go on where they were cut; return the others."""
        meeting = pl.col(END).is_in(rows[START].unique().implode())
        if not self._kept.select(meeting.any()).item():
            return rows
        same = [*self._values, _MEETS, _COPY]
        kept = self._kept.with_columns(pl.col(END).alias(_MEETS)).with_columns(_copies([*self._values, _MEETS]))
        found = rows.with_columns(pl.col(START).alias(_MEETS)).with_columns(_copies([*self._values, _MEETS]))
        later = found.select(*same, pl.col(END).alias(_LATER))
        longer = kept.join(later, on=same, how="left", nulls_equal=True, maintain_order="left")
        if longer[_LATER].null_count() == longer.height:
            return rows
        self._kept = longer.with_columns(pl.coalesce(_LATER, END).alias(END)).select(self._kept.columns)
        new = found.join(kept.select(same), on=same, how="anti", nulls_equal=True, maintain_order="left")
        return new.select(self._columns)

    def _marks(self, since_us: int) -> list[Mark]:
        """Return the marks, ascending, of samples that do not leave before an instant."""
        del since_us
        return [None]

    def _advanced(self, before_us: int, until_us: int) -> pl.DataFrame:
        """Return the rows that have changed up to an instant, and those that have lasted too long."""
        marks, left = self._marks(ALWAYS), self._marks(until_us)
        self._kept = self._kept.with_columns(self._begun(marks))
        changing, rest = self._of_keys(self._moving(before_us, until_us) if marks == left else pl.lit(value=True))
        if not changing.height:
            return self._nothing()
        own = self._order()
        changing = changing[places_by(changing, own)]
        self.companions += self._met(changing, before_us, until_us)
        emitted = []
        state: dict[str, pl.Series] = {}
        for each in self._shown:
            order = np.arange(changing.height) if each.order == own else places_by(changing, each.order)
            ordered, back = changing[order], np.argsort(order)
            if self._eager:
                ordered = self._compared(ordered)
                state[LINKED] = ordered[LINKED][back]
            for before, mark in zip([BEFORE_ALL, *marks], marks, strict=False):
                # Where samples have gone that only some could see, others see the same from then on.
                cut = mark not in left or (before != BEFORE_ALL and before not in left)
                rows, since = self._changed(ordered, each, mark, (before_us, until_us), cut=cut)
                emitted.append(self._for_queries(rows, each, before, mark))
                if mark in left:
                    state[each.since(mark)] = pl.Series(since[back])
        kept = changing.drop(self._open()).with_columns(**state)
        kept = self._without_gone(kept, until_us)
        self._kept = pl.concat([kept, rest.select(kept.columns)])
        return pl.concat(emitted).sort(START, maintain_order=True)

    def _met(self, changing: pl.DataFrame, before_us: int, until_us: int) -> int:
        """Return, for all samples together that have entered, how many of their keys are there in the end."""
        if until_us >= NEVER:
            return 0
        groups = group_numbers(changing, self._keys)
        entered = (changing[START].to_numpy() >= before_us) & (changing[START].to_numpy() < until_us)
        size = int(groups[-1]) + 1
        there = np.bincount(groups[changing[END].to_numpy() >= until_us], minlength=size)
        return int(np.bincount(groups[entered], minlength=size) @ there)

    def _order(self) -> list[str]:
        """Return by what samples are sorted that no extent distinguishes: always the same; the first has its row's."""
        return self._shown[0].order

    def _begun(self, marks: Sequence[Mark]) -> list[pl.Expr]:
        """Return the columns of marks that have not been there.

        Up to now, queries that see samples with a mark have seen the rows of later ones: a sample may have waited.
        """
        known, found = self._open(), []
        for each in self._shown:
            later = pl.lit(NONE, pl.Int64)
            for mark in reversed(marks):
                name = each.since(mark)
                if name in known:
                    later = pl.col(name)
                else:
                    found.append(later.alias(name))
        return found

    def _moving(self, before_us: int, until_us: int) -> pl.Expr:
        """Return which samples enter or leave, or begin a row that has lasted too long."""
        if until_us >= NEVER:
            return pl.lit(value=True)
        times = [pl.col(each) for each in INTERVAL]
        moves = pl.any_horizontal((each >= before_us) & (each < until_us) for each in times)
        if self._lag_us is None:
            return moves
        since = [pl.col(name) for name in self._open()]
        return moves | pl.any_horizontal((each != NONE) & (each <= until_us - self._lag_us) for each in since)

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

    def _changed(
        self, ordered: pl.DataFrame, shown: Shown, mark: Mark, span_us: tuple[int, int], *, cut: bool
    ) -> tuple[pl.DataFrame, Whole]:
        """Return the rows that have changed in a span of time or are cut behind it, and since when others are the same.

        Parameters
        ----------
        ordered
            Samples in their order.
        shown, mark
            How they are coalesced, and which of them.
        span_us
            From when until when.
        cut
            Whether all rows are cut.
        """
        seen = self._seen(ordered, mark)
        if not len(seen):
            return self._nothing_of(shown), np.full(ordered.height, NONE)
        samples = self._samples(ordered, seen, shown.since(mark))
        rows, since = [], samples.since
        for start_us, end_us in self._steps(samples, *span_us):
            found = self._versions(ordered, seen, shown, samples.with_rows(since), (start_us, end_us))
            until, since = found.until.copy(), np.full(len(seen), NONE)
            if end_us == span_us[1]:
                lag_us = 0 if cut or end_us >= NEVER else self._lag_us
                if lag_us is not None:
                    until[(until == NONE) & (found.since <= end_us - lag_us)] = min(end_us, NEVER)
            goes_on = found.until == NONE
            since[found.first[goes_on]] = np.where(until == NONE, found.since, until)[goes_on]
            rows.append(self._rows(ordered[seen[found.first]], shown, found, until))
        everywhere = np.full(ordered.height, NONE)
        everywhere[seen] = since
        return pl.concat(rows), everywhere

    def _seen(self, ordered: pl.DataFrame, mark: Mark) -> Whole:
        """Return the places of samples with a mark or later ones."""
        del mark
        return np.arange(ordered.height)

    def _samples(self, ordered: pl.DataFrame, seen: Whole, since: str) -> Samples:
        stamp = self._shown[0].how.stamp
        times = (ordered[name].to_numpy()[seen] for name in (START, END, stamp, since))
        return Samples(group_numbers(ordered, self._keys)[seen], *times)

    def _steps(self, samples: Samples, before_us: int, until_us: int) -> list[tuple[int, int]]:
        """Return spans of time with so few changes that what is there at each fits into memory."""
        if self._eager and samples.in_turn:
            return [(before_us, until_us)]
        pairs = pairs_of_snapshots(samples, before_us, until_us)
        times = np.unique(np.concatenate((samples.enters, samples.leaves)))
        times = times[(times > before_us) & (times < until_us)]
        cuts = times[:: max(len(times) * _MOST_PAIRS // max(pairs, 1), 1)].tolist() if pairs > _MOST_PAIRS else []
        return list(zip([before_us, *cuts], [*cuts, until_us], strict=True))

    def _versions(
        self, ordered: pl.DataFrame, seen: Whole, shown: Shown, samples: Samples, span_us: tuple[int, int]
    ) -> Versions:
        def linked(earlier: Whole, later: Whole) -> Flags:
            return self._are_linked(ordered, shown, seen[earlier], seen[later])

        if not self._eager or not samples.in_turn:
            return of_snapshots(samples, linked, *span_us)
        goes_on = ordered[LINKED].to_numpy()[seen]
        beside = np.flatnonzero((np.diff(seen) > 1) & (np.diff(samples.groups) == 0)) + 1
        if len(beside):
            goes_on = goes_on.copy()
            goes_on[beside] = linked(beside - 1, beside)
        goes_on = goes_on & np.append(False, np.diff(samples.groups) == 0)[: len(seen)]
        return of_runs(samples, ~goes_on, *span_us)

    def _compared(self, ordered: pl.DataFrame) -> pl.DataFrame:
        """Compare the samples that have another one before them than they had."""
        open_ = ordered[LINKED].is_null().to_numpy()
        open_ = open_ | np.append(False, open_[:-1])
        goes_on = ordered[LINKED].fill_null(value=False).to_numpy(writable=True)
        goes_on[open_] = False
        groups = group_numbers(ordered, self._keys)
        places = np.flatnonzero(open_)
        places = places[places > 0]
        places = places[groups[places] == groups[places - 1]]
        goes_on[places] = self._are_linked(ordered, self._shown[0], places - 1, places)
        return ordered.with_columns(pl.Series(LINKED, goes_on, pl.Boolean))

    def _are_linked(self, ordered: pl.DataFrame, shown: Shown, earlier: Whole, later: Whole) -> Flags:
        """Return whether samples go on with others; count both."""
        found = shown.linked(ordered, earlier, later)
        self.neighbours += len(found)
        self.linked += int(np.count_nonzero(found))
        return found

    def _without_gone(self, kept: pl.DataFrame, until_us: int) -> pl.DataFrame:
        """Return the samples that are still needed, in their order."""
        if until_us >= NEVER:
            return kept.clear()
        left = kept[END].to_numpy() >= until_us
        if self._eager:
            # Where a sample goes from between two others, these become neighbours.
            alone = np.zeros(len(left), np.bool_)
            alone[1:] = left[1:] & ~left[:-1]
            kept = kept.with_columns(pl.when(pl.Series(alone)).then(None).otherwise(LINKED).alias(LINKED))
        return kept.filter(pl.Series(left))

    def _rows(self, first: pl.DataFrame, shown: Shown, found: Versions, until: Whole) -> pl.DataFrame:
        """Return rows that have changed or been cut, given their first samples."""
        begin, end = shown.how.bounds
        intervals: dict[str, pl.Series | Whole] = {
            START: found.since,
            END: until,
            begin: first[shown.how.stamp],
            end: found.ends,
        }
        columns = [pl.Series(name, values, pl.Int64) for name, values in intervals.items()]
        rows: pl.DataFrame = first.select(shown.columns).with_columns(columns)
        done = (pl.col(END) != NONE) & (pl.col(START) < pl.col(END))
        return rows.filter(done).select(START, END, *shown.columns, begin, end)

    def _for_queries(self, rows: pl.DataFrame, shown: Shown, before: Mark, mark: Mark) -> pl.DataFrame:
        """Return rows of samples with a mark or later ones as those of the queries that began after another one."""
        del shown, before, mark
        return rows

    def _nothing_of(self, shown: Shown) -> pl.DataFrame:
        nowhere = np.empty(0, np.int64)
        return self._rows(self._kept.clear(), shown, Versions(nowhere, nowhere, nowhere, nowhere), nowhere)

    def _nothing(self) -> pl.DataFrame:
        return self._for_queries(self._nothing_of(self._shown[0]), self._shown[0], BEFORE_ALL, None)

    def save(self) -> State:
        """Return the samples, and up to where rows have been answered."""
        return {**super().save(), "kept": self._kept, "reached_us": self._reached_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        self._kept = table_of(state, "kept").select(self._kept.columns)
        self._reached_us = number_of(state, "reached_us")


def _copies(values: list[str]) -> pl.Expr:
    return pl.int_range(pl.len(), dtype=pl.Int64).over(values).alias(_COPY)


@final
class RunningExtent(PassesRows, Alone[kinds.Extent]):
    """An extent of one query."""

    def operator(self, operation: kinds.Extent) -> Operator:
        """Return the operator."""
        rows = empty_rows(operation.columns)
        return Extent(rows, operation.keys, operation.coalescing, lag_us=operation.lag_us)

    def with_origins(self, operation: kinds.Extent, context: RuntimeContext) -> Operator:
        """Return one that puts together what goes on."""
        return ChainedPieces(self.instantiate(operation, context), made_of=False)

    def kept(self, operation: kinds.Extent, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the samples that are valid, each with since when its row has been the same."""
        return StateRows(alive_below(node, estimate), with_numbers(operation.columns, "since"))
