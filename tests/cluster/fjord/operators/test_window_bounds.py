"""Bounds of windows: rows are cut where the window moves, and each piece has begin and end of its window."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.time_window import WindowBounds
from cluster.operators.window_shapes import Grid, Span

DAYS = Grid(Span("day", 1), size=Span("day", 1))
SCHEMA = {START: pl.Int64, END: pl.Int64, "n": pl.Int64}


def bounded(grid: Grid, *rows: tuple[int, int, int]) -> list[tuple[int, int, int, int, int]]:
    given = pl.DataFrame(list(rows), schema=SCHEMA, orient="row")
    return WindowBounds(grid, "s", "e").transition(0, Batch(given, 0)).rows.rows()


def test_a_row_that_outlasts_a_window_is_cut_where_the_window_moves() -> None:
    """
    windows of 10, every 5           4|----9----14----|17
    """
    grid = Grid(Span("us", 5), size=Span("us", 10))
    assert bounded(grid, (4, 17, 1), (9, 14, 2)) == [
        (4, 9, 1, -5, 5), (9, 14, 2, 0, 10), (9, 14, 1, 0, 10), (14, 17, 1, 5, 15)
    ]  # fmt: skip


def test_a_row_of_one_window_stays_whole() -> None:
    grid = Grid(Span("us", 5), 2, size=Span("us", 5))
    assert bounded(grid, (6, 11, 1), (8, 9, 2)) == [(6, 11, 1, 2, 7), (8, 9, 2, 2, 7)]


def test_no_rows_have_the_columns_all_the_same() -> None:
    rows = WindowBounds(Grid(Span("day", 1), size=Span("day", 1)), "s", "e").transition(
        0, Batch(pl.DataFrame(schema=SCHEMA), 5)
    )
    assert rows.rows.columns == [START, END, "n", "s", "e"]
    assert rows.watermark_us == 5


def test_a_window_that_is_reset_has_no_bounds() -> None:
    with pytest.raises(PlanError):
        WindowBounds(Grid(Span("us", 5)), "s", "e")


@pytest.mark.parametrize("grid", [Grid(Span("us", 1_000_000), size=Span("us", 5_000_000)), DAYS])
def test_a_row_that_holds_for_ever_is_not_cut_into_all_windows_there_will_be(grid: Grid) -> None:
    with pytest.raises(PlanError, match=r"from 1970-01-01T00:00:00.000004Z for ever .* more than 1,000,000 windows"):
        bounded(grid, (3, 9, 1), (4, NEVER, 2))
    assert len(bounded(grid, (4, 4 + 900 * grid.step.usual_us, 2))) in {900, 901}
