"""Chains of pieces: a piece that goes on where another ended has its origin.

    pieces     |-------)-------)   |---)-----)
    goes on             yes             yes
    origins    1       1           13  13

A chain may go on in a later batch: the origins of pieces are kept until the watermark has passed their ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

import polars as pl

from cluster.fjord.batch import END, INTERVAL, START
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import table_of
from cluster.fjord.operators.origins import MADE_OF, AroundOperator, with_origins, without_origins
from cluster.operators.columns import ORIGIN

_PLACE = "fjord_place"


CHAINS = "origins"
"""The name under which chains are in saved states."""


class _Ends:
    """Where chains of one key have ended, with their origins."""

    def __init__(self) -> None:
        self._at: dict[int, list[int]] = {}

    def add(self, end: int, origin: int) -> None:
        heappush(self._at.setdefault(end, []), origin)

    def taken(self, start: int) -> int:
        """Return the origin of a piece: that of the earliest chain that has ended there, or its own start."""
        met = self._at.get(start)
        return heappop(met) if met else start

    def passed(self, start: int, end: int, origin: int) -> Iterator[tuple[int, int]]:
        """Let a copy that lasts take the place of those that end meanwhile and began before; yield when and whose."""
        for instant in sorted(each for each in self._at if start < each < end):
            met = self._at[instant]
            if met and met[0] < origin:
                origin = heapreplace(met, origin)
                yield instant, origin

    def since(self, instant: int) -> Iterator[tuple[int, int]]:
        """Yield the ends not before an instant, with their origins."""
        return ((end, origin) for end, origins in self._at.items() if end >= instant for origin in origins)


class PieceChains:
    """Keeps, by key, up to where chains have come.

    Parameters
    ----------
    keys
        Names of the columns in which the pieces of a chain agree; None for all.
    """

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        self._names = keys
        self._ended: pl.DataFrame | None = None

    def in_turn(self, pieces: pl.DataFrame, goes_on: pl.Series, watermark_us: int) -> pl.DataFrame:
        """Return pieces with their origins as the last column; those with one key come one after the other.

        Parameters
        ----------
        pieces
            All that have come since, without origins.
        goes_on
            Which of them go on where the last one before ended.
        watermark_us
            No later piece starts before it.
        """
        before, keys = self._begun(pieces), self._keys
        begins = pl.when(~goes_on).then(START).alias(ORIGIN.name)
        new = pieces.select(*keys, START, begins).with_row_index(_PLACE)
        place = pl.lit(None, pl.UInt32).alias(_PLACE)
        known = before.select(place, *keys, pl.col(END).alias(START), ORIGIN.name)
        # What ended at an instant comes before what starts there.
        ordered = pl.concat([known, new.select(known.columns)]).sort(START, _PLACE, nulls_last=False)
        latest = pl.col(ORIGIN.name).forward_fill()
        latest = latest.over(keys) if keys else latest
        found = ordered.select(_PLACE, pl.coalesce(latest, START).alias(ORIGIN.name)).drop_nulls(_PLACE)
        answer = pieces.with_columns(found.sort(_PLACE)[ORIGIN.name])
        ended = pl.concat([before, answer.select(before.columns)]).filter(pl.col(END) >= watermark_us)
        last = ended.sort(END, maintain_order=True)
        self._ended = last.unique(keys, keep="last", maintain_order=True) if keys else last.tail(1)
        return answer

    def where_they_meet(self, pieces: pl.DataFrame, watermark_us: int, *, copies: bool = False) -> pl.DataFrame:
        """Return pieces with their origins as the last column: as many go on as have ended there with their key.

        Which of several copies are answered may depend on where they were cut; how many there are does not. So what
        says where copies began goes by their number: of two, the second is the one that began last, whichever ends.

            answered    |-------)            as copies    |-------)---)     cut where the first one ended
                            |-------)                         |---)
            origins     1   3                             1   3   1

        Parameters
        ----------
        pieces
            All that have come since, in start order, without origins; of `copies`, those that end first come first.
        watermark_us
            No later piece starts before it.
        copies
            Whether pieces with one key are copies, whose number alone counts.
        """
        before, keys = self._begun(pieces), self._keys
        chains: dict[tuple[Any, ...], _Ends] = defaultdict(_Ends)
        for *key, end, origin in before.select(*keys, END, ORIGIN.name).iter_rows():
            chains[tuple(key)].add(end, origin)
        found: list[tuple[int, int, int, int]] = []
        spans = pieces.select(START, END, *keys).rows()
        # What ends while a piece lasts is known before that piece ends.
        for place in sorted(range(len(spans)), key=lambda each: spans[each][1]) if copies else range(len(spans)):
            start, end, *key = spans[place]
            ends = chains[tuple(key)]
            origin = ends.taken(start)
            for until, earlier in ends.passed(start, end, origin) if copies else ():
                found.append((place, start, until, origin))
                start, origin = until, earlier
            found.append((place, start, end, origin))
            ends.add(end, origin)
        left = [(*key, *each) for key, ends in chains.items() for each in ends.since(watermark_us)]
        self._ended = pl.DataFrame(left, schema=before.schema, orient="row")
        columns = {_PLACE: pl.UInt32, START: pl.Int64, END: pl.Int64, ORIGIN.name: pl.Int64}
        origins = pl.DataFrame(found, schema=columns, orient="row")
        if copies:
            origins = origins.sort(START, _PLACE)
        return pieces[origins[_PLACE]].with_columns(origins[START], origins[END], origins[ORIGIN.name])

    @property
    def _keys(self) -> list[str]:
        assert self._ended is not None  # noqa: S101 - there have been pieces
        return [name for name in self._ended.columns if name not in (END, ORIGIN.name)]

    def _begun(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Return what has ended, given pieces with all columns."""
        if self._ended is None:
            keys = [name for name in pieces.columns if name not in INTERVAL] if self._names is None else self._names
            self._ended = pieces.clear().select(*keys, END, pl.col(START).alias(ORIGIN.name))
        return self._ended

    def save(self) -> State:
        """Return the ends and origins of pieces that may go on."""
        return {} if self._ended is None else {CHAINS: self._ended}

    def restore(self, state: State) -> None:
        """Restore them; of an earlier version, which kept none, no piece goes on."""
        self._ended = table_of(state, CHAINS) if CHAINS in state else None


class ChainedPieces(AroundOperator):
    """Rows that an operator cuts where nothing ends: at watermarks, or where those that they are made of were cut.

    A row goes on if one with equal values, and made of pieces of the same row, ended where it starts.

    Parameters
    ----------
    inner
        The operator.
    made_of
        Whether its answers have :data:`MADE_OF`, as the last column of its first input: where the rows began that they
        are made of.
    """

    _own = (CHAINS,)

    def __init__(self, inner: Operator, *, made_of: bool) -> None:
        super().__init__(inner)
        self._made_of = made_of
        self._chains = PieceChains()

    def _given(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        return with_origins(rows, MADE_OF) if self._made_of and port == 0 else without_origins(rows)

    def _answered(self, rows: pl.DataFrame, watermark_us: int) -> pl.DataFrame:
        return self._chains.where_they_meet(rows, watermark_us, copies=self._made_of).drop(MADE_OF, strict=False)

    def save(self) -> State:
        """Return the state of the operator, and the chains."""
        return {**super().save(), **self._chains.save()}

    def restore(self, state: State) -> None:
        """Restore both."""
        super().restore(state)
        self._chains.restore(state)
