"""What the tasks of a micro-batch answer, as rows of the results table. Runs in Spark's driver."""

from __future__ import annotations

import msgspec
import polars as pl
import pyarrow as pa

from cluster.fjord.answers import COUNTERS
from cluster.fjord.batch import END, START
from cluster.fjord.counters import Counters, added
from cluster.spark.envelopes import unpack_rows
from cluster.storage.results_table import ERROR

_NUMBER = "fjord_number"


def gathered(answers: pa.Table) -> tuple[pl.DataFrame, Counters]:
    """Return a micro-batch's answers, each query's in start order; and apart from them what the operators did.

    Parameters
    ----------
    answers
        Columns bucket and payload, as :data:`~cluster.spark.envelopes.RESULT_SCHEMA`; in any order.
    """
    return _without_counters(_in_order(answers))


def _without_counters(rows: pl.DataFrame) -> tuple[pl.DataFrame, Counters]:
    found: Counters = {}
    for text in rows.filter(pl.col("kind") == COUNTERS)["row"]:
        found = added(found, msgspec.json.decode(text, type=Counters))
    return rows.filter(pl.col("kind") != COUNTERS), found


def _in_order(answers: pa.Table) -> pl.DataFrame:
    pieces = [
        unpack_rows(payload.as_py()).select(
            "query", pl.col(START).alias("start_us"), pl.col(END).alias("end_us"), "kind", "row"
        )
        for _, payload in sorted(
            zip(*(answers.column(name) for name in ("bucket", "payload")), strict=True),
            key=lambda answer: answer[0].as_py(),
        )
    ]
    if not pieces:
        return pl.DataFrame(
            schema={"query": pl.String, "start_us": pl.Int64, "end_us": pl.Int64, "kind": pl.String, "row": pl.String}
        )
    # Each piece is in order already; between them the sort decides, the same way at every replay.
    rows = pl.concat(pieces)
    if (rows["kind"] == ERROR).any():  # every part of a micro-batch may say the same
        rows = rows.filter((pl.col("kind") != ERROR) | pl.struct("query", "kind", "row").is_first_distinct())
    number = rows["query"].cast(pl.Categorical).to_physical()  # far quicker to sort by than the names
    return rows.with_columns(number.alias(_NUMBER)).sort(_NUMBER, "start_us", maintain_order=True).drop(_NUMBER)
