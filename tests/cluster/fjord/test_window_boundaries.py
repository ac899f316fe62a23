"""Boundaries of grids against a walk over all days, across changes of clocks, ends of months and the date line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord.window_boundaries import CYCLE_DAYS, first_without, next_boundaries, windows_at
from cluster.language.window_shapes import DAY_US, HOUR_US, Grid, Span
from tests.cluster.calendar_definition import boundaries_of

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo",
    "Asia/Kathmandu", "Africa/Casablanca",
)  # fmt: skip
"""Clocks change by half an hour in Lord Howe; at midnight in Sao Paulo; Apia left out a day in 2011."""


def us(*when: int) -> int:
    return (datetime(*when, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


spans = st.one_of(
    st.builds(Span, st.just("day"), st.integers(1, 40)),
    st.builds(Span, st.just("week"), st.integers(1, 6)),
    st.builds(Span, st.just("month"), st.integers(1, 14)),
)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    step = draw(spans)
    offset = draw(st.one_of(st.just(0), st.integers(0, min(step.usual_us, 20 * DAY_US) - 1)))
    if draw(st.booleans()):
        offset = offset // (HOUR_US // 2) * (HOUR_US // 2)
    size = draw(st.one_of(spans, st.builds(Span, st.just("us"), st.integers(1, 90 * DAY_US))))
    return Grid(step, offset, draw(st.sampled_from(ZONES)), size)


STAMPS = st.lists(st.integers(us(1990, 1, 1), us(2030, 1, 1)), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(grid=grids(), stamps=STAMPS, near=st.integers(-3, 3))
def test_boundaries_are_those_of_a_walk_over_all_days(grid: Grid, stamps: list[int], near: int) -> None:
    stamps = [stamps[0], *(stamp for stamp in stamps[1:] if abs(stamp - stamps[0]) < 400 * DAY_US)]
    reach = 3 * grid.step.longest_us + grid.size.longest_us
    known = boundaries_of(grid, min(stamps) - reach, max(stamps) + reach)
    stamps.append(next(at for at, _ in known if at > stamps[0]) + near)  # where it matters
    given_ = np.array(stamps, dtype=np.int64)
    expected_next = [next(at for at, _ in known if at > stamp) for stamp in stamps]
    assert next_boundaries(grid, given_).tolist() == expected_next
    ends, begins = (np.array([each[place] for each in known], dtype=np.int64) for place in (0, 1))
    found_begins, found_ends = windows_at(grid, given_)
    assert found_ends.tolist() == [max(end for end in ends if end <= stamp) for stamp in stamps]
    assert set(zip(found_ends.tolist(), found_begins.tolist(), strict=True)) <= set(zip(ends, begins, strict=True))
    expected_end = [next(at for at, begin in known if begin > stamp) for stamp in stamps]
    assert first_without(grid, given_).tolist() == expected_end


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 28, 12), 23), ((2026, 10, 24, 12), 25), ((2026, 6, 1), 24)])
def test_days_have_as_many_hours_as_clocks_make_of_them(day: tuple[int, ...], hours: int) -> None:
    grid = Grid(Span("day", 1), zone="Europe/Berlin", size=Span("day", 1))
    begin = next_boundaries(grid, np.array([us(*day)]))
    (end,) = next_boundaries(grid, begin) - begin
    assert end == hours * HOUR_US
    assert first_without(grid, begin).tolist() == [begin[0] + hours * HOUR_US + _following(begin[0], hours)]


def _following(begin: int, hours: int) -> int:
    """The first window without the first tuple of a day is that of the next day: how long that is."""
    grid = Grid(Span("day", 1), zone="Europe/Berlin")
    (end,) = next_boundaries(grid, np.array([begin + hours * HOUR_US]))
    return int(end) - begin - hours * HOUR_US


def test_a_time_that_clocks_skip_is_when_they_skip_it_plus_what_is_skipped_before() -> None:
    grid = Grid(Span("day", 1), 2 * HOUR_US + HOUR_US // 2, "Europe/Berlin")
    (at,) = next_boundaries(grid, np.array([us(2026, 3, 29)]))
    assert at == us(2026, 3, 29, 1, 30)  # 03:30 in Berlin
    (twice,) = next_boundaries(grid, np.array([us(2026, 10, 24, 20)]))
    assert twice == us(2026, 10, 25, 0, 30)  # the first 02:30


def test_months_end_where_the_calendar_ends_them() -> None:
    month = Grid(Span("day", 1), size=Span("month", 1))
    assert first_without(month, np.array([us(2026, 1, 30, 5)])).tolist() == [us(2026, 3, 1)]
    assert first_without(month, np.array([us(2026, 2, 28, 12)])).tolist() == [
        us(2026, 4, 1)
    ]  # March 29 to 31 go back to it
    quarter = Grid(Span("month", 3), size=Span("month", 3))
    assert next_boundaries(quarter, np.array([us(2026, 2, 3)])).tolist() == [us(2026, 4, 1)]
    week = Grid(Span("week", 1))
    assert next_boundaries(week, np.array([us(2026, 11, 26)])).tolist() == [us(2026, 11, 30)]  # a Monday


def test_stamps_that_no_calendar_has_get_boundaries_all_the_same() -> None:
    grid = Grid(Span("month", 1), 6 * HOUR_US, "Europe/Berlin", Span("month", 1))
    stamps = np.array([us(2026, 7, 3), us(2026, 1, 31, 23, 59)], dtype=np.int64)
    far = CYCLE_DAYS * DAY_US * np.array([-300, 40, 300], dtype=np.int64)
    for moved in far:
        assert (next_boundaries(grid, stamps + moved) - moved).tolist() == next_boundaries(grid, stamps).tolist()
        assert (first_without(grid, stamps + moved) - moved).tolist() == first_without(grid, stamps).tolist()
