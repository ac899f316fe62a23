"""What operators spend, against the numbers of papers/pipes_costs.md section 4.1."""

from __future__ import annotations

import dataclasses

import pytest

from cluster.costs.work import (
    UnitPrices,
    cost_of_aggregate,
    cost_of_count_window,
    cost_of_distinct,
    cost_of_filter,
    cost_of_granularity,
    cost_of_groups,
    cost_of_join,
    cost_of_map,
    cost_of_partitioned_window,
    cost_of_split,
    cost_of_time_window,
    cost_of_union,
)
from cluster.operators.characteristics import Characteristics

ONE = UnitPrices(**{field.name: 1.0 for field in dataclasses.fields(UnitPrices)})
A, B = Characteristics(4, 600), Characteristics(6, 300)
TEN = Characteristics(10, 1_000)
TUPLES = Characteristics(10, 1)


def test_a_hash_join_compares_within_buckets() -> None:
    cost = cost_of_join(A, B, 0.01, ONE, (10, 10))
    assert dataclasses.astuple(cost) == pytest.approx((1.25, 4.166667, 0.75, 1.666667), rel=1e-6)
    assert cost.total == pytest.approx(7.833333, rel=1e-6)


def test_a_join_by_nested_loops_compares_all() -> None:
    cost = cost_of_join(A, B, 0.01, dataclasses.replace(ONE, hash=0.0))
    assert dataclasses.astuple(cost) == pytest.approx((0.833333, 37.5, 0.75, 1.666667), rel=1e-6)
    assert cost.total == pytest.approx(40.75)


@pytest.mark.parametrize(("values", "buckets", "cost"), [(20, 10, 3.75), (200, 50, 3.25)])
def test_duplicates(values: float, buckets: float, cost: float) -> None:
    assert cost_of_distinct(A, values, ONE, buckets) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("granule", "parts"),
    [
        (1, (0.453378, 38.083141, 0.825405)),
        (10, (0.216505, 25.358706, 0.446408)),
        (100, (0.025, 3.999894, 0.14)),
    ],
)
def test_an_aggregate_changes_all_that_it_keeps(granule: float, parts: tuple[float, ...]) -> None:
    cost = cost_of_aggregate(Characteristics(10, 1_000, granule), ONE)
    assert dataclasses.astuple(cost) == pytest.approx(parts, rel=1e-4)


def test_an_aggregate_of_single_rows_changes_none() -> None:
    assert cost_of_aggregate(TEN, ONE).total == pytest.approx(39.361924, rel=1e-6)
    assert cost_of_aggregate(Characteristics(10, 5), ONE).total == pytest.approx(0.9)


def test_groups() -> None:
    cost = cost_of_groups(TEN, 5, ONE)
    assert dataclasses.astuple(cost) == pytest.approx((8.614826, 2.257638, 0.788447), rel=1e-5)
    assert cost.total == pytest.approx(11.660912, rel=1e-6)
    alone = cost_of_groups(TEN, 200, ONE)
    assert dataclasses.astuple(alone) == pytest.approx((0.6, 1.2, 0.4))


def test_pieces() -> None:
    assert cost_of_split(TEN, 100, ONE) == pytest.approx(6.6)
    assert cost_of_split(TEN, 2_000, ONE) == pytest.approx(0.3)


def test_granularities() -> None:
    assert cost_of_granularity(TEN, 100, ONE) == pytest.approx(0.5)
    assert cost_of_granularity(Characteristics(10, 4), 8, ONE) == pytest.approx(0.4)


def test_windows() -> None:
    assert cost_of_time_window(TUPLES, ONE) == pytest.approx(0.3)
    assert cost_of_count_window(TUPLES, ONE) == pytest.approx(0.5)
    assert cost_of_partitioned_window(TUPLES, ONE) == pytest.approx(1.4)


def test_what_keeps_no_rows_pays_for_rows_in_and_out() -> None:
    assert cost_of_filter(TUPLES, 0.25, UnitPrices(predicate=3, output=8)) == pytest.approx(0.3 + 0.2)
    assert cost_of_map(TUPLES, UnitPrices(function=1, create=2, output=4)) == pytest.approx(0.7)
    assert cost_of_union((A, B), UnitPrices(output=12)) == pytest.approx(5)
