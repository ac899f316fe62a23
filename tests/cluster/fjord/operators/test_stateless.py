"""Filter, Project, Sample, TimeWindow, Multiplex: rows in, rows out; nothing is remembered."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operators.filtering import Filter
from cluster.fjord.operators.multiplexing import Multiplex
from cluster.fjord.operators.projection import Project
from cluster.fjord.operators.sampling import Sample
from cluster.fjord.operators.time_window import TimeWindow
from cluster.operators.columns import Output
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import FieldType


def chronons(*stamps: int, watermark: int = NEVER, **columns: list[Any]) -> Batch:
    frame = pl.DataFrame(
        {START: list(stamps), END: [at + 1 for at in stamps], **columns},
        schema_overrides={START: pl.Int64, END: pl.Int64},
    )
    return Batch(frame, watermark)


def test_filter_keeps_what_is_true_not_what_is_null() -> None:
    batch = chronons(1, 2, 3, watermark=4, x=[1, None, 5])
    found = Filter(read_scalar('"x" > 2', FieldType.BOOLEAN)).transition(0, batch)
    assert (found.rows["x"].to_list(), found.watermark_us) == ([5], 4)


def test_project_computes_columns_and_spreads_constants() -> None:
    outputs = (
        Output("y", read_scalar('"x" * 2', FieldType.INTEGER)),
        Output("one", read_scalar("1", FieldType.INTEGER)),
    )
    found = Project(outputs).transition(0, chronons(1, 2, x=[3, None]))
    assert found.rows.rows() == [(1, 2, 6, 1), (2, 3, None, 1)]
    assert found.rows.columns == [START, END, "y", "one"]
    assert Project(outputs).transition(0, chronons(x=[])).rows.height == 0


def test_project_may_leave_no_columns() -> None:
    assert Project(()).transition(0, chronons(1, 2, x=[3, 4])).rows.rows() == [(1, 2), (2, 3)]


def test_sample_takes_the_multiples_of_its_period() -> None:
    batch = chronons(0, 250, 500, 750, 1000)
    assert Sample(500).transition(0, batch).rows[START].to_list() == [0, 500, 1000]


def test_without_a_period_it_takes_what_the_default_rate_takes() -> None:
    batch = chronons(0, 250, 500, **{DEFAULT_RATE_COLUMN: [True, False, True]})
    assert Sample(None).transition(0, batch).rows[START].to_list() == [0, 500]
    assert Sample(None).transition(0, chronons(0, 250)).rows[START].to_list() == [0, 250]


def test_multiplex_shares_the_batch_itself() -> None:
    batch = chronons(1)
    assert Multiplex().transition(0, batch) is batch


@pytest.mark.parametrize(
    ("size", "slide", "stamps", "intervals"),
    [
        # papers/pipes_algebra.md 9: RANGE 10 SLIDE 10 tumbles; the windows answer from 9, 19, ...
        (10, 10, [0, 9, 10, 19], [(9, 19), (9, 19), (19, 29), (19, 29)]),
        (10, 5, [0, 4, 5], [(4, 14), (4, 14), (9, 19)]),
        (5, 1, [3, 4], [(3, 8), (4, 9)]),
        (1, 1, [3], [(3, 4)]),
        (3, 2, [0, 1, 2], [(1, 3), (1, 5), (3, 5)]),
        (2, 5, [0, 3, 4, 8], [(4, 9), (4, 9), (9, 14)]),  # the slide skips some
        (None, 1, [3], [(3, NEVER)]),
    ],
)
def test_time_window(size: int | None, slide: int, stamps: list[int], intervals: list[tuple[int, int]]) -> None:
    found = TimeWindow(size, slide).transition(0, chronons(*stamps))
    assert found.rows.select(START, END).rows() == intervals


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 30))
def test_time_window_is_its_definition_at_every_instant(size: int, slide: int, stamp: int) -> None:
    """Section 3: with k = floor((t + 1) / a) * a the window holds the stamps in [max(k - w, 0), k - 1]."""
    rows = TimeWindow(size, slide).transition(0, chronons(stamp)).rows.select(START, END).rows()
    valid = {instant for start, end in rows for instant in range(start, end)}
    defined = set()
    for instant in range(60):
        k = (instant + 1) // slide * slide
        if instant >= slide - 1 and max(k - size, 0) <= stamp <= k - 1:
            defined.add(instant)
    assert valid == defined


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 30), st.integers(0, 30))
def test_no_row_starts_before_the_windows_watermark(size: int, slide: int, watermark: int, ahead: int) -> None:
    window = TimeWindow(size, slide)
    promised = window.transition(0, chronons(watermark=watermark)).watermark_us
    later = window.transition(0, chronons(watermark + ahead)).rows
    assert all(start >= promised for start in later[START])
    assert promised >= watermark


@pytest.mark.parametrize("watermark", [ALWAYS, NEVER])
def test_the_ends_of_time_stay_where_they_are(watermark: int) -> None:
    assert TimeWindow(10, 10).transition(0, chronons(watermark=watermark)).watermark_us == watermark


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(PlanError):
        TimeWindow(0, 1)
    with pytest.raises(PlanError):
        TimeWindow(1, 0)
    with pytest.raises(PlanError):
        Sample(0)
