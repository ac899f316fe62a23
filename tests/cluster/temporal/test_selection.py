"""Costs of extents and the choice among them: papers/coalescing.md sections 3 and 6 (lines 18 to 22)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from cluster.temporal.cost_model import (
    Constants,
    Maxima,
    Prices,
    Weights,
    Workload,
    by_comparing,
    by_enumerating,
    maxima,
    optimal,
    prices,
    reconsidered,
)
from cluster.temporal.windows import ExtentError
from tests.examples import seeds

HAND = Constants(insert=2, delete=1, merge=4, split=5, detach=0.5, read=1, coalesce=2)
HAND_WORK = Workload(coalescing=0.5, disorder=0.2, window=4, arrived=10, eager_bytes=24, lazy_bytes=40)
EAGER_BYTES = (24, 24, 24, 32, 32, 40)
GRID = [(cp / 10, oop / 10) for cp, oop in product(range(11), range(11))]
TABLE_5 = {1: (0.1,) * 6, 2: (0.8,) * 6, 3: (0.5,) * 3 + (0.1,) * 3, 4: (0.8,) * 3 + (0.1,) * 3}
TABLE_6 = {
    1: ((0.2,) * 6, (0.3,) * 6, set()),
    2: ((0.7,) * 6, (0.6,) * 6, {0, 1, 2, 3, 4, 5}),
    3: ((0.5,) * 6, (0.3,) * 6, {0, 1, 2, 3, 4, 5}),
    5: ((0.4,) * 3 + (0.2,) * 3, (0.6,) * 3 + (0.7,) * 3, {0, 1, 2}),
    6: ((0.4,) * 3 + (0.2,) * 3, (0.6, 0.8, 0.8) + (0.7,) * 3, {0}),
}


def fitted(coalescing: float, disorder: float) -> Constants:
    """The constants of section 5.6."""
    return Constants(4.2, 0.5, 0.02, 0.28 * disorder / max(coalescing, 0.1), 0.01, 1, 74)


def six(coalescing: tuple[float, ...], disorder: tuple[float, ...]) -> list[tuple[Workload, Constants]]:
    return [
        (Workload(cp, oop, 1_000, None, size, 40), fitted(cp, oop))
        for cp, oop, size in zip(coalescing, disorder, EAGER_BYTES, strict=True)
    ]


def fitted_maxima() -> Maxima:
    return maxima(Workload(0, 0, 1_000, None, 24, 40), fitted(0, 0), [(*each, fitted(*each)) for each in GRID])


def random_prices(random: Random, count: int) -> Prices:
    if random.random() < 0.3:  # whole numbers, for ties
        return Prices(*(tuple(random.randint(0, 3) for _ in range(count)) for _ in "el"), shared=random.randint(0, 4))
    return Prices(*(tuple(random.random() for _ in range(count)) for _ in "el"), shared=random.random() * 2)


def test_v_l_the_equations() -> None:
    work = HAND_WORK
    assert (work.eager_memory(), work.lazy_memory()) == (64, 160)
    assert (work.eager_update(HAND), work.lazy_update(HAND)) == (38.25, 26)
    assert work.eager_scan(HAND) == pytest.approx(64 / 24)
    assert work.lazy_scan(HAND) == 8
    assert maxima(work, HAND) == Maxima(160, 41.5, 12)


def test_windows_that_are_not_full() -> None:
    work = replace(HAND_WORK, arrived=1)
    assert (work.eager_memory(), work.lazy_memory()) == (24, 40)
    assert (work.eager_update(HAND), work.lazy_update(HAND)) == (2, 2)
    half = replace(HAND_WORK, arrived=3)
    assert half.eager_memory() == 24 + 2 * 16
    assert half.lazy_scan(HAND) == 1 + 2 * 2
    full = replace(HAND_WORK, arrived=4)
    assert full.eager_update(HAND) == 2 + 3 * 3.5


def test_v_m_without_the_lazy_extent_the_choice_is_wrong() -> None:
    largest, weights = maxima(HAND_WORK, HAND), Weights(1, 1, 2)
    whole = prices([(HAND_WORK, HAND)], weights, largest)
    assert whole.eager == pytest.approx((1.76613,), abs=1e-5)
    assert whole.lazy == pytest.approx((1.33333,), abs=1e-5)
    assert whole.shared == pytest.approx(1.62651, abs=1e-5)
    assert optimal(whole) == {0}
    assert optimal(prices([(HAND_WORK, HAND)], weights, largest, with_shared=False)) == set()
    assert (whole.total([0]), whole.total([])) == pytest.approx((1.7661, 2.9598), abs=1e-4)


@pytest.mark.parametrize(
    ("case", "chosen", "best", "lazy", "eager"),
    [
        (1, set(), 2.9707, 2.9707, 7.6149),
        (2, {0, 1, 2, 3, 4, 5}, 2.6795, 11.2587, 2.6795),
        (3, {0, 1, 2}, 4.4980, 5.3387, 6.3664),
        (4, {0, 1, 2}, 3.5616, 7.1147, 5.4300),
    ],
)
def test_v_n_table_5(case: int, chosen: set[int], best: float, lazy: float, eager: float) -> None:
    found = prices(six(TABLE_5[case], (0.0,) * 6), Weights(1, 1, 2), fitted_maxima())
    assert optimal(found) == chosen
    assert found.total(chosen) == pytest.approx(best, abs=1e-4)
    assert (found.total([]), found.total(range(6))) == pytest.approx((lazy, eager), abs=1e-4)


@pytest.mark.parametrize("case", TABLE_6)
def test_table_6_but_case_4(case: int) -> None:
    coalescing, disorder, chosen = TABLE_6[case]
    found = prices(six(coalescing, disorder), Weights(0, 1, 1), fitted_maxima())
    assert optimal(found) == chosen


def test_v_p_tiny_programmes() -> None:
    assert optimal(Prices((1, 3), (2, 1), 5)) == {0, 1}
    assert optimal(Prices((1, 3), (2, 1), 1)) == {0}


@seeds(150)
def test_line_19_the_programme_is_as_good_as_trying_all(seed: int) -> None:
    random = Random(seed)
    found = random_prices(random, random.randint(1, 8))
    cheapest = found.total(by_enumerating(found))
    assert found.total(optimal(found)) == pytest.approx(cheapest, abs=1e-9)
    assert found.total(by_comparing(found)) == pytest.approx(cheapest, abs=1e-9)


@seeds(40)
def test_line_20_the_optimum_is_no_worse_than_all_eager_and_all_lazy(seed: int) -> None:
    random = Random(seed)
    found = random_prices(random, random.randint(1, 12))
    best = found.total(optimal(found))
    assert best <= min(found.total([]), found.total(range(len(found.eager)))) + 1e-9


def test_line_21_weights_move_the_choice_one_way() -> None:
    """Under the paper's objective; the lazy extent's own price could tip everything."""
    random = Random(21)
    for _ in range(30):
        queries = six(*(tuple(random.random() for _ in range(6)) for _ in "co"))
        base = Weights(random.random(), random.random(), random.random() + 0.1)

        def chosen(weights: Weights, among: list[tuple[Workload, Constants]] = queries) -> frozenset[int]:
            return optimal(prices(among, weights, fitted_maxima(), with_shared=False))

        assert chosen(replace(base, memory=base.memory + 1)) <= chosen(base)
        assert chosen(replace(base, update=base.update + 1)) <= chosen(base)
        assert chosen(base) <= chosen(replace(base, scan=base.scan + 1))


def test_line_22_a_tie_is_lazy() -> None:
    assert optimal(Prices((1, 1), (1, 1), 0)) == set()
    assert optimal(Prices((2, 2), (1, 1), 2)) == set()
    assert by_comparing(Prices((2, 2), (1, 1), 2)) == set()
    assert optimal(Prices((), (), 1)) == set()


def test_a_bound_of_memory_is_kept() -> None:
    free = Prices((1, 1, 1), (5, 4, 3), 1)
    sizes = (60, 60, 60)
    assert optimal(free, sizes, 50, 180) == {0, 1, 2}
    assert optimal(free, sizes, 50, 179) == {0, 1}
    assert optimal(free, sizes, 50, 120) == {0}
    assert optimal(free, sizes, 50, 50) == set()
    with pytest.raises(ExtentError, match="within 49 bytes"):
        optimal(free, sizes, 50, 49)


def test_a_choice_stays_until_another_is_enough_cheaper() -> None:
    assert reconsidered(frozenset({0}), Prices((1.0,), (0.96,), 0)) == {0}
    assert reconsidered(frozenset({0}), Prices((1.0,), (0.94,), 0)) == set()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Weights(-1, 1, 1),
        lambda: Weights(0, 0, 0),
        lambda: Weights(float("nan"), 1, 1),
        lambda: Maxima(1, 0, 1),
        lambda: replace(HAND_WORK, coalescing=1.1),
        lambda: replace(HAND_WORK, disorder=-0.1),
        lambda: replace(HAND_WORK, window=0),
        lambda: by_enumerating(Prices((1.0,) * 17, (1.0,) * 17, 0)),
    ],
)
def test_what_makes_no_sense_is_refused(make) -> None:
    with pytest.raises(ExtentError) as error:
        make()
    assert error.value.hint


def test_many_queries_are_chosen_at_once() -> None:
    random = Random(1)
    found = random_prices(random, 300)
    assert found.total(optimal(found)) == pytest.approx(found.total(by_comparing(found)))


def test_no_queries_cost_nothing() -> None:
    assert prices([], Weights(1, 1, 1), Maxima(1, 1, 1)) == Prices((), (), 0)
