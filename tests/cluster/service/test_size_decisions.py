"""Sizes for all queries with ranges, as they come and go: what fits, what is refused, and what stays as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.costs.adaptation import RESERVE, WORTHWHILE, Cost
from cluster.operators.size_ranges import SizeRange, Sizes
from cluster.service.queries.size_decisions import NoRoomError, admitted, changed_sizes
from cluster.service.queries.size_plans import Costs, RangedQuery
from tests.cluster.service import plain_size_decisions as plain

HOUR = 3_600_000_000
HOURS = SizeRange("window", HOUR, 12 * HOUR, HOUR)
LIMIT = Cost(100.0, 1.0)
"""Of state in units of which an hour of window takes one, unless a test says otherwise."""


def of(query: RangedQuery, sizes: Sizes) -> Cost:
    return Cost(sum(size / HOUR for size in sizes.values()), 0.001)


def costs(fixed: float = 0.0) -> Costs:
    return Costs(Cost(fixed), of, lambda query, old, new: of(query, old) + of(query, new))


def query(name: str, hours: int | None = None, ranges: tuple[SizeRange, ...] = (HOURS,)) -> RangedQuery:
    return RangedQuery(name, name, ranges, {} if hours is None else {HOURS: hours * HOUR})


def hours_of(sizes: Sizes) -> int:
    return sizes[HOURS] // HOUR


def test_a_query_gets_its_best_where_there_is_room() -> None:
    choice = admitted([query("a")], [], costs(), LIMIT)
    assert {name: hours_of(each) for name, each in choice.sizes.items()} == {"a": 12}


@pytest.mark.parametrize(("fixed", "hours"), [(68, 12), (69, 11), (75, 5), (79, 1)])
def test_a_query_gets_what_fits_beside_a_fifth_in_reserve(fixed: float, hours: int) -> None:
    choice = admitted([query("a")], [], costs(fixed), LIMIT)
    assert hours_of(choice.sizes["a"]) == hours


def test_a_query_is_refused_with_what_would_have_made_room() -> None:
    with pytest.raises(NoRoomError) as caught:
        admitted([query("a")], [query("b", 1), query("c", 2)], costs(78), LIMIT)
    assert "would take 81 bytes of state" in caught.value.message
    assert "there is 80 bytes of state" in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("drop one of these queries: b, c; or start the cluster with --max-state ")


def test_others_shrink_to_make_room() -> None:
    running = [query("b", 12), query("c", 12)]
    choice = admitted([query("a")], running, costs(50), LIMIT)
    found = {name: hours_of(each) for name, each in choice.sizes.items()}
    assert found == {"a": 8, "b": 8}  # with c, which keeps 12, they are 78; while b changes, 90


def test_few_shrink_further_where_all_would_not_fit_on_the_way() -> None:
    """Three that go from 12 to 11 would keep 69 on the way, 116 with all others; one that goes to 9 keeps 21."""
    running = [query(name, 12) for name in "bcdefg"]
    choice = admitted([query("a")], running, costs(0), LIMIT)
    assert {name: hours_of(each) for name, each in choice.sizes.items()} == {"a": 9, "b": 9}
    everyone = (*running, query("a"))
    sizes = {each.name: choice.sizes.get(each.name, each.sizes) for each in everyone}
    assert costs(0).steady(everyone, sizes).state_bytes == 78
    assert costs(0).during(everyone, sizes).state_bytes == 90


def test_what_does_not_fit_at_its_least_shrinks_to_it() -> None:
    assert hours_of(changed_sizes([query("a", 12)], costs(150), LIMIT).sizes["a"]) == 1


def test_a_query_that_fits_without_ranges_changes_nothing() -> None:
    assert admitted([query("a", ranges=())], [query("b", 12)], costs(88), LIMIT).sizes == {"a": {}}


def test_small_gains_are_not_worth_a_change() -> None:
    assert changed_sizes([query("a", 11)], costs(0), LIMIT).sizes == {}
    assert hours_of(changed_sizes([query("a", 10)], costs(0), LIMIT).sizes["a"]) == 12
    assert WORTHWHILE <= 2 / 11


def test_sizes_shrink_once_half_of_the_reserve_is_used() -> None:
    assert changed_sizes([query("a", 12)], costs(78), LIMIT).sizes == {}
    assert hours_of(changed_sizes([query("a", 12)], costs(78.5), LIMIT).sizes["a"]) == 1


def test_a_query_grows_when_others_leave() -> None:
    assert changed_sizes([query("a", 5)], costs(75), LIMIT).sizes == {}
    assert hours_of(changed_sizes([query("a", 5)], costs(0), LIMIT).sizes["a"]) == 12


def test_a_change_fits_while_both_plans_run() -> None:
    """While 50 hours grow to more, both are kept: 50 more fit into the limit of 100."""
    wide = SizeRange("window", 10 * HOUR, 80 * HOUR, HOUR)
    running = RangedQuery("a", "a", (wide,), {wide: 45 * HOUR})
    (sizes,) = changed_sizes([running], costs(0), LIMIT).sizes.values()
    assert sizes[wide] // HOUR == 55


def test_what_changes_already_is_left_alone() -> None:
    changing = replace(query("a", 5), before={HOURS: 12 * HOUR})
    assert changed_sizes([changing], costs(0), LIMIT).sizes == {}
    assert changed_sizes([changing], costs(200), LIMIT).sizes == {}


def test_queries_that_share_everything_count_once() -> None:
    twins = [replace(query(name, 12), kind="same") for name in ("a", "b")]
    assert costs().steady(twins, {each.name: each.sizes for each in twins}).state_bytes == 12


@given(
    st.lists(st.integers(1, 12), max_size=6),
    st.floats(0, 120),
    st.floats(20, 200),
    st.booleans(),
)
def test_whatever_is_decided_fits(hours: list[int], fixed: float, limit: float, admit: bool) -> None:
    running, budget = [query(f"q{place}", each) for place, each in enumerate(hours)], Cost(limit, 1.0)
    all_costs = costs(fixed)
    if admit:
        try:
            choice = admitted([query("new")], running, all_costs, budget)
        except NoRoomError as error:
            least = {each.name: each.at(0, 0) for each in (*running, query("new"))}
            assert not all_costs.steady((*running, query("new")), least).fits(
                budget.less_reserve()
            ) or not all_costs.during((*running, query("new")), least).fits(budget)
            assert error.hint
            return
        after = [*(replace(each, sizes=choice.sizes.get(each.name, each.sizes)) for each in running), query("new")]
        sizes = {each.name: each.sizes for each in after} | {"new": choice.sizes["new"]}
        assert all(sizes[each.name][HOURS] <= each.sizes[HOURS] for each in running)
        assert all_costs.during((*running, query("new")), sizes).fits(budget)
    else:
        choice = changed_sizes(running, all_costs, budget)
        sizes = {each.name: choice.sizes.get(each.name, each.sizes) for each in running}
        before, now = (all_costs.steady(running, each) for each in ({each.name: each.sizes for each in running}, sizes))
        assert now.fits(budget.less_reserve()) or now.state_bytes <= before.state_bytes
    assert all(HOUR <= each[HOURS] <= 12 * HOUR for each in sizes.values())


GRANULES = SizeRange("granularity", 60_000_000, 1_000_000)
WIDE = SizeRange("window", 2 * HOUR, 8 * HOUR, 2 * HOUR)


@st.composite
def drawn_queries(draw: st.DrawFn, prefix: str, *, runs: bool) -> list[RangedQuery]:
    """Return queries, some of one kind, some that change."""
    found = []
    for place in range(draw(st.integers(2, 8) if runs else st.integers(1, 2))):
        ranges = draw(st.sampled_from([(HOURS,), (HOURS,), (WIDE,), (HOURS, GRANULES)]))
        kind = f"{draw(st.sampled_from('xyz'))} {[each.words for each in ranges]}"
        sizes, before = (
            {each: draw(st.sampled_from([each.at(share / 2) for share in (0, 1, 2, 2)])) for each in ranges}
            for _ in range(2)
        )
        changes = runs and draw(st.integers(0, 5)) == 0
        found.append(RangedQuery(f"{prefix}{place}", kind, ranges, sizes if runs else {}, before if changes else {}))
    return found


@settings(max_examples=300)
@given(
    drawn_queries("q", runs=True),
    drawn_queries("new", runs=False),
    st.integers(0, 20),
    st.integers(2, 12),
    st.integers(2, 24),
    st.booleans(),
)
def test_decisions_are_those_of_the_plain_form(
    running: list[RangedQuery], new: list[RangedQuery], fixed: int, limit: int, busy: int, granules_cost: bool
) -> None:
    """Costs are whole, or halves and so on, so that sums are exact in any order."""

    def cost_of(query: RangedQuery, sizes: Sizes) -> Cost:
        own = 1 + "xyz".index(query.kind[0])
        windows = sum(size / HOUR for each, size in sizes.items() if each.kind == "window")
        finer = sum(60_000_000 // size for each, size in sizes.items() if each.kind == "granularity")
        return Cost(own * windows + (finer / 8 if granules_cost else 0), own * (finer + 1) / 128)

    def both(query: RangedQuery, old: Sizes, now: Sizes) -> Cost:
        return cost_of(query, old) + cost_of(query, now)

    all_costs = Costs(Cost(fixed, 0.25), cost_of, both)
    present = all_costs.steady(running, {each.name: each.sizes for each in running})
    budget = Cost(present.state_bytes * limit / 8, present.busy * busy / 8)
    try:
        found: plain.Found = dict(admitted(new, running, all_costs, budget).sizes)
    except NoRoomError:
        found = None
    assert found == plain.admitted(new, running, all_costs, budget)
    assert dict(changed_sizes(running, all_costs, budget).sizes) == plain.changed(running, all_costs, budget)


def test_the_reserve_is_a_fifth() -> None:
    assert LIMIT.less_reserve().state_bytes == 100 * (1 - RESERVE)
