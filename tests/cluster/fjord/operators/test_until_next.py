"""Tuples that hold until the next one, looked ahead of: what is known of them before it has come."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operators.until_next import UntilNext

COLUMNS = pl.DataFrame(schema={START: pl.Int64, END: pl.Int64, "k": pl.String})
BOUNDS = ("since", "until")


def tuples(*stamped: tuple[int, str]) -> pl.DataFrame:
    return pl.DataFrame([(at, at + 1, key) for at, key in stamped], COLUMNS.schema, orient="row")


@pytest.mark.parametrize("lasts", [True, False])
def test_where_the_end_is_a_column_nothing_is_known_from_the_first_without_an_end_on(lasts: bool) -> None:
    operator = UntilNext(COLUMNS, ("k",), 5, BOUNDS, lasts)
    operator.transition(0, Batch(tuples((10, "a")), 13))
    found = operator.ahead(14, [tuples((13, "b"))])
    assert (found.rows.height, found.watermark_us) == (0, 10)
    found = operator.ahead(16, [COLUMNS])
    assert found.rows.select(*BOUNDS).rows() == [(10, 15)]
    assert found.watermark_us == 13


def test_where_it_is_not_all_that_hold_last_up_to_the_frontier_at_least() -> None:
    operator = UntilNext(COLUMNS, ("k",), 5)
    operator.transition(0, Batch(tuples((10, "a")), 13))
    found = operator.ahead(14, [tuples((13, "b"))])
    assert found.rows.select(START, END, "k").rows() == [(10, 14, "a"), (13, 14, "b")]
    assert found.watermark_us == 14
