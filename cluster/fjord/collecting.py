"""A micro-batch's answers put together: each query's in start order, and apart from them what the operators did."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import polars as pl

from cluster.fjord.answers import COUNTERS, ERROR
from cluster.fjord.batch import END, START
from cluster.fjord.counters import Counters, added

_NUMBER = "fjord_number"


def collected(answers: Iterable[pl.DataFrame]) -> tuple[pl.DataFrame, Counters]:
    """Return a micro-batch's answers, each query's in start order; and apart from them what the operators did.

    Parameters
    ----------
    answers
        Columns query, START, END, kind, row (JSON); of all buckets or parts, in the order of their numbers.
    """
    return _without_counters(_in_order(answers))


def _without_counters(rows: pl.DataFrame) -> tuple[pl.DataFrame, Counters]:
    found: Counters = {}
    for text in rows.filter(pl.col("kind") == COUNTERS)["row"]:
        found = added(found, msgspec.json.decode(text, type=Counters))
    return rows.filter(pl.col("kind") != COUNTERS), found


def _in_order(answers: Iterable[pl.DataFrame]) -> pl.DataFrame:
    pieces = [
        piece.select("query", pl.col(START).alias("start_us"), pl.col(END).alias("end_us"), "kind", "row")
        for piece in answers
    ]
    if not pieces:
        return pl.DataFrame(
            schema={"query": pl.String, "start_us": pl.Int64, "end_us": pl.Int64, "kind": pl.String, "row": pl.String}
        )
    # Each piece is in order already; between them the sort decides, the same way at every replay.
    rows = pl.concat(pieces)
    if (rows["kind"] == ERROR).any():  # every part of a micro-batch may report the same
        rows = rows.filter((pl.col("kind") != ERROR) | pl.struct("query", "kind", "row").is_first_distinct())
    number = rows["query"].cast(pl.Categorical).to_physical()  # far quicker to sort by than the names
    return rows.with_columns(number.alias(_NUMBER)).sort(_NUMBER, "start_us", maintain_order=True).drop(_NUMBER)
