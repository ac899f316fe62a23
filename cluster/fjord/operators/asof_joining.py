"""ASOF joins: each tuple of the left with the latest tuple of the right that is not after it.

    right    b1      b2           b3
    left         a1     a2  a3        a4
    answer       a1b1   a2b2 a3b2     a4b3

A left tuple is answered once all right tuples up to its stamp are known. Of those, each key's latest is kept, and what
is later than the left tuples that are still to come.
"""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.two_sided import TwoSided
from cluster.fjord.row_order import comparable
from cluster.operators import ZipKind

_AT, _SIDE, _PLACE, _FOUND = "fjord_at", "fjord_side", "fjord_place", "fjord_found"


class AsofJoin(TwoSided):
    """Keeps left tuples that wait for the right, and of the right the latest of each key and all later ones.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs; their payloads have different names. Rows are valid at one instant.
    keys
        Columns of left and right that must be equal, of one type.
    low_us, high_us
        Bounds of the right stamp minus the left one, not above zero; without a lower one, a key is kept for ever.
    kind
        Whether left tuples without a partner are answered.
    """

    def __init__(
        self,
        left: pl.DataFrame,
        right: pl.DataFrame,
        *,
        keys: tuple[tuple[str, str], ...],
        low_us: int | None,
        high_us: int,
        kind: ZipKind,
    ) -> None:
        self._keys = [list(names) for names in zip(*keys, strict=True)] if keys else [[], []]
        # A column may be part of several keys.
        self._compared = [f"fjord_key_{place}" for place in range(len(keys))]
        self._low_us, self._high_us = low_us, high_us
        self._keeps_left = kind != "inner"
        super().__init__(left, right, left.clear().join(right.clear().drop(START, END), how="cross"))

    def transition(self, port: int, batch: Batch) -> Batch:
        """Process rows of one input; answer the left tuples whose partner is known now."""
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        if batch.rows.height:
            rows = batch.rows if port == 0 else batch.rows.filter(~self._without_key(1))
            self._kept[port] = pl.concat([self._kept[port], rows])
        left_us, right_us = self._watermarks_us
        known = pl.col(START) + self._high_us < right_us
        ready = self._kept[0].filter(known)
        if ready.height:
            self._kept[0] = self._kept[0].filter(~known)
            self._answer(ready)
        waiting = self._kept[0]
        self._forget(min(left_us, waiting.select(pl.col(START).min()).item()) if waiting.height else left_us)
        return self._output.release(min(left_us, right_us))

    def _without_key(self, side: int) -> pl.Expr:
        """Return whether a row has no partner because a key is NULL."""
        return pl.any_horizontal(*(pl.col(key).is_null() for key in self._keys[side]), pl.lit(value=False))

    def _compared_keys(self, side: int) -> list[pl.Expr]:
        """Return the keys of a side under the same names; zeros of both signs are equal."""
        return [
            comparable(self._kept[side], own).alias(name)
            for own, name in zip(self._keys[side], self._compared, strict=True)
        ]

    def _in_order(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of the right with the latest last; of equal stamps, the one with the greatest values."""
        values = [name for name in rows.columns if name not in (START, END)]
        return rows.sort(START, *values, nulls_last=False)

    def _answer(self, ready: pl.DataFrame) -> None:
        """Answer left tuples."""
        right = self._kept[1] = self._in_order(self._kept[1])
        place = pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE)
        sides = [
            right.select(*self._compared_keys(1), pl.col(START).alias(_AT), pl.lit(0, pl.Int8).alias(_SIDE), place),
            ready.select(
                *self._compared_keys(0),
                (pl.col(START) + self._high_us).alias(_AT),
                pl.lit(1, pl.Int8).alias(_SIDE),
                place,
            ),
        ]
        latest = pl.when(pl.col(_SIDE) == 0).then(_PLACE).forward_fill()
        found = (
            pl.concat(sides)
            .sort(_AT, _SIDE, maintain_order=True)
            .with_columns((latest.over(self._compared) if self._compared else latest).alias(_FOUND))
            .filter(pl.col(_SIDE) == 1)
            .sort(_PLACE)[_FOUND]
        )
        partners = right.drop(END).rename({START: _AT})[found.fill_null(0)] if right.height else None
        alone = found.is_null()
        if partners is None:
            pairs = ready.clear().join(right.clear().drop(START, END), how="cross")
        else:
            both = ready.hstack(partners)
            too_old = False if self._low_us is None else both[_AT] < both[START] + self._low_us
            alone |= ready.select(self._without_key(0).alias(_FOUND))[_FOUND] | too_old
            pairs = both.filter(~alone)
        self._output.add(pairs)
        if self._keeps_left:
            schema = self._output.schema.items()
            missing = [pl.lit(None, kind).alias(name) for name, kind in schema if name not in ready.columns]
            self._output.add(ready.filter(alone).with_columns(missing))

    def _forget(self, from_us: int) -> None:
        """Drop the tuples of the right that are no partner of any left tuple from an instant on."""
        right = self._kept[1]
        if not right.height:
            return
        if from_us >= NEVER:
            self._kept[1] = right.clear()
            return
        before = pl.col(START) <= from_us + self._high_us
        old, new = right.filter(before), right.filter(~before)
        if self._low_us is not None:
            old = old.filter(pl.col(START) >= from_us + self._low_us)
        if old.height > 1:
            keyed = self._in_order(old).with_columns(self._compared_keys(1))
            last = keyed.unique(self._compared, keep="last", maintain_order=True) if self._compared else keyed.tail(1)
            old = last.select(right.columns)
        self._kept[1] = pl.concat([old, new])
