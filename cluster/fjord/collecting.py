"""Collects the output of a micro-batch: answers, each query's in start order, and apart from them counters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import polars as pl

from cluster.fjord.batch import END, START
from cluster.fjord.counters import Counters, summed
from cluster.fjord.kinds import ERROR
from cluster.fjord.seams import fused

_NUMBER = "fjord_number"
_FIRST, _LAST = "fjord_first", "fjord_last"


@dataclass(frozen=True, slots=True)
class HostOutput:
    """What one bucket gives out in a micro-batch, or one part of it that needs no buckets.

    Parameters
    ----------
    answers
        Columns query, START, END, kind, row (JSON); in each piece, each query's in start order.
    counters
        What operators did since that was last reported; empty if it is not reported now.
    """

    answers: Sequence[pl.DataFrame]
    counters: Counters = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    """What a micro-batch gives out.

    Parameters
    ----------
    rows
        Columns query, start_us, end_us, kind (``row``, ``error``, ``open``, ``closes`` or ``closes_earlier``), row
        (JSON); each query's in start order.
    counters
        What operators did, as far as it is reported now.
    """

    rows: pl.DataFrame
    counters: Counters


def collected(outputs: Iterable[HostOutput]) -> Answered:
    """Return what a micro-batch gives out, given that of all its buckets or parts in the order of their numbers."""
    found = list(outputs)
    rows = in_order(stored_columns(piece) for output in found for piece in output.answers)
    return Answered(rows, summed(output.counters for output in found))


def stored_columns(answers: pl.DataFrame) -> pl.DataFrame:
    """Return answers with the columns that are stored, before they are numbered; see :attr:`Answered.rows`."""
    return answers.select("query", pl.col(START).alias("start_us"), pl.col(END).alias("end_us"), "kind", "row")


def in_order(answers: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return answers in the order of their numbers: each query's together, in start order; equal errors once.

    Parameters
    ----------
    answers
        Columns as in :attr:`Answered.rows`; of equal starts, those of an earlier piece come first.
    """
    pieces = list(answers)
    if not pieces:
        return pl.DataFrame(
            schema={"query": pl.String, "start_us": pl.Int64, "end_us": pl.Int64, "kind": pl.String, "row": pl.String}
        )
    # Each piece is in order already; between them the sort decides, the same way at every replay.
    rows = fused(pl.concat(pieces))
    if (rows["kind"] == ERROR).any():
        rows = _errors_once(rows)
    if rows.height and (rows["query"] == rows.item(0, "query")).all():
        return rows.sort("start_us", maintain_order=True)
    number = rows["query"].cast(pl.Categorical).to_physical()  # far quicker to sort by than the names
    return rows.with_columns(number.alias(_NUMBER)).sort(_NUMBER, "start_us", maintain_order=True).drop(_NUMBER)


def _errors_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with each error once, as every part of a micro-batch may report the same: for all their instants."""
    same = ["query", "kind", "row"]
    is_error = pl.col("kind") == ERROR
    return (
        rows.filter(~is_error | pl.struct(same).is_first_distinct())
        .join(
            rows.filter(is_error)
            .group_by(same)
            .agg(pl.col("start_us").min().alias(_FIRST), pl.col("end_us").max().alias(_LAST)),
            on=same,
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.coalesce(_FIRST, "start_us").alias("start_us"), pl.coalesce(_LAST, "end_us").alias("end_us"))
        .drop(_FIRST, _LAST)
    )
