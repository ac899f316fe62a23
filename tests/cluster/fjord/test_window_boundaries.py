"""Boundaries of grids against a walk over all days, across changes of clocks, ends of months and the date line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord.timestamp_functions import local_in
from cluster.fjord.window_boundaries import CYCLE_DAYS, first_without, next_boundaries, windows_at
from cluster.operators.window_shapes import DAY_US, HOUR_US, Grid, Span
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


@settings(max_examples=60, deadline=None)
@given(
    zone=st.sampled_from([
        ("Pacific/Apia", (2011, 12, 30)), ("Pacific/Kiritimati", (1994, 12, 31)), ("Kwajalein", (1993, 8, 21)),
    ]),
    size=spans,
    hours=st.integers(0, 47),
    stamps=st.lists(st.integers(-60 * 24, 60 * 24), min_size=1, max_size=6),
)  # fmt: skip
def test_boundaries_around_a_day_that_clocks_skip_are_those_of_a_walk(
    zone: tuple[str, tuple[int, ...]], size: Span, hours: int, stamps: list[int]
) -> None:
    grid = Grid(Span("day", 1), hours * HOUR_US // 2, zone[0], size)
    given_ = us(*zone[1]) + HOUR_US * np.array(stamps, dtype=np.int64)
    reach = 3 * grid.size_us + 10 * DAY_US
    known = boundaries_of(grid, int(given_.min()) - reach, int(given_.max()) + reach)
    assert next_boundaries(grid, given_).tolist() == [next(at for at, _ in known if at > each) for each in given_]
    assert first_without(grid, given_).tolist() == [next(at for at, begin in known if begin > each) for each in given_]
    begins, ends = windows_at(grid, given_)
    last = [max(each for each in known if each[0] <= stamp) for stamp in given_]
    assert list(zip(ends.tolist(), begins.tolist(), strict=True)) == last


def test_the_day_before_one_that_clocks_skip_is_a_day_like_others() -> None:
    """Apia had no 30 December 2011: what happened on the 29th belongs to the 29th, and the 31st follows."""
    grid = Grid(Span("day", 1), zone="Pacific/Apia", size=Span("day", 1))
    stamps = np.array([us(2011, 12, 28, 20), us(2011, 12, 29, 20), us(2011, 12, 30, 12)], dtype=np.int64)
    midnights = [us(2011, 12, day, 10) for day in (29, 30, 31)]
    assert next_boundaries(grid, stamps).tolist() == midnights
    assert first_without(grid, stamps).tolist() == [*midnights[1:], us(2012, 1, 1, 10)]
    begins, ends = windows_at(grid, np.array(midnights, dtype=np.int64))
    assert ends.tolist() == midnights
    assert begins.tolist() == [us(2011, 12, 28, 10), *midnights[:2]]


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
    far = CYCLE_DAYS * DAY_US * np.array([40, 300], dtype=np.int64)
    for moved in far:
        assert (next_boundaries(grid, stamps + moved) - moved).tolist() == next_boundaries(grid, stamps).tolist()
        assert (first_without(grid, stamps + moved) - moved).tolist() == first_without(grid, stamps).tolist()


@pytest.mark.parametrize("year", [1, 20, 53, 54, 400, 899, 900, 1500])
def test_before_the_first_rule_of_a_zone_clocks_show_its_mean_time(year: int) -> None:
    """In Berlin, 53 minutes and 28 seconds before UTC, as AT TIME ZONE says, too: no summer time of years alike."""
    at = us(year, 6, 1, 12)
    mean_us = (53 * 60 + 28) * 1_000_000
    for unit, day in (("day", (year, 6, 2)), ("month", (year, 7, 1))):
        (boundary,) = next_boundaries(Grid(Span(unit, 1), zone="Europe/Berlin"), np.array([at])).tolist()
        assert boundary == us(*day) - mean_us
        assert local_in("Europe/Berlin")(pl.Series([boundary])).item() == us(*day)
        far_us = 300 * CYCLE_DAYS * DAY_US
        long_ago = next_boundaries(Grid(Span(unit, 1), zone="Europe/Berlin"), np.array([at - far_us])) + far_us
        assert long_ago.tolist() == [boundary]


def test_after_the_last_year_rules_go_on_as_in_years_alike() -> None:
    grid = Grid(Span("day", 1), zone="Europe/Berlin")
    summer = np.array([us(9999, 7, 1, 12), us(9999, 1, 1, 12)], dtype=np.int64)
    for cycle in (0, 1, 2, 40):
        found = next_boundaries(grid, summer + cycle * CYCLE_DAYS * DAY_US) - cycle * CYCLE_DAYS * DAY_US
        assert found.tolist() == [us(9999, 7, 1, 22), us(9999, 1, 1, 23)]


@pytest.mark.parametrize("days", [28, 29, 30, 45])
def test_an_offset_of_months_is_counted_from_their_beginnings(days: int) -> None:
    """Boundaries of two months, and where their windows begin, are the beginnings of months, all so much later."""
    offset_us = days * DAY_US
    grid = Grid(Span("month", 2), offset_us, "UTC", Span("month", 1))
    begins, ends = windows_at(grid, np.array([us(2026, 3, 1) + offset_us]))
    assert (begins.item() - offset_us, ends.item() - offset_us) == (us(2026, 2, 1), us(2026, 3, 1))
    assert next_boundaries(grid, ends).item() == us(2026, 5, 1) + offset_us
