"""Samples that a sensor has aggregated already do not count a second time."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.language.algebra import MEMBER
from protocols.batches import EXCEPT_COLUMN


class WithoutTold(Operator):
    """Stateless. Takes from each group the samples that are part of aggregates of its form.

    Parameters
    ----------
    forms
        By group: the form in which it is told aggregates.
    only_told
        Groups that are told nothing but aggregates.
    """

    def __init__(self, forms: Mapping[int, str], only_told: frozenset[int] = frozenset()) -> None:
        self._forms = forms
        self._only_told = sorted(only_told)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the samples that count."""
        del port
        rows = batch.rows
        if self._only_told:
            rows = rows.filter(~pl.col(MEMBER.name).is_in(self._only_told))
        if EXCEPT_COLUMN not in rows.columns:
            return Batch(rows, batch.watermark_us)
        if rows[EXCEPT_COLUMN].null_count() < rows.height:
            form = pl.col(MEMBER.name).replace_strict(self._forms, default=None, return_dtype=pl.String)
            told = pl.col(EXCEPT_COLUMN).str.split(" ").list.contains(form)
            rows = rows.filter(~told.fill_null(value=False))
        return Batch(rows.drop(EXCEPT_COLUMN), batch.watermark_us)
