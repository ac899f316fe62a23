"""Ranges of windows and granularities: what a plan keeps of them, and the plan of each choice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cluster.language.translation import translate, translate_derived
from cluster.operators import Granularity, TimeWindow, WindowBounds
from cluster.operators.size_ranges import SizeRange, granules, ranges_of, step_of_window, with_sizes
from cluster.operators.walks import nodes_of
from cluster.plan.rewrite import rewrite
from tests.cluster.language.example_catalog import CATALOG

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
WINDOW = SizeRange("window", HOUR, 12 * HOUR, HOUR)


def plan_of(text: str, catalog=CATALOG):
    return translate(text, catalog).node


def sizes_in(node) -> set[int]:
    return {each.size_us for each in nodes_of(node) if isinstance(each, TimeWindow)}


def test_a_plan_keeps_what_its_author_allows_and_runs_at_the_best() -> None:
    node = plan_of("SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE MIN 1 HOUR, MAX 12 HOURS)")
    assert ranges_of(node) == (WINDOW,)
    assert rewrite(node).node == rewrite(plan_of("SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 12 HOURS)")).node


@pytest.mark.parametrize("text", [
    "SELECT lane FROM traffic WINDOW(RANGE {})",
    "SELECT a.lane FROM traffic WINDOW(RANGE {0}) AS a JOIN weather WINDOW(RANGE {0}) AS b ON a.sensor = b.sensor",
    "SELECT a.lane FROM traffic WINDOW(RANGE {}) AS a JOIN weather WINDOW(RANGE 2 HOURS) AS b ON a.sensor = b.sensor",
    "SELECT MAX(n) AS m FROM (SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE {})) AS q WINDOW(RANGE 1 HOUR)",
    "SELECT DISTINCT lane FROM (SELECT DISTINCT lane FROM traffic WINDOW(RANGE {0})) AS q WINDOW(RANGE {0})",
    "SELECT lane FROM traffic WHERE sensor IN (SELECT sensor FROM weather WINDOW(RANGE {}))",
    "SELECT lane FROM (SELECT lane FROM traffic UNION ALL SELECT lane FROM traffic) AS u WINDOW(RANGE {})",
    "SELECT a.lane FROM traffic WINDOW(RANGE {0}) AS a LEFT JOIN weather WINDOW(RANGE {0}) AS b ON a.sensor = b.sensor",
])  # fmt: skip
def test_the_plan_of_a_choice_is_that_of_a_text_with_this_size(text: str) -> None:
    node = plan_of(text.format("MIN 1 HOUR, MAX 12 HOURS"))
    for hours in (1, 5, 12):
        meant = plan_of(text.format(f"{hours} HOURS"))
        chosen = with_sizes(node, {WINDOW: hours * HOUR})
        assert chosen == meant
        assert not ranges_of(chosen)


def test_bounds_of_a_window_are_those_of_its_choice() -> None:
    text = "SELECT WINDOW_START() AS a, COUNT(*) AS n FROM traffic WINDOW(RANGE {} SLIDE 1 HOUR)"
    node = plan_of(text.format("MIN 1 HOUR, MAX 12 HOURS"))
    chosen = with_sizes(node, {WINDOW: 5 * HOUR})
    assert chosen == plan_of(text.format("5 HOURS"))
    assert any(isinstance(each, WindowBounds) for each in nodes_of(chosen))


def test_each_range_has_its_own_choice() -> None:
    text = """SELECT a.lane FROM traffic WINDOW(RANGE MIN 1 HOUR, MAX 12 HOURS) AS a
              JOIN weather WINDOW(RANGE MIN 10 MINUTES, MAX 1 HOUR) GRANULARITY(COARSEST 1 MINUTE, FINEST 10 SECONDS)
              AS b ON a.sensor = b.sensor"""
    node = plan_of(text)
    short, granular = SizeRange("window", 10 * MINUTE, HOUR, MINUTE), SizeRange("granularity", MINUTE, 10 * SECOND)
    assert ranges_of(node) == (WINDOW, short, granular)
    assert {each: each.at(0.0) for each in ranges_of(node)} == {WINDOW: HOUR, short: 10 * MINUTE, granular: MINUTE}
    chosen = with_sizes(node, {WINDOW: 2 * HOUR, granular: 30 * SECOND})
    assert sizes_in(chosen) == {2 * HOUR, HOUR}
    assert [each.granule_us for each in nodes_of(chosen) if isinstance(each, Granularity)] == [30 * SECOND]


def test_ranges_of_a_derived_stream_are_ranges_of_its_queries() -> None:
    derived = translate_derived(
        "CREATE STREAM load AS SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE MIN 1 HOUR, MAX 12 HOURS)", CATALOG
    )
    node = plan_of("SELECT n FROM load WHERE n > 3", CATALOG.with_stream(derived))
    assert ranges_of(node) == (WINDOW,)
    assert sizes_in(with_sizes(node, {WINDOW: HOUR})) == {HOUR}


@pytest.mark.parametrize("text", [
    "SELECT lane FROM traffic WINDOW(RANGE 1 HOUR)",
    "SELECT lane FROM traffic WINDOW(RANGE MIN 1 HOUR, MAX 1 HOUR)",
    "SELECT lane FROM traffic WINDOW(RANGE 1 HOUR) GRANULARITY(COARSEST 1 MINUTE, FINEST 1 MINUTE)",
    "SELECT lane FROM traffic WINDOW(ROWS MIN 3, MAX 5)",
])  # fmt: skip
def test_one_size_is_no_range(text: str) -> None:
    assert not ranges_of(plan_of(text))


def test_windows_by_count_stay_at_the_most_and_say_so() -> None:
    query = translate("SELECT lane FROM traffic WINDOW(ROWS MIN 50, MAX 200)", CATALOG)
    assert "ROWS MIN 50, MAX 200 stays at 200" in query.warnings[0]


@pytest.mark.parametrize("window", [
    "RANGE MIN 2 HOURS, MAX 1 HOUR",
    "RANGE MIN 90 SECONDS, MAX 1 HOUR SLIDE 1 MINUTE",
    "RANGE MIN 2 FURLONGS, MAX 1 HOUR",
])  # fmt: skip
def test_a_faulty_range_of_a_kept_text_stays_at_its_best(window: str) -> None:
    node = translate(f"SELECT lane FROM traffic WINDOW({window})", CATALOG, registered=True).node
    assert not ranges_of(node)
    assert sizes_in(node) == {HOUR}


durations = st.integers(1, 10**13)


@given(st.lists(st.integers(1, 50), min_size=0, max_size=6), st.integers(1, 10**9))
def test_granules_divide_one_another_from_the_coarsest_to_the_finest(factors: list[int], finest: int) -> None:
    coarsest = finest
    for each in factors:
        coarsest *= each
    found = granules(coarsest, finest)
    assert (found[0], found[-1]) == (coarsest, finest)
    assert all(one > other and one % other == 0 for one, other in itertools.pairwise(found))


@given(durations, durations, st.sampled_from([1, 7, 1_000, SECOND, MINUTE]), st.floats(0, 1))
def test_sizes_are_within_their_range_and_multiples_of_the_slide(low: int, more: int, slide: int, share: float) -> None:
    least, most = low * slide, (low + more) * slide
    window = SizeRange("window", least, most, step_of_window(least, most, slide))
    for size in (window.at(share), window.within(share)):
        assert least <= size <= most
        assert size % slide == 0
    assert window.within(share) <= least + share * (most - least) + 1e-3 * most
    assert window.at(0.0) == least
    assert window.at(1.0) == window.within(1.0) == most


def test_plans_without_ranges_are_written_as_before() -> None:
    window = next(each for each in nodes_of(plan_of("SELECT lane FROM traffic WINDOW(RANGE 1 HOUR)"))
                  if isinstance(each, TimeWindow))  # fmt: skip
    assert window.allowed is UNSET
