"""Characteristics of streams against the numbers of papers/pipes_costs.md section 3."""

from __future__ import annotations

import math
from functools import partial

import pytest

from cluster.operators.characteristics import (
    Characteristics,
    aggregated,
    coarsened,
    counted,
    distinct,
    filtered,
    grouped,
    joined,
    split,
    united,
    windowed,
)

A, B = Characteristics(4, 600), Characteristics(6, 300)
TEN = Characteristics(10, 1_000)
SPARSE = Characteristics(10, 5)
close = partial(pytest.approx, rel=1e-6)


def _is(found: Characteristics, distance: float, validity: float, granule: float = 1.0) -> None:
    assert (found.distance, found.validity, found.granule) == (close(distance), close(validity), granule)


def test_filters_keep_a_share() -> None:
    _is(filtered(Characteristics(10, 1), 0.25), 40, 1)
    assert math.isinf(filtered(TEN, 0.0).distance)


def test_unions_add_rates() -> None:
    _is(united([A, B]), 2.4, 480)


def test_joins_pair_what_overlaps() -> None:
    _is(joined(A, B), 24 / 900, 200)
    _is(joined(A, B, 0.01), 2.666667, 200)
    both = Characteristics(10, 5_000)
    _is(joined(both, both), 0.01, 2_500)
    _is(joined(both, both, 0.001), 10, 2_500)
    _is(joined(both, both, 0.01), 1, 2_500)


@pytest.mark.parametrize(("values", "validity"), [(20, 80), (100, 400), (150, 600), (200, 600)])
def test_duplicates_shorten_rows(values: float, validity: float) -> None:
    _is(distinct(A, values), 4, validity)


@pytest.mark.parametrize(("granule", "distance"), [(1, 5.514163), (10, 11.547073), (100, 100.000000), (1_000, 1_000)])
def test_aggregates_change_where_rows_start_or_end(granule: float, distance: float) -> None:
    _is(aggregated(Characteristics(10, 1_000, granule)), distance, distance, granule)


def test_an_aggregate_of_single_rows_is_as_they_are() -> None:
    _is(aggregated(SPARSE), 10, 5)


@pytest.mark.parametrize(
    ("groups", "distance", "validity"),
    [(5, 5.098167, 25.490833), (50, 5.007506, 250.375313), (100, 10, 1_000), (200, 10, 1_000)],
)
def test_groups_change_each_by_itself(groups: float, distance: float, validity: float) -> None:
    _is(grouped(TEN, groups), distance, validity)


def test_pieces_are_as_long_as_they_may_be() -> None:
    _is(split(TEN, 1), 0.01, 1)
    _is(split(TEN, 100), 1, 100)
    assert split(TEN, 2_000) == TEN


def test_short_rows_vanish_in_a_coarser_granularity() -> None:
    _is(coarsened(TEN, 100), 10, 1_000, 100)
    _is(coarsened(Characteristics(10, 4), 8), 20, 8, 8)
    assert coarsened(TEN, 1) == TEN


def test_windows_make_rows_last() -> None:
    instants = Characteristics(10, 1)
    _is(windowed(instants, 1_000, 1), 10, 1_000)
    _is(counted(instants, 50), 10, 500)
    _is(counted(instants, 10, keys=5), 10, 500)


def test_a_window_that_jumps_loses_what_is_between() -> None:
    _is(windowed(Characteristics(10, 1), 1_000, 4_000), 40, 4_000, 4_000)


def test_an_aggregate_of_a_sliding_window_changes_where_it_moves() -> None:
    _is(aggregated(windowed(Characteristics(1, 1), 1_000, 100)), 100, 100, 100)


def test_aggregates_over_coarse_windows_are_joined() -> None:
    one = aggregated(coarsened(windowed(Characteristics(10, 1), 1_000, 1), 100))
    other = coarsened(windowed(Characteristics(50, 1), 2_000, 1), 100)
    _is(joined(one, other, 0.01), 238.0952, 95.2381, 100)


def test_half_the_window_keeps_more_answers_than_half_the_rows() -> None:
    full = windowed(Characteristics(10, 1), 10_000, 1)
    shorter = windowed(Characteristics(10, 1), 5_000, 1)
    fewer = windowed(filtered(Characteristics(10, 1), 0.5), 10_000, 1)
    _is(joined(full, full, 0.02), 0.25, 5_000)
    _is(joined(shorter, shorter, 0.02), 0.5, 2_500)
    _is(joined(fewer, fewer, 0.02), 1, 5_000)


def test_all_seen_so_far_changes_with_each_row() -> None:
    _is(aggregated(Characteristics(10, math.inf)), 10.508331944, 10.508331944)
