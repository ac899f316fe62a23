"""Choosing sizes within a budget: the numbers of papers/pipes_adaptation.md section 4, and properties."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.costs.adaptation import (
    RESERVE,
    UNLIMITED,
    Bounds,
    Cost,
    Granules,
    History,
    adapt,
    instant_for,
    shared_bounds,
)
from cluster.operators.characteristics import Characteristics, kept_by_join, windowed
from cluster.operators.size_ranges import SizeRange, granules

MS = 1_000
JOINED = SizeRange("window", 60_000 * MS, 600_000 * MS, MS)
"""Of both sides of a join, whose rows are 10 ms apart."""


def kept_at(windows: float, _: float) -> Cost:
    size = JOINED.within(windows) / MS
    flow = windowed(Characteristics(10, 1), size, 1)
    return Cost(sum(kept_by_join(flow, flow)))


def test_a_join_is_fitted_into_a_budget() -> None:
    assert not kept_at(0.4, 0.4).fits(Cost(50_000, 1))
    assert kept_at(0.4, 0.4).state_bytes == pytest.approx(55_201)
    assert kept_at(0.3, 0.3).state_bytes == pytest.approx(44_401)
    fit = adapt(kept_at, Cost(50_000, 1))
    assert fit is not None
    assert fit.granularities == pytest.approx(0.3)
    assert fit.windows == pytest.approx(0.351842, abs=3e-6)
    assert JOINED.within(fit.windows) == 249_995 * MS
    assert fit.cost.state_bytes == pytest.approx(50_000)


def test_granularities_have_few_sizes() -> None:
    allowed = SizeRange("granularity", 10_000 * MS, 1 * MS)
    assert granules(10_000 * MS, MS) == tuple(each * MS for each in (10_000, 2_000, 1_000, 200, 100, 20, 10, 2, 1))
    tens = [1, 10, 100, 1_000, 10_000]

    def closest(share: float) -> int:
        wanted = 10_000 + share * (1 - 10_000)
        return min(tens, key=lambda each: (abs(each - wanted), -each))

    found = [closest(step / 10) for step in range(10, -1, -1)]
    assert found == [1, *[1_000] * 5, *[10_000] * 5]
    for share in range(11):
        wanted = allowed.worst_us + share / 10 * (allowed.best_us - allowed.worst_us)
        distances = [abs(each - wanted) for each in granules(allowed.worst_us, allowed.best_us)]
        assert abs(allowed.at(share / 10) - wanted) == min(distances)


def test_the_best_is_kept_where_there_is_room() -> None:
    fit = adapt(kept_at, UNLIMITED)
    assert fit is not None
    assert (fit.windows, fit.granularities) == (1.0, 1.0)


def test_what_the_worst_does_not_fit_is_refused() -> None:
    assert adapt(kept_at, Cost(12_000, 1)) is None
    fit = adapt(kept_at, Cost(12_001, 1))
    assert fit is not None
    assert JOINED.within(fit.windows) == JOINED.worst_us


@st.composite
def cost_functions(draw: st.DrawFn) -> Callable[[float, float], Cost]:
    """Draw costs that grow with both shares, in steps and by lines."""
    parts = draw(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), st.integers(1, 50)), min_size=1, max_size=5))
    base = draw(st.floats(0, 100))

    def cost_at(windows: float, granularities: float) -> Cost:
        state = base + sum(
            of_windows * math.floor(windows * steps) / steps + of_granules * granularities
            for of_windows, of_granules, steps in parts
        )
        return Cost(state, state / 100)

    return cost_at


@given(cost_functions(), st.floats(0, 1000), st.floats(0, 10), st.integers(1, 12))
def test_what_is_picked_fits_and_is_the_most_at_its_step(
    cost_at: Callable[[float, float], Cost], state: float, busy: float, steps: int
) -> None:
    budget = Cost(state, busy)
    fit = adapt(cost_at, budget, steps)
    if fit is None:
        assert not cost_at(0.0, 0.0).fits(budget)
        return
    assert fit.cost == cost_at(fit.windows, fit.granularities)
    assert fit.cost.fits(budget)
    assert 0 <= fit.granularities <= fit.windows <= 1
    assert fit.windows <= fit.granularities + 1 / steps + 1e-9
    better = [step / steps for step in range(steps + 1) if step / steps > fit.granularities + 1e-9]
    assert not any(cost_at(share, share).fits(budget) for share in better)
    above = min((round(fit.granularities * steps) + 1) / steps, 1.0)
    if fit.windows < above - 1e-9:
        nearly = min(fit.windows + 2e-6, above)
        assert not cost_at(nearly, fit.granularities).fits(budget)


def test_the_reserve_is_a_fifth_of_both() -> None:
    assert RESERVE == 0.2
    assert Cost(100, 2).less_reserve() == Cost(80, 1.6)


def test_queries_share_what_both_allow() -> None:
    assert shared_bounds([Bounds(10, 60), Bounds(30, 90)]) == [(Bounds(30, 60), (0, 1))]
    assert shared_bounds([Bounds(10, 60), Bounds(30, 90), Bounds(70, 90)]) == [
        (Bounds(30, 60), (0, 1)),
        (Bounds(70, 90), (2,)),
    ]
    assert shared_bounds([Bounds(30, 90), Bounds(70, 90)]) == [(Bounds(70, 90), (0, 1))]


def test_queries_share_granules_that_both_allow() -> None:
    first, second, third = (Granules(frozenset(each)) for each in ({1, 10, 100}, {100, 1_000}, {1_000}))
    assert first.shared_with(second) == Granules(frozenset({100}))
    assert first.shared_with(third) is None
    assert shared_bounds([first, second, third]) == [(Granules(frozenset({100})), (0, 1)), (third, (2,))]


def starts(elements: list[int], before: int, after: int, at: int) -> list[int]:
    granule_of = {each: before if each < at else after for each in elements}
    return [-(-each // granule) * granule for each, granule in granule_of.items()]


def test_granules_become_finer_at_multiples_of_the_coarser_one() -> None:
    elements = [3, 9, 14, 15, 16, 21]
    assert starts(elements, 10, 1, 15)[:4] == [10, 10, 20, 15]
    assert starts(elements, 10, 1, 20) == [10, 10, 20, 20, 20, 21]
    assert starts(elements, 1, 10, 15) == [3, 9, 14, 20, 20, 30]
    assert instant_for(15, (10, 1)) == 20
    assert instant_for(20, (10, 1)) == 20
    assert instant_for(21, (4, 6)) == 24
    assert instant_for(-5, (10,)) == 0


@given(st.lists(st.integers(0, 1_000), min_size=1), st.integers(1, 9), st.integers(2, 9), st.integers(0, 1_000))
def test_order_is_kept_by_such_instants(elements: list[int], fine: int, times: int, earliest: int) -> None:
    found = starts(sorted(set(elements)), fine * times, fine, instant_for(earliest, (fine * times, fine)))
    assert found == sorted(found)


def test_the_change_in_force_is_found_and_kept() -> None:
    """The thesis' rule misses the entry that is in force at the start (section 3.1)."""
    history = History[str]().changed(0, "5h").changed(100, "1h").changed(200, "12h")
    assert [value for _, value in history.during(150, 160)] == ["1h"]
    assert [value for _, value in history.during(150, 201)] == ["1h", "12h"]
    assert [value for _, value in history.during(100, 200)] == ["1h"]
    assert list(history.pruned(150)) == [(100, "1h"), (200, "12h")]
    assert history.pruned(150).at(150) == "1h"
    assert history.at(-1) is None
    assert list(history.changed(50, "2h")) == [(0, "5h"), (50, "2h")]


changes = st.lists(st.tuples(st.integers(0, 100), st.integers()), max_size=10, unique_by=lambda each: each[0])


@given(changes, st.integers(0, 120), st.integers(0, 120), st.integers(1, 50))
def test_a_pruned_history_explains_what_comes_after(
    listed: list[tuple[int, int]], oldest: int, later: int, length: int
) -> None:
    history = History(tuple(sorted(listed)))
    start = oldest + later
    in_force = {t: max((each for each in listed if each[0] <= t), default=None) for t in range(start, start + length)}
    expected = list(dict.fromkeys(each for each in in_force.values() if each is not None))
    assert list(history.during(start, start + length)) == expected
    assert list(history.pruned(oldest).during(start, start + length)) == expected
