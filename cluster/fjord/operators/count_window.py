"""Count windows, plain, partitioned and shared (papers/pipes_algebra.md sections 3, 5.11 and 5.14, corrected form).

**Base of windows whose tuples stay until later ones push them out, however long that takes.**

    b    |--)--)--)--)--)              each b pushes out the one before
    a    |-----------)-----------)     no later a: it is cut at the watermark once it lags, and goes on from there

When a tuple enters, and which later one pushes it out, is for the kinds of windows by count to decide.

With N rows and a slide of A, tuple number i of its partition enters with tuple number ceil(i / A) * A and leaves with
tuple number ceil((i + N) / A) * A: its interval runs from the stamp of the one to the stamp of the other.

**Windows by count for queries that began at different times: samples are kept once for all that see them.**

ROWS 2; q1 sees all samples; q2 began when a, which is stamped later than b, had come, and b had not

    sample   b    a    c    d
    of q1    |---------)              b leaves as c enters, the second one behind it
    of q2    |--------------)         b leaves as d enters: q2 does not see a

The window of a query is the last samples of those that it sees. Samples are marked with the epoch of the newest query
at their arrival (``VISIBLE_FROM``), and queries between two marks see the same ones. Where samples came in the order of
their stamps, those that a younger query sees are the last ones of all, and both have the same end. Else the older query
loses a sample earlier, never later: it sees more samples behind it. From then on the sample is one of the younger
queries only: of those that began after ``SUPERSEDED_UNTIL``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.live_marks import BEFORE_ALL, LiveMarks, epochs_of, marks_of
from cluster.fjord.operators.ordered_output import StartOrdered, table_of
from cluster.fjord.row_flow import RowFlow, lasting, windowed
from cluster.fjord.running_kind import Alone, InputFlows, PassesNoOrigins, RuntimeContext, StateEstimate, Subscribed
from cluster.fjord.state_rows import StateRows, with_numbers
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import ORIGIN, QUERY_GROUP, SUPERSEDED_UNTIL, VISIBLE_FROM
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.rules.pieces import MOST_LAG_US

BEGINS = "fjord_begins"
"""Where a waiting tuple entered the window, or was cut; NULL for one that has not entered."""
_LAGS = "fjord_lags"


class LaggingWindow(StartOrdered):
    """Keeps the tuples whose end is not known yet.

    A tuple leaves when its end is known, whatever other tuples wait for. One that stays holds back the watermark of the
    answer, and with it all operators above; so a tuple that lags by more than `lag_us` is emitted up to the watermark
    of the input, and goes on from there. Snapshots do not depend on the cuts, rows do: every key whose tuples stay
    costs all of these once more per `lag_us`.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    keys
        A window of its own for each combination of these columns; of none for one window.
    lag_us
        How far the answer's watermark may be behind the input's; None for no limit, where no operator above waits.
    kept
        Names of whole numbers that are kept with each tuple.
    shown
        Those of them that the answer has behind the columns of the input.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        keys: Iterable[str],
        lag_us: int | None,
        *,
        kept: Sequence[str],
        shown: Sequence[str] = (),
    ) -> None:
        super().__init__(columns)
        self._keys = list(dict.fromkeys(keys))  # a rewritten plan may name a key twice
        self._lag_us = lag_us
        self._columns = [*columns.columns, *shown]
        numbers = (pl.lit(None, pl.Int64).alias(name) for name in (*kept, BEGINS))
        self._waiting = columns.clear().with_columns(numbers)

    def _take(self, batch: Batch) -> Batch:
        """Process tuples; emit those whose interval is known now, and those that lag too far behind."""
        watermark_us = batch.watermark_us
        emitted = []
        if batch.rows.height:
            self._add(batch.rows)
        if batch.rows.height or watermark_us >= NEVER:
            emitted.append(self._leave(watermark_us))
        emitted.append(self._cut(watermark_us))
        earliest = self._earliest()
        answer = pl.concat(emitted).sort(START, maintain_order=True)
        return Batch(answer, watermark_us if earliest is None else min(watermark_us, earliest))

    @abstractmethod
    def _add(self, rows: pl.DataFrame) -> None:
        """Let new tuples wait, which are in order."""

    @abstractmethod
    def _leave(self, watermark_us: int) -> pl.DataFrame:
        """Remove and return the tuples whose end is known, from where they begin to there."""

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all tuples that have entered are cut at the frontier."""
        self._lag_us = 0
        return super().ahead(frontier_us, inputs)

    def _cut(self, watermark_us: int) -> pl.DataFrame:
        """Return, up to the watermark, the tuples of keys that lag too far behind it."""
        nothing = self._waiting.clear().select(self._columns)
        earliest = self._earliest()
        if self._lag_us is None or earliest is None:
            return nothing
        latest_us = watermark_us - self._lag_us
        if earliest >= latest_us:
            return nothing
        # All tuples of a key at once: the rows made of them above are then cut once, not once for each.
        lags = pl.col(BEGINS).min()
        marked = self._waiting.with_columns(((lags.over(self._keys) if self._keys else lags) < latest_us).alias(_LAGS))
        staying = pl.col(_LAGS).fill_null(value=False) & (pl.col(BEGINS) < watermark_us)
        pieces = marked.filter(staying).with_columns(
            pl.col(BEGINS).alias(START), pl.lit(watermark_us, pl.Int64).alias(END)
        )
        begins = pl.when(staying).then(watermark_us).otherwise(BEGINS).alias(BEGINS)
        self._waiting = marked.with_columns(begins).select(self._waiting.columns)
        return pieces.select(self._columns)

    def _earliest(self) -> int | None:
        """Return the first begin of the tuples that have entered and stay."""
        earliest = self._waiting.select(pl.col(BEGINS).min()).item()
        return None if earliest is None else int(earliest)

    def save(self) -> State:
        """Return the waiting tuples."""
        return {**super().save(), "waiting": self._waiting}


def rows_by_count(rows: int | None, slide_rows: int, keys: Iterable[str]) -> float:
    """Return how many tuples a window by count has of all its keys: those in it, and those of the incomplete slide.

    Of a shared one, a younger query has tuples that an older one has, too: so many for all of them.
    """
    partitioned = set(keys) - {QUERY_GROUP.name}
    return float((rows or 0) + slide_rows - 1) * (KEYS_ASSUMED if partitioned else 1)


_NUMBER, _COUNT = "fjord_number", "fjord_count"
_ENTERS, _LEAVES = "fjord_enters", "fjord_leaves"
_ENTERS_AT, _LEAVES_AT = "fjord_enters_at", "fjord_leaves_at"


class CountWindow(LaggingWindow):
    """Keeps of each key the last `rows` tuples, and at most a slide of newer ones.

    Equal stamps count in order of arrival.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    rows
        How many tuples stay; None for all.
    slide_rows
        The window slides after so many tuples.
    keys
        A window of its own for each combination of these columns.
    lag_us
        How far the answer's watermark may be behind the input's; None for no limit.
    origins
        Whether the answer has where tuples entered, although they were cut since.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        rows: int | None,
        slide_rows: int,
        keys: tuple[str, ...] = (),
        *,
        lag_us: int | None = MOST_LAG_US,
        origins: bool = False,
    ) -> None:
        if slide_rows < 1 or (rows is not None and rows < 1):
            raise PlanError(f"a window of {rows} rows that slides by {slide_rows}")
        shown = (ORIGIN.name,) if origins else ()
        super().__init__(columns, keys, lag_us, kept=(_NUMBER, *shown), shown=shown)
        self._origins = origins
        self._rows = rows
        self._slide = slide_rows
        self._counts = columns.clear().select(*self._keys, pl.lit(0, pl.Int64).alias(_COUNT))
        self._owed = columns.clear()
        """Rows that an earlier version of this operator had yet to emit when its state was saved."""

    def _take(self, batch: Batch) -> Batch:
        """Process tuples; emit also what an earlier version owes."""
        answer = super()._take(batch)
        if not self._owed.height:
            return answer
        rows = pl.concat([self._owed, answer.rows]).sort(START, maintain_order=True)
        self._owed = self._owed.clear()
        return Batch(rows, answer.watermark_us)

    def _add(self, rows: pl.DataFrame) -> None:
        """Number the new tuples of each partition, continuing from its last number."""
        number = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
        if self._keys:
            numbered = rows.with_columns(number.over(self._keys).alias(_NUMBER)).join(
                self._counts, on=self._keys, how="left", nulls_equal=True, maintain_order="left"
            )
            numbered = numbered.with_columns(pl.col(_NUMBER) + pl.col(_COUNT).fill_null(0))
            latest = numbered.group_by(self._keys, maintain_order=True).agg(pl.col(_NUMBER).max().alias(_COUNT))
            both = pl.concat([self._counts, latest])
            self._counts = both.group_by(self._keys, maintain_order=True).agg(pl.col(_COUNT).max())
        else:
            before = int(self._counts[_COUNT].max() or 0)  # type: ignore[arg-type] # a column of integers
            numbered = rows.with_columns((number + before).alias(_NUMBER))
            self._counts = numbered.select(pl.col(_NUMBER).max().alias(_COUNT))
        new = numbered.with_columns(pl.lit(None, pl.Int64).alias(name) for name in (BEGINS, ORIGIN.name))
        self._waiting = pl.concat([self._waiting, new.select(self._waiting.columns)])

    def _leave(self, watermark_us: int) -> pl.DataFrame:
        """Let tuples enter and leave; return those that have left."""
        entered = self._entered(self._waiting)
        leaves = pl.lit(None, pl.Int64) if self._rows is None else self._multiple(pl.col(_NUMBER) + self._rows)
        known = self._look_up(entered.with_columns(leaves.alias(_LEAVES)), _LEAVES)
        if self._rows is None or watermark_us >= NEVER:
            # No later tuple will push them out.
            known = known.with_columns(pl.col(_LEAVES_AT).fill_null(NEVER))
        done = pl.col(BEGINS).is_not_null() & pl.col(_LEAVES_AT).is_not_null()
        self._waiting = known.filter(~done).select(self._waiting.columns)
        left = known.filter(done).with_columns(pl.col(BEGINS).alias(START), pl.col(_LEAVES_AT).alias(END))
        return left.filter(pl.col(START) < pl.col(END)).select(self._columns)

    def _multiple(self, number: pl.Expr) -> pl.Expr:
        return ((number + self._slide - 1) // self._slide) * self._slide

    def _entered(self, waiting: pl.DataFrame) -> pl.DataFrame:
        """Return waiting tuples, with the begin of those that have entered."""
        enters = self._multiple(pl.col(_NUMBER)).alias(_ENTERS)
        found = self._look_up(waiting.with_columns(enters), _ENTERS)
        begun = found.with_columns(pl.coalesce(BEGINS, _ENTERS_AT).alias(BEGINS))
        return begun.with_columns(pl.coalesce(ORIGIN.name, BEGINS).alias(ORIGIN.name)) if self._origins else begun

    def _look_up(self, rows: pl.DataFrame, number: str) -> pl.DataFrame:
        """Add the stamp of the tuple with a number, NULL if it has not come yet."""
        found = rows.select(*self._keys, pl.col(_NUMBER).alias(number), pl.col(START).alias(f"{number}_at"))
        return rows.join(found, on=[*self._keys, number], how="left", nulls_equal=True, maintain_order="left")

    def save(self) -> State:
        """Return the waiting tuples, and the count of tuples of each key."""
        return {**super().save(), "counts": self._counts}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        waiting, self._counts = table_of(state, "waiting"), table_of(state, "counts")
        if BEGINS not in waiting.columns:  # an earlier version cut nothing, and held rows back
            waiting = self._entered(waiting.with_columns(pl.lit(None, pl.Int64).alias(BEGINS)))
            self._owed = table_of(state, "held")
        if self._origins and ORIGIN.name not in waiting.columns:
            # An earlier version knew only where it had cut them; where each tuple enters by itself, that is its stamp.
            waiting = waiting.with_columns(
                pl.when(pl.col(BEGINS).is_not_null()).then(START if self._slide == 1 else BEGINS).alias(ORIGIN.name)
            )
        self._waiting = waiting.select(self._waiting.columns)


@final
class RunningCountWindow(Alone[kinds.CountWindow]):
    """A window by count."""

    def operator(self, operation: kinds.CountWindow, *, origins: bool = False) -> Operator:
        """Return the operator, whose rows have origins or not."""
        rows, shape = empty_rows(operation.columns), (operation.rows, operation.slide_rows, operation.keys)
        return CountWindow(rows, *shape, lag_us=operation.lag_us, origins=origins)

    def with_origins(self, operation: kinds.CountWindow, context: RuntimeContext) -> Operator:
        """Return one that notes where tuples entered."""
        del context
        return self.operator(operation, origins=True)

    def flow(self, operation: kinds.CountWindow, inputs: InputFlows) -> RowFlow:
        """Return rows that are valid for no known time, so many at an instant as the window has."""
        most = rows_by_count(operation.rows, operation.slide_rows, operation.keys)
        return lasting(windowed(inputs.first), None, most)

    def kept(self, operation: kinds.CountWindow, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the tuples that the window has."""
        del node, estimate
        return StateRows(rows_by_count(operation.rows, operation.slide_rows, operation.keys), operation.columns)


_SEEN, _AFTER = VISIBLE_FROM.name, SUPERSEDED_UNTIL.name
_PLACE = "fjord_place"


class SharedCountWindow(LaggingWindow):
    """Keeps of each key the last `rows` samples that each query sees.

    Equal stamps count in order of arrival. Marks are raised here, as samples come: those of what leaves are the marks
    of the queries there are, and the extents above take them as they are.

    Parameters
    ----------
    columns
        No rows, with the columns of the input, among them the marks.
    rows
        How many samples stay.
    keys
        A window of its own for each combination of these columns, with the query group.
    epochs
        By query group: with which its queries began.
    lag_us
        How far the answer's watermark may be behind the input's.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        rows: int,
        keys: tuple[str, ...],
        epochs: Mapping[int, Iterable[int]],
        *,
        lag_us: int = MOST_LAG_US,
    ) -> None:
        if rows < 1:
            raise PlanError(f"a window of {rows} rows")
        super().__init__(columns, keys, lag_us, kept=(_AFTER,), shown=(_AFTER,))
        self._rows = rows
        self._marks = LiveMarks(epochs)

    def _add(self, rows: pl.DataFrame) -> None:
        """Let samples wait, with the marks of the queries there are; each begins where it enters."""
        new = rows.with_columns(pl.lit(BEFORE_ALL, pl.Int64).alias(_AFTER), pl.col(START).alias(BEGINS))
        self._waiting = pl.concat([self._waiting, self._marks.of(new.select(self._waiting.columns))])

    def _leave(self, watermark_us: int) -> pl.DataFrame:
        """Let samples leave; return those that have left, each with the queries for which it has."""
        found = self._with_ends()
        if watermark_us >= NEVER:  # no later sample will push them out
            found = found.with_columns(pl.col(_LEAVES_AT).fill_null(NEVER))
        stays = pl.col(_LEAVES_AT).is_null()
        self._waiting = found.filter(stays).select(self._waiting.columns)
        left = found.filter(~stays).with_columns(pl.col(BEGINS).alias(START), pl.col(_LEAVES_AT).alias(END))
        return left.filter(pl.col(START) < pl.col(END)).select(self._columns)

    def _with_ends(self) -> pl.DataFrame:
        """Return the samples with when they leave, NULL if that is not known; one row for each end that one has."""
        leaves = pl.col(START).shift(-self._rows).over(self._keys).alias(_LEAVES_AT)
        marks = marks_of(self._waiting)
        if len(marks) <= 1:
            return self._waiting.with_columns(leaves)
        placed = self._waiting.with_row_index(_PLACE)
        pieces = []
        for before, mark in zip([BEFORE_ALL, *marks], marks, strict=False):
            seen = placed.filter((pl.col(_SEEN) >= mark) & (pl.col(_AFTER) < mark)).with_columns(leaves)
            pieces.append(
                seen.with_columns(pl.lit(before, pl.Int64).alias(_AFTER), pl.lit(mark, pl.Int64).alias(_SEEN))
            )
        merged = [pl.col(_AFTER).min(), pl.col(_SEEN).max(), pl.exclude(_AFTER, _SEEN, _PLACE, _LEAVES_AT).first()]
        return pl.concat(pieces).group_by(_PLACE, _LEAVES_AT).agg(merged).sort(_PLACE, _AFTER)

    def restore(self, state: State) -> None:
        """Restore them, perhaps for other queries; forget those that none of these may see."""
        super().restore(state)
        self._waiting = self._marks.of(table_of(state, "waiting").select(self._waiting.columns))


@final
class RunningSharedCountWindow(PassesNoOrigins, Subscribed[kinds.SharedCountWindow]):
    """A window by count that several queries share."""

    def operator(self, operation: kinds.SharedCountWindow, fragment: Fragment) -> Operator:
        """Return the operator for the epochs of the queries."""
        rows, epochs = empty_rows(operation.columns), epochs_of(fragment.subscribers)
        return SharedCountWindow(rows, operation.rows, operation.keys, epochs, lag_us=operation.lag_us)

    def flow(self, operation: kinds.SharedCountWindow, inputs: InputFlows) -> RowFlow:
        """Return rows that are valid for no known time, so many at an instant as the window has."""
        return lasting(windowed(inputs.first), None, rows_by_count(operation.rows, 1, operation.keys))

    def kept(self, operation: kinds.SharedCountWindow, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the tuples that the window has."""
        del node, estimate
        columns = with_numbers((*operation.columns, SUPERSEDED_UNTIL), "begins")
        return StateRows(rows_by_count(operation.rows, 1, operation.keys), columns)
