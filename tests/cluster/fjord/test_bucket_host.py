"""Buckets: what is kept of a saved state when queries have gone."""

from __future__ import annotations

import polars as pl

from cluster.fjord.saved_state import without_dropped_groups


def test_rows_of_queries_that_are_gone_go() -> None:
    state = {"kept": pl.DataFrame({"fjord_member": [1, 2, 3], "x": [10, 20, 30]}), "count": 7}
    left = without_dropped_groups(state, frozenset({1, 3}))
    assert left["count"] == 7
    assert pl.DataFrame(left["kept"])["x"].to_list() == [10, 30]


def test_a_lone_tuple_of_a_zip_join_waits_on() -> None:
    """It has the mark of its own side only."""
    held = pl.DataFrame(
        {"fjord_member": [1, None, 2, None], "fjord_right_fjord_member": [None, 1, None, 2], "x": [10, 20, 30, 40]},
        schema_overrides={"fjord_member": pl.Int64, "fjord_right_fjord_member": pl.Int64},
    )
    left = without_dropped_groups({"held": held}, frozenset({1}))
    assert pl.DataFrame(left["held"])["x"].to_list() == [10, 20]
