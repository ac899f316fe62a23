"""What the tasks of a micro-batch answer, as rows of the results table. Runs in Spark's driver."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from cluster.fjord.collecting import collected
from cluster.fjord.counters import Counters
from cluster.spark.envelopes import unpack_rows


def gathered(answers: pa.Table) -> tuple[pl.DataFrame, Counters]:
    """Return a micro-batch's answers, each query's in start order; and apart from them what the operators did.

    Parameters
    ----------
    answers
        Columns bucket and payload, as :data:`~cluster.spark.envelopes.RESULT_SCHEMA`; in any order.
    """
    payloads = sorted(
        zip(*(answers.column(name) for name in ("bucket", "payload")), strict=True),
        key=lambda answer: answer[0].as_py(),
    )
    return collected(unpack_rows(payload.as_py()) for _, payload in payloads)
