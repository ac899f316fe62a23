"""Which windows share panes: never dearer, together, near the best of all ways, and without flutter."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.costs.choice import LEAST_SHARE, LEAST_US, MOST_AT_A_TIME
from cluster.costs.pane_families import (
    MOST_TOGETHER,
    Family,
    Move,
    Pane,
    PaneUser,
    by_family,
    keys_seen,
    moves,
    partial_rows,
    placed,
)
from cluster.costs.prices import SHIPPED

PRICE = SHIPPED.named("Panes")
SECOND = 1_000_000
WINDOWS = ((60, 5), (305, 60), (125, 20), (605, 60), (61, 7), (8, 4), (120, 6), (6, 3), (22, 11))


def user(name: str, size_s: int, slide_s: int, *, group: int = 0, rate: float = 400.0, stays: bool = False) -> PaneUser:
    own = math.gcd(size_s, slide_s) * SECOND
    pane = Pane(group, rate, own, size_s * SECOND, slide_s * SECOND)
    families = (0, *(own // parts for parts in range(1, 7) if own % parts == 0))
    return PaneUser(name, 0, pane, () if stays else families)


def crowd(count: int, **given: float) -> list[PaneUser]:
    return [user(f"even{n}", *WINDOWS[n % 4], group=n % 5, **given) for n in range(count)]


def after(users: Sequence[PaneUser], found: Sequence[Move]) -> list[PaneUser]:
    new = {name: family for move in found for name, family in move.families.items()}
    return [replace(each, family=new.get(each.name, each.family)) for each in users]


def total_us(users: Sequence[PaneUser], keys: float = 1_000) -> float:
    return sum(by_family(users, PRICE, keys=keys).values())


@pytest.mark.parametrize(("rate", "keys", "seconds"), [(50, 20, 1.0), (400, 1_000, 0.5), (3_000, 100, 2.0)])
def test_partial_rows_are_those_of_random_tuples(rate: int, keys: int, seconds: float) -> None:
    dice = random.Random(5)
    seen = {(int(dice.random() * 400 / seconds), dice.randrange(keys)) for _ in range(rate * 400)}
    assert partial_rows(rate, keys, seconds) == pytest.approx(len(seen) / 400, rel=0.05)


@given(st.floats(2, 5_000), st.lists(st.floats(1, 3_000), min_size=1, max_size=5), st.sampled_from([0.2, 1.0]))
def test_keys_are_seen_by_their_partial_rows(keys: float, rates: list[float], seconds: float) -> None:
    made = sum(partial_rows(each, keys, seconds) for each in rates)
    seen = keys_seen(made, rates, seconds)
    if made > 0.8 * sum(rates):
        assert seen is None
    else:
        assert seen == pytest.approx(keys, rel=0.01)


def test_an_odd_window_leaves_and_the_others_stay() -> None:
    users = [*crowd(20), user("odd", 61, 7)]
    (found,) = moves(users, PRICE)
    assert found.families == {"odd": SECOND}
    assert found.saved_us == pytest.approx(total_us(users) - total_us(after(users, [found])))
    assert moves(after(users, [found]), PRICE) == []


def test_odd_windows_meet_in_one_family() -> None:
    users = [*crowd(20), user("odd", 61, 7), user("also", 59, 13)]
    (found,) = moves(users, PRICE)
    assert found.families == {"odd": SECOND, "also": SECOND}


def test_windows_leave_together_of_which_none_would_gain_by_leaving_alone() -> None:
    """Panes of 3 s and of 11 s make those of 5 s as narrow, each without the other."""
    users = [*crowd(20), user("threes", 6, 3), user("elevens", 22, 11)]
    assert total_us(after(users, [Move({"threes": 3 * SECOND}, 0, 0)])) > 0.95 * total_us(users)
    (found,) = moves(users, PRICE)
    assert found.families == {"threes": 3 * SECOND, "elevens": 11 * SECOND}


def test_it_does_not_pay_for_few_tuples() -> None:
    assert moves([*crowd(20, rate=0.5), user("odd", 61, 7, rate=0.5)], PRICE) == []


def test_a_family_that_makes_nothing_wider_any_more_is_given_up() -> None:
    users = [user("one", 60, 5, rate=5), replace(user("odd", 60, 10, rate=5), family=10 * SECOND)]
    assert moves(users, PRICE) == [Move({"odd": 0}, *(pytest.approx(each, rel=0.5) for each in (6_000, 3_000)))]


def test_what_has_to_stay_stays() -> None:
    users = [*crowd(20), user("odd", 61, 7, stays=True)]
    found = moves(users, PRICE)
    assert "odd" not in {name for move in found for name in move.families}


def test_no_more_move_than_may() -> None:
    users = [*crowd(20), *(user(f"odd{n}", 61, 7) for n in range(MOST_TOGETHER + 1))]
    found = moves(users, PRICE)
    assert all(len(move.families) <= MOST_TOGETHER for move in found)
    assert sum(len(move.families) for move in found[1:]) <= MOST_AT_A_TIME


@st.composite
def some(draw: st.DrawFn) -> list[PaneUser]:
    dice = random.Random(draw(st.integers(0, 2**32)))
    rate = dice.choice((2.0, 50.0, 400.0, 3_000.0))
    found = []
    for place in range(dice.randint(2, 5)):
        given = user(f"q{place}", *dice.choice(WINDOWS), group=dice.randrange(3), rate=rate)
        found.append(replace(given, family=dice.choice((0, 0, *given.families))))
    return found


def ways(users: Sequence[PaneUser]) -> Iterator[list[PaneUser]]:
    """Yield all ways to put windows into families, those with the same own panes together."""
    own = list(dict.fromkeys(each.pane.own_us for each in users))
    options = [next(each.families for each in users if each.pane.own_us == width) for width in own]
    for chosen in itertools.product(*options):
        new = dict(zip(own, chosen, strict=True))
        yield [replace(each, family=new[each.pane.own_us]) for each in users]


@settings(max_examples=60, deadline=None)
@given(some())
def test_what_is_chosen_is_never_dearer_and_near_the_best(users: list[PaneUser]) -> None:
    for _ in range(20):
        found = moves(users, PRICE, most=100)
        if not found:
            break
        before = total_us(users)
        users = after(users, found)
        assert total_us(users) == pytest.approx(before - sum(each.saved_us for each in found))
        assert all(each.saved_us >= max(LEAST_US, LEAST_SHARE * each.before_us) for each in found)
    assert not found
    best = min(map(total_us, ways(users)))
    assert total_us(users) <= 1.6 * best + LEAST_US


@settings(max_examples=150, deadline=None)
@given(some(), st.integers(0, 2**32))
def test_figures_that_waver_move_nothing_back(users: list[PaneUser], seed: int) -> None:
    """Rates waver by a tenth, each for itself, once nothing saves enough as they are: what moves then stays."""
    dice = random.Random(seed)
    while found := moves(users, PRICE):
        users = after(users, found)
    moved: dict[str, list[Family]] = {each.name: [each.family] for each in users}
    for _ in range(30):
        factors = [dice.uniform(0.9, 1.1) for _ in range(3)]
        wavering = [
            replace(each, pane=each.pane._replace(per_second=each.pane.per_second * factors[each.pane.group]))
            for each in users
        ]
        found = moves(wavering, PRICE)
        users = after(users, found)
        for move in found:
            for name, family in move.families.items():
                assert family not in moved[name], f"{name} goes back to {family}"
                moved[name].append(family)


def test_a_new_window_that_would_make_panes_narrow_begins_in_a_family() -> None:
    odd = user("odd", 61, 7)
    assert placed(odd.pane, odd.families, crowd(20), PRICE, keys=1_000) == SECOND
    assert placed(odd.pane, odd.families, crowd(20, rate=0.5), PRICE, keys=1_000) == 0
    even = user("even", 60, 10)
    assert placed(even.pane, even.families, crowd(20), PRICE, keys=1_000) == 0
    there = [*crowd(20), replace(user("other", 59, 13), family=SECOND)]
    assert placed(odd.pane, odd.families, there, PRICE, keys=1_000) == SECOND
