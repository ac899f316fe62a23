"""Tuples in the order of their keys and stamps, as arrays, and the results of functions over them.

place      0  1  2  3  4        a key is a run of places; the frame of a tuple is a range of places within it key
a  a  a  b  b stamp      3  3  7  1  9        frame of place 2, 4 us back: [0, 3)

**The results of functions over tuples in order: arrays of frames in, columns out.**

What a frame of all tuples so far needs is kept as a running result in the tuples themselves: that of the first one
that is still there stands for all before it. Sums of reals are added one value after the other, as they are and scaled
down so that no partial sum overflows; those of shorter frames anew for each frame. So no result depends on how tuples
are cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.fjord.partial_columns import LARGEST, SCALE, Reals, integer_means, wrapped_sums
from cluster.fjord.row_order import Places, reduced
from cluster.fjord.scalars import POLARS_TYPES
from cluster.operators.sequence import SequenceCall
from cluster.scalars.real_values import settled
from protocols.wire.streams import FieldType

Stamps = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class OrderedTuples:
    """Tuples, sorted by key, stamp and values.

    Parameters
    ----------
    keys
        A number for each key: equal ones lie together.
    stamps
        Their stamps.
    carried
        Those that were there before, whose running results are known.
    """

    keys: Places
    stamps: Stamps
    carried: Flags

    @cached_property
    def begins(self) -> Places:
        """By key: the place of its first tuple."""
        changes = np.diff(self.keys) != 0
        return np.flatnonzero(np.concatenate((np.ones(min(len(self.keys), 1), np.bool_), changes)))

    @cached_property
    def counts(self) -> Places:
        """By key: how many tuples it has."""
        return np.diff(np.append(self.begins, len(self.keys)))

    @cached_property
    def begin(self) -> Places:
        """By tuple: where its key begins."""
        return np.repeat(self.begins, self.counts)

    @cached_property
    def end(self) -> Places:
        """By tuple: where its key ends."""
        return np.repeat(self.begins + self.counts, self.counts)

    @cached_property
    def fresh(self) -> Places:
        """By tuple: where the tuples begin that the running result of its key does not contain yet.

        The result of the first tuple of a key that was there before stands for all before, and for itself.
        """
        return self.begin + self.carried[self.begin]

    @cached_property
    def peers_end(self) -> Places:
        """By tuple: the place behind the last tuple of its key with its stamp."""
        last = np.ones(len(self.keys), np.bool_)
        last[:-1] = (np.diff(self.keys) != 0) | (np.diff(self.stamps) != 0)
        ends = np.flatnonzero(last) + 1
        return np.repeat(ends, np.diff(np.concatenate(([0], ends))))

    @cached_property
    def carried_begins(self) -> Places:
        """Where the keys begin that were there before: the result of these places contains their own values."""
        return self.begins[self.carried[self.begins]]

    @cached_property
    def _numbered(self) -> tuple[Stamps, Places, Places]:
        """The stamps, each once; by tuple: a number of its key, and one of key and stamp, which rises."""
        known, ranks = np.unique(self.stamps, return_inverse=True)
        keys = np.repeat(np.arange(len(self.begins)), self.counts) * (len(known) + 1)
        return known, keys, keys + ranks

    def since(self, places: Places, range_us: int) -> Places:
        """Return, for each of some tuples, the first tuple of its key that is at most so much older."""
        return self._first(places, range_us, "left")

    def until(self, places: Places, older_us: int) -> Places:
        """Return, for each of some tuples, the place behind the last of its key that is at least so much older."""
        return self._first(places, older_us, "right") if older_us else self.peers_end[places]

    def _first(self, places: Places, older_us: int, side: Literal["left", "right"]) -> Places:
        """Return the first tuple of the same key that is at most so much older; on the right, that is less old."""
        known, keys, both = self._numbered
        wanted = np.searchsorted(known, self.stamps[places] - older_us, side=side)
        return np.searchsorted(both, keys[places] + wanted).astype(np.int64)

    def folded(self, values: NDArray[np.generic], combine: np.ufunc) -> NDArray[np.generic]:
        """Return the running result of each key, one value after the other: it depends on nothing but their order."""
        found = values.copy()
        several = self.counts > 1
        begins, counts = self.begins[several], self.counts[several]
        if len(begins) <= counts.max(initial=0):
            for begin, count in zip(begins.tolist(), counts.tolist(), strict=True):
                found[begin : begin + count] = combine.accumulate(values[begin : begin + count])
            return found
        for place in range(1, int(counts.max(initial=0))):
            at = begins[counts > place] + place
            found[at] = combine(found[at - 1], values[at])
        return found


def following(flags: Flags) -> Places:
    """Return, by place, the first place from there on that is marked; the length where there is none."""
    places = np.where(flags, np.arange(len(flags)), len(flags))
    return np.minimum.accumulate(places[::-1])[::-1]


def preceding(flags: Flags) -> Places:
    """Return, by place, the last place up to there that is marked; -1 where there is none."""
    return np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))


NOWHERE = -1
"""The place of a tuple that does not exist."""


@dataclass(frozen=True, slots=True)
class RunningColumn:
    """A running result that tuples keep: its name and type."""

    name: str
    type: type[pl.DataType]


def running_columns(calls: tuple[SequenceCall, ...], types: dict[str, type[pl.DataType]]) -> tuple[RunningColumn, ...]:
    """Return the running results that calls need, given the types of the columns that they read."""
    return tuple(column for number, call in enumerate(calls) for column in _running(number, call, types))


def _running(number: int, call: SequenceCall, types: dict[str, type[pl.DataType]]) -> Iterator[RunningColumn]:
    if not call.whole:
        return
    if call.function in ("count", "sum", "avg"):
        yield RunningColumn(f"fjord_count_{number}", pl.Int64)
    if call.function in ("sum", "avg"):
        yield RunningColumn(f"fjord_sum_{number}", pl.Float64 if _is_real(call) else pl.Int64)
        if _is_real(call):
            assert call.argument is not None  # noqa: S101 - only COUNT(*) has no argument
            integers = types[call.argument] is pl.Int64
            yield RunningColumn(
                f"fjord_{'integer' if integers else 'plain'}_{number}", pl.Int64 if integers else pl.Float64
            )
    if call.function in ("min", "max", "first") or (call.function == "last" and call.known):
        assert call.argument is not None  # noqa: S101 - only COUNT(*) has no argument
        yield RunningColumn(f"fjord_value_{number}", types[call.argument])


def _is_real(call: SequenceCall) -> bool:
    return call.type is FieldType.REAL


class SequenceResults:
    """Computes the results of calls over tuples in order.

    Parameters
    ----------
    rows
        The tuples, with the running results of those that were there before.
    order
        Their order.
    """

    def __init__(self, rows: pl.DataFrame, order: OrderedTuples) -> None:
        self._rows = rows
        self._order = order
        self.running: dict[str, pl.Series] = {}
        """By name: the running results of all tuples."""

    def result(self, number: int, call: SequenceCall, places: Places) -> pl.Series:
        """Return the results of a call for some tuples, and note its running results."""
        match call.function:
            case "lag" | "lead":
                found = self._neighbours(call, places)
            case "count" | "sum" | "avg":
                found = self._total(number, call, places)
            case "min" | "max":
                found = self._extreme(number, call, places)
            case "first" | "last":
                found = self._end(number, call, places)
        return settled(found.cast(POLARS_TYPES[call.type])).alias(call.name)

    def _partner(self, call: SequenceCall, places: Places) -> Places:
        """Return the places of the tuples that LAG or LEAD give the values of; NOWHERE where there is none."""
        assert call.rows is not None  # noqa: S101 - these have an offset
        order = self._order
        if call.function == "lag":
            found = places - call.rows
            exists = found >= order.begin[places]
        else:
            found = places + call.rows
            exists = found < order.end[places]
        found = np.where(exists, found, places)
        if call.within_us is not None:
            exists &= np.abs(order.stamps[found] - order.stamps[places]) <= call.within_us
        return np.where(exists, found, NOWHERE)

    def _neighbours(self, call: SequenceCall, places: Places) -> pl.Series:
        partners = self._partner(call, places)
        found = _taken(self._argument(call), partners)
        if call.default is None:
            return found
        return _taken(self._rows[call.default], places).zip_with(pl.Series(partners == NOWHERE), found)

    def _argument(self, call: SequenceCall) -> pl.Series:
        assert call.argument is not None  # noqa: S101 - only COUNT(*) has no argument
        return self._rows[call.argument]

    def _frame(self, call: SequenceCall, places: Places) -> tuple[Places, Places]:
        """Return where frames begin, and the places behind their ends; both are equal where a frame is empty."""
        order, begin = self._order, self._order.begin[places]
        high = order.until(places, call.until_us) if call.peers else np.maximum(places + 1 - call.until_rows, begin)
        if call.rows is not None:
            return np.maximum(places - call.rows, begin), high
        if call.range_us is not None:
            return order.since(places, call.range_us), high
        return begin, high

    def _total(self, number: int, call: SequenceCall, places: Places) -> pl.Series:
        counted = np.ones(len(self._rows), np.int64)
        if call.argument is not None:
            counted = self._argument(call).is_not_null().cast(pl.Int64).to_numpy()
        low, high = self._frame(call, places)
        counts = self._summed(f"fjord_count_{number}", call, counted, low, high)
        if call.function == "count":
            return pl.Series(counts)
        if not _is_real(call):
            values = self._argument(call).fill_null(0).to_numpy()
            sums = self._summed(f"fjord_sum_{number}", call, values, low, high)
            return pl.Series(sums).zip_with(pl.Series(counts > 0), pl.Series([None], dtype=pl.Int64))
        argument = self._argument(call)
        total = self._added(f"fjord_sum_{number}", call, _reals(argument) * SCALE, low, high)
        if argument.dtype == pl.Int64:
            exact = self._summed(f"fjord_integer_{number}", call, argument.fill_null(0).to_numpy(), low, high)
            return pl.Series(integer_means(exact, total, counts))
        plain = self._added(f"fjord_plain_{number}", call, _reals(argument), low, high)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            found, otherwise = plain, total / SCALE
            if call.function == "avg":
                found, otherwise = plain / counts, np.clip(total / counts, -LARGEST * SCALE, LARGEST * SCALE) / SCALE
        return pl.Series(np.where(counts > 0, np.where(np.isfinite(plain), found, otherwise), np.nan))

    def _added(self, name: str, call: SequenceCall, values: Reals, low: Places, high: Places) -> Reals:
        """Return the sums of reals over frames."""
        with np.errstate(invalid="ignore", over="ignore"):
            if call.whole:
                return self._folded(name, values, low, high)
            return _reduced(values, low, high, np.add, 0.0).astype(np.float64)

    def _summed(
        self, name: str, call: SequenceCall, values: NDArray[np.int64], low: Places, high: Places
    ) -> NDArray[np.int64]:
        """Return the sums of integers over frames: exact, and wrapping around."""
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)))
        if not call.whole:
            return sums[high] - sums[low]
        order = self._order
        before = np.where(order.carried, self._rows[name].fill_null(0).to_numpy(), 0)[order.begin]
        running = before + sums[1:] - sums[order.fresh]
        self.running[name] = pl.Series(name, running)
        return _last(running, low, high, 0)

    def _folded(self, name: str, values: Reals, low: Places, high: Places) -> Reals:
        own, begins = values.copy(), self._order.carried_begins
        own[begins] = self._rows[name].fill_null(0.0).to_numpy()[begins]
        running = self._order.folded(own, np.add)
        self.running[name] = pl.Series(name, running)
        return _last(running, low, high, 0.0).astype(np.float64)

    def _extreme(self, number: int, call: SequenceCall, places: Places) -> pl.Series:
        name = f"fjord_value_{number}"
        values = self._argument(call)
        if call.whole:
            values = pl.concat([values, self._rows[name]])
        combine, missing = (np.minimum, len(values) + 1) if call.function == "min" else (np.maximum, NOWHERE)
        ordered = values.cast(pl.Int8) if values.dtype == pl.Boolean else values
        ranks = ordered.rank("dense").cast(pl.Int64).fill_null(missing).to_numpy()
        sample = np.full(len(values) + 2, NOWHERE)
        sample[ranks] = np.arange(len(values))
        sample[missing] = NOWHERE
        low, high = self._frame(call, places)
        if not call.whole:
            return _taken(values, sample[_reduced(ranks, low, high, combine, missing)])
        own, begun = ranks[: len(self._rows)].copy(), ranks[len(self._rows) :]
        begins = self._order.carried_begins
        own[begins] = begun[begins]
        running = sample[self._order.folded(own, combine)]
        self.running[name] = _taken(values, running).alias(name)
        return _taken(values, _last(running, low, high, NOWHERE))

    def _end(self, number: int, call: SequenceCall, places: Places) -> pl.Series:
        values = self._argument(call)
        low, high = self._frame(call, places)
        if call.function == "last" and not call.known:
            return _taken(values, np.where(high > low, high - 1, NOWHERE))
        present = values.is_not_null().to_numpy() if call.known else np.ones(len(values), np.bool_)
        if not call.whole:
            if call.function == "first":
                found = following(present)[low]
                return _taken(values, np.where(found < high, found, NOWHERE))
            found = _last(preceding(present), low, high, NOWHERE)
            return _taken(values, np.where(found >= low, found, NOWHERE))
        name = f"fjord_value_{number}"
        both = pl.concat([values, self._rows[name]])
        running = self._whole_end(call, present, both)
        self.running[name] = _taken(both, running).alias(name)
        return _taken(both, _last(running, low, high, NOWHERE))

    def _whole_end(self, call: SequenceCall, present: Flags, both: pl.Series) -> Places:
        """Return, by tuple, the place of the first or last value so far; behind all places are the known results."""
        order, count = self._order, len(self._rows)
        kept = both[count:].is_not_null().to_numpy() if call.known else np.ones(count, np.bool_)
        begins = order.begin
        known = np.where(order.carried[begins] & kept[begins], count + begins, NOWHERE)
        places = np.arange(count)
        if call.function == "first":
            behind = np.append(following(present), count)
            own = np.where(behind[order.fresh] <= places, behind[order.fresh], NOWHERE)
            return np.where(known != NOWHERE, known, own)
        own = preceding(present)
        return np.where(own >= order.fresh, own, known)


def with_present_running(kept: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
    """Return tuples with the running results that are kept now, given those that an earlier version may have saved."""
    found = []
    for name in set(columns) - set(kept.columns):
        what, _, number = name.removeprefix("fjord_").partition("_")
        scaled = f"fjord_sum_{number}"
        if what in ("plain", "integer") and scaled in kept.columns:
            found.append(
                kept[scaled].alias(name) / SCALE if what == "plain" else wrapped_sums(kept[scaled]).alias(name)
            )
    return kept.with_columns(found)


def _last(running: NDArray[np.generic], low: Places, high: Places, empty: float) -> NDArray[Any]:
    """Return the running results of the last tuples of frames; `empty` for those without any."""
    return np.where(high > low, running[high - 1], running.dtype.type(empty))


def _reduced(
    values: NDArray[np.generic], low: Places, high: Places, combine: np.ufunc, empty: float
) -> NDArray[np.generic]:
    """Return the result of each of some ranges; `empty` for those without any place."""
    some = high > low
    found = np.full(len(low), empty, values.dtype)
    found[some] = reduced(values, low[some], high[some], combine)
    return found


def _reals(values: pl.Series) -> Reals:
    return values.cast(pl.Float64).fill_null(0.0).to_numpy()


def _taken(values: pl.Series, places: Places) -> pl.Series:
    """Return the values at some places, NULL for NOWHERE."""
    if not len(values):
        return pl.Series(values.name, [None] * len(places), values.dtype)
    wanted = pl.Series(np.where(places < 0, 0, places))
    return values.gather(wanted).zip_with(pl.Series(places >= 0), pl.Series([None], dtype=values.dtype))
