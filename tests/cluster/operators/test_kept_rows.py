"""Rows that operators keep against the numbers of papers/pipes_costs.md section 3."""

from __future__ import annotations

import math

import pytest

from cluster.operators.characteristics import (
    Characteristics,
    coarsened,
    kept_by_aggregate,
    kept_by_distinct,
    kept_by_groups,
    kept_by_join,
    kept_by_split,
    windowed,
)

A, B = Characteristics(4, 600), Characteristics(6, 300)
TEN = Characteristics(10, 1_000)


def test_a_join_keeps_what_is_valid_and_what_waits() -> None:
    assert kept_by_join(A, B) == pytest.approx((150.75, 50.3333333))
    both = Characteristics(10, 5_000)
    assert sum(kept_by_join(both, both)) == pytest.approx(1_001)


def test_a_join_of_coarse_windows_keeps_few() -> None:
    one = Characteristics(100, 100, 100)
    other = coarsened(windowed(Characteristics(50, 1), 2_000, 1), 100)
    assert sum(kept_by_join(one, other)) == pytest.approx(42.25)


def test_a_side_without_rows_is_not_waited_for() -> None:
    assert kept_by_join(A, Characteristics(math.inf, 1)) == (150.0, 0.0)


def test_duplicate_elimination_keeps_what_is_valid() -> None:
    assert kept_by_distinct(A) == 150


@pytest.mark.parametrize(("granule", "kept"), [(1, 95.2079), (10, 63.3968), (100, 9.999734), (1_000, 1)])
def test_an_aggregate_keeps_one_row_for_each_end(granule: float, kept: float) -> None:
    assert kept_by_aggregate(Characteristics(10, 1_000, granule)) == pytest.approx(kept, rel=1e-5)


def test_an_aggregate_of_single_rows_keeps_one() -> None:
    assert kept_by_aggregate(Characteristics(10, 5)) == 1
    assert kept_by_aggregate(Characteristics(10, math.inf)) == 1


def test_groups_keep_their_own_rows() -> None:
    # 5 groups: 1,744.8908 = 5 K' x 16 + 5 x 32; 50 groups: 3,199.2 = 50 K' x 16 + 50 x 32
    assert kept_by_groups(TEN, 5) == pytest.approx((1_744.8908 - 5 * 32) / 16)
    assert kept_by_groups(TEN, 50) == pytest.approx((3_199.2 - 50 * 32) / 16)
    assert kept_by_groups(TEN, 200) == TEN.valid_rows


def test_pieces_are_put_in_order() -> None:
    assert kept_by_split(TEN, 100) == 105
    assert kept_by_split(TEN, 2_000) == 0
