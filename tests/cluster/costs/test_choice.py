"""Which queries go on with other plans: never dearer, together, and without flutter."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.costs.choice import (
    HELD_SECONDS,
    LEAST_SHARE,
    LEAST_US,
    MOST_AT_A_TIME,
    REST_SECONDS,
    Candidate,
    Change,
    Option,
    Waiting,
    best_first,
    changes,
    cheapest,
    cost_us,
    have_drifted,
    smoothed,
)
from cluster.costs.estimates import estimates_of, totals_of
from cluster.operators import Join, Node, TimeWindow
from cluster.operators.walks import from_below
from cluster.plan.alternatives import alternatives
from cluster.plan.rewrite import rewrite
from tests.cluster.plan.plans import condition, pick, prefixed, source
from tests.counted_calls import calls


def _alone(number: int, cost: float, name: str = "q") -> Option:
    return Option(number, f"{name} {number}", "all", cost / 2, cost / 2)


@st.composite
def candidates(draw) -> list[Candidate]:
    dice = random.Random(draw(st.integers(0, 2**32)))
    found = []
    for place in range(dice.randint(1, 6)):
        options = [
            Option(
                number, f"f{dice.randrange(5)}", f"g{dice.randrange(3)}",
                dice.choice([0, 200, 2_000]), dice.uniform(0, 5_000),
            )
            for number in range(1, dice.randint(1, 5) + 1)
        ]  # fmt: skip
        options = list({(each.fragment, each.group): each for each in options}.values())
        found.append(Candidate(f"q{place}", dice.choice(options), tuple(options) if dice.random() < 0.8 else ()))
    return found


def _consistent(queries: list[Candidate]) -> list[Candidate]:
    """Return queries whose plans cost the same where they are the same."""
    fixed: dict[str, float] = {}
    rows: dict[tuple[str, str], float] = {}

    def same(each: Option) -> Option:
        return Option(
            each.number, each.fragment, each.group,
            fixed.setdefault(each.fragment, each.fixed_us), rows.setdefault((each.fragment, each.group), each.rows_us),
        )  # fmt: skip

    return [Candidate(each.name, same(each.running), tuple(map(same, each.options))) for each in queries]


def _after(queries: list[Candidate], found: list[Change]) -> list[Candidate]:
    plans = {name: number for change in found for name, number in change.plans.items()}
    return [
        Candidate(each.name, next(o for o in each.options if o.number == plans[each.name]), each.options)
        if each.name in plans
        else each
        for each in queries
    ]


@settings(max_examples=500, deadline=None)
@given(candidates())
def test_what_is_chosen_is_never_dearer_and_saves_what_it_says(given_queries: list[Candidate]) -> None:
    queries = _consistent(given_queries)
    before = cost_us(each.running for each in queries)
    found = changes(queries)
    after = cost_us(each.running for each in _after(queries, found))
    assert after == pytest.approx(before - sum(each.saved_us for each in found))
    assert all(each.saved_us >= LEAST_US for each in found)
    assert sum(len(each.plans) for each in found[1:]) < MOST_AT_A_TIME
    stays = {each.name for each in queries if not each.options}
    assert not stays & {name for each in found for name in each.plans}
    assert changes(queries) == found


@settings(max_examples=300, deadline=None)
@given(candidates())
def test_nothing_that_pays_by_itself_is_left(given_queries: list[Candidate]) -> None:
    queries = _consistent(given_queries)
    for _ in range(200):
        found = changes(queries, most=100)
        if not found:
            break
        queries = _after(queries, found)
    assert not found
    total = cost_us(each.running for each in queries)
    for place, each in enumerate(queries):
        for option in each.options:
            other = [o.running for at, o in enumerate(queries) if at != place] + [option]
            saved = total - cost_us(other)
            assert saved < max(LEAST_US, LEAST_SHARE * each.running.alone_us) + 1e-6


@settings(max_examples=300, deadline=None)
@given(candidates())
def test_sharing_never_costs_more_than_running_alone(given_queries: list[Candidate]) -> None:
    """What one more query adds is at most what it costs alone, and nothing if an equal plan runs already."""
    plans = [each.running for each in _consistent(given_queries)]
    for place, each in enumerate(plans):
        added = cost_us(plans[: place + 1]) - cost_us(plans[:place])
        assert -1e-6 <= added <= each.alone_us + 1e-6
        assert cost_us([*plans, each]) == pytest.approx(cost_us(plans))


def test_the_best_changes_come_first_within_a_number_of_queries() -> None:
    def change(saved: float, *names: str) -> Change:
        return Change(dict.fromkeys(names, 2), saved, 0.0)

    one, two = [change(5, "a", "b"), change(9, "c")], [change(7, "d"), change(1, "e", "f")]
    assert [list(each.plans) for each in best_first([one, two, []], most=4)] == [["d"], ["a", "b"], ["c"]]
    many = change(8, *(f"q{n}" for n in range(20)))
    assert best_first([[many], [change(7, "d")]], most=4) == [many]


def test_queries_that_have_rested_are_named_once() -> None:
    waiting = Waiting(changed={"a": 0.0, "b": 50.0})
    rested, names = waiting.rested(REST_SECONDS)
    assert (names, dict(rested.changed)) == ({"a"}, {"b": 50.0})
    assert rested.rested(REST_SECONDS) == (rested, frozenset())


def test_what_pays_only_together_changes_together() -> None:
    """Twenty queries share a bad order of joins: the first to leave would pay for the whole of a new one."""
    queries = [
        Candidate(f"q{n}", Option(1, "bad", f"g{n}", 2_000, 10), (Option(2, "good", f"g{n}", 1_000, 5),))
        for n in range(20)
    ]
    (found,) = changes(queries)
    assert found.plans == {f"q{n}": 2 for n in range(20)}
    assert (found.before_us, found.after_us) == (2_200, 1_100)
    assert changes(queries[:1]) == [Change({"q0": 2}, 2_010, 1_005)]


def test_a_plan_that_others_run_is_cheap() -> None:
    own, shared = _alone(1, 1_000), Option(2, "shared", "all", 5_000, 5_000)
    assert cheapest([own, shared], []) == own
    assert cheapest([own, shared], [shared]) == shared
    assert cheapest([own, Option(2, "shared", "other", 5_000, 300)], [shared]).number == 2


def test_a_new_query_has_the_first_plan_unless_another_saves_enough() -> None:
    assert cheapest([_alone(1, 1_000), _alone(2, 810)], []).number == 1
    assert cheapest([_alone(1, 1_000), _alone(2, 790)], []).number == 2
    assert cheapest([_alone(1, 90), _alone(2, 1)], []).number == 1
    assert cheapest([_alone(1, 1_000), _alone(2, 500), _alone(3, 500)], []).number == 2


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_plans_do_not_flutter_when_costs_waver_around_the_threshold(seed: int) -> None:
    dice = random.Random(seed)
    true = {number: 1_000 * dice.choice([0.78, 0.8, 0.82, 1, 1.2, 1.25]) for number in range(1, 5)}
    running, waiting, now, begun = 1, Waiting(), 0.0, []
    for _ in range(200):
        options = tuple(_alone(number, cost * dice.uniform(0.95, 1.05)) for number, cost in true.items())
        query = Candidate("q", options[running - 1], () if waiting.rests("q", now) else options)
        waiting, due = waiting.after(changes([query]), now)
        for change in due:
            running = change.plans["q"]
            begun.append(running)
        now += 5
    assert len(begun) == len(set(begun)) <= 2  # it never goes back
    assert true[running] <= true[1]


def test_a_change_is_wanted_for_a_while_and_then_rests() -> None:
    change = Change({"q": 2}, 1_000, 500)
    waiting, due = Waiting().after([change], 0)
    assert due == []
    waiting, due = waiting.after([change], HELD_SECONDS - 1)
    assert due == []
    interrupted, _ = waiting.after([], HELD_SECONDS)
    assert interrupted.after([change], HELD_SECONDS + 1)[1] == []
    waiting, due = waiting.after([change], HELD_SECONDS)
    assert due == [change]
    assert waiting.rests("q", HELD_SECONDS + REST_SECONDS - 1)
    assert not waiting.rests("q", HELD_SECONDS + REST_SECONDS)
    assert not waiting.rests("other", HELD_SECONDS)


def test_a_change_waits_behind_what_pays_more() -> None:
    """It was reckoned as if that had been made."""
    best, other = Change({"a": 2}, 1_000, 100), Change({"b": 2}, 500, 100)
    waiting, _ = Waiting().after([other], 0)
    assert waiting.after([best, other], HELD_SECONDS)[1] == []
    assert waiting.after([other, best], HELD_SECONDS)[1] == [other]


def test_drift_is_a_share() -> None:
    assert not have_drifted({"a": 100.0}, {"a": 120.0})
    assert have_drifted({"a": 100.0}, {"a": 126.0})
    assert have_drifted({"a": 100.0}, {"a": 79.0})
    assert have_drifted({"a": 1.0}, {"a": 1.0, "b": 1.0})
    assert not have_drifted({"a": 0.0}, {"a": 0.0})


def test_figures_follow_smoothly() -> None:
    assert smoothed({"a": 100.0, "gone": 1.0}, {"a": 200.0, "new": 5.0}, 0.25) == {"a": 125.0, "new": 5.0}


def _trees(places: tuple[int, ...]):
    """Yield all ways to join inputs, by hand."""
    if len(places) == 1:
        yield places[0]
    for size in range(1, len(places)):
        for left in itertools.combinations(places, size):
            if places[0] in left:
                right = tuple(each for each in places if each not in left)
                yield from itertools.product(_trees(left), _trees(right))


def _joined(tree, inputs: list[Node]) -> Node:
    if isinstance(tree, int):
        return inputs[tree]
    left, right = (_joined(each, inputs) for each in tree)
    one, other = (next(c.name for c in side.schema if c.name.endswith("x")) for side in (left, right))
    return Join(left, right, condition(f'"{one}" = "{other}"'))


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32))
def test_the_best_order_is_that_of_all_orders(number: int, seed: int) -> None:
    dice = random.Random(seed)
    inputs: list[Node] = [
        TimeWindow(prefixed(name, name), dice.choice([1, 5, 30]) * 10**6) for name in "abcdef"[:number]
    ]
    rates = {name: dice.choice([1.0, 50.0, 2_000.0]) for name in "abcdef"}

    def work(plan: Node) -> float:
        found = estimates_of(plan, rates)
        return totals_of(each for node, each in found.items() if isinstance(node, Join)).work_us

    node = inputs[0]
    for place, each in enumerate(inputs[1:]):
        node = Join(node, each, condition(f'"{"abcdef"[place]}x" = "{"abcdef"[place + 1]}x"'))
    found = min(work(each.node) for each in alternatives(rewrite(node).node))
    brute = min(work(_joined(tree, inputs)) for tree in _trees(tuple(range(number))))
    assert found == pytest.approx(brute, rel=1e-6)


def test_the_rows_of_a_join_of_many_do_not_depend_on_the_order() -> None:
    names = "abcd"
    inputs: list[Node] = [
        TimeWindow(pick(source(name, "x", "y"), **{f"{name}x": '"x"'}), (1 + place) * 10**6)
        for place, name in enumerate(names)
    ]
    node = inputs[0]
    for place, each in enumerate(inputs[1:]):
        node = Join(node, each, condition(f'"{names[place]}x" = "{names[place + 1]}x"'))
    found = set()
    for each in alternatives(node):
        top = next(n for n in reversed(list(from_below(each.node))) if isinstance(n, Join))
        flow = estimates_of(each.node, dict.fromkeys(names, 100.0))[top].flow
        assert flow is not None
        found.add((round(flow.rate, 12), round(flow.validity, 3)))
    assert len(found) == 1


def test_three_times_as_many_queries_are_compared_in_three_times_the_work() -> None:
    def compared(count: int) -> int:
        queries = [
            Candidate(
                f"q{n}",
                Option(1, f"f{n % 3}", f"g{n}", 2_000, 10),
                tuple(Option(number, f"f{n % 3} {number}", f"g{n}", 1_000, 5) for number in range(2, 8)),
            )
            for n in range(count)
        ]
        found: list[Change] = []
        work = calls(lambda: found.extend(changes(queries)))
        assert [len(each.plans) for each in found] == [count // 3]
        return work

    assert compared(900) < 4 * compared(300)


@settings(max_examples=100, deadline=None)
@given(candidates())
def test_what_is_shared_counts_once_however_plans_came_and_went(given_queries: list[Candidate]) -> None:
    options = [each.running for each in _consistent(given_queries)]
    rows = {(each.fragment, each.group): each.rows_us for each in options}
    fixed = {each.fragment: each.fixed_us for each in options}
    assert cost_us(options) == pytest.approx(sum(rows.values()) + sum(fixed.values()))


def _sharing(name: str, own_us: float) -> Candidate:
    """A query that runs apart from others, and could share samples with them that cost more than it does alone."""
    apart = Option(1, f"apart {name}", "all", 400, 600)
    return Candidate(name, apart, (apart, Option(2, "together", "all", 500, 700, own_us)))


def test_queries_change_together_where_what_they_share_pays_only_then() -> None:
    queries = [_sharing(f"q{place}", own_us=400) for place in range(4)]
    assert changes(queries[:1]) == []
    (found,) = changes(queries)
    assert found.plans == {f"q{place}": 2 for place in range(4)}
    assert (found.before_us, found.after_us) == (4_000, 1_200 + 4 * 400)
    assert changes([replace(each, running=each.options[1]) for each in queries]) == []


def test_only_those_share_that_are_better_off() -> None:
    queries = [_sharing(f"q{place}", own_us) for place, own_us in enumerate((300, 300, 300, 1_500))]
    (found,) = changes(queries)
    assert found.plans == {"q0": 2, "q1": 2, "q2": 2}


def test_samples_that_are_shared_already_cost_nothing_more() -> None:
    lazy = _sharing("q0", own_us=100)
    others = [replace(lazy, running=lazy.options[1], options=()), _sharing("q1", own_us=700)]
    (found,) = changes(others)
    assert found.plans == {"q1": 2}
    assert found.saved_us == pytest.approx(300)


def test_queries_stop_sharing_together_where_sharing_costs_more() -> None:
    def dear(name: str) -> Candidate:
        apart = Option(1, f"apart {name}", "all", 50, 150)
        together = Option(2, "together", "all", 500, 700, 150)
        return Candidate(name, together, (apart, together))

    queries = [dear(f"q{place}") for place in range(3)]
    (found,) = changes(queries)
    assert found.plans == {f"q{place}": 1 for place in range(3)}


def test_what_is_coalesced_in_one_way_costs_once() -> None:
    one = Option(2, "together", "all", 500, 700, 900, "x")
    assert cost_us([one, one]) == pytest.approx(cost_us([one])) == pytest.approx(2_100)
    assert cost_us([one, replace(one, own="y")]) == pytest.approx(3_000)
    assert cost_us([replace(one, own="")] * 2) == pytest.approx(3_000), "without a name it is shared with no other"


def test_queries_that_coalesce_in_one_way_go_together_or_not_at_all() -> None:
    """Apart they share an extent that costs 1,000; of the other query's 1,000, 400 are saved."""
    apart = Option(1, "apart x", "all", 400, 600)
    together = Option(2, "together", "all", 200, 300, 400, "x")
    pair = [Candidate(f"q{place}", apart, (apart, together)) for place in range(2)]
    other = Option(1, "apart y", "all", 400, 600)
    queries = [*pair, Candidate("other", other, (other, replace(together, own="y")))]
    (found,) = changes(queries)
    assert found.plans == {"q0": 2, "q1": 2, "other": 2}
    assert (found.before_us, found.after_us) == pytest.approx((2_000, 1_300))


def test_queries_that_coalesce_in_one_way_count_once_where_sharing_costs_more() -> None:
    """Three and three: apart they have two extents of 1,000, together samples of 1,400 and two parts of 700."""
    queries = []
    for way, number in itertools.product("xy", range(3)):
        apart = Option(1, f"apart {way}", "all", 400, 600)
        together = Option(2, "together", "all", 600, 800, 700, way)
        queries.append(Candidate(f"{way}{number}", together, (apart, together)))
    (found,) = changes(queries)
    assert found.plans == {each.name: 1 for each in queries}
    assert (found.before_us, found.after_us) == pytest.approx((2_800, 2_000))


@pytest.mark.parametrize("named", [False, True])
@settings(max_examples=60)
@given(number=st.integers(0, 2**32))
def test_what_is_shared_or_not_is_the_cheapest_choice_of_all(number: int, *, named: bool) -> None:
    """Queries with `named` ways to coalesce may have the same, and share an extent apart then, too."""
    dice = random.Random(number)
    shared = dice.uniform(0, 2_000), dice.uniform(0, 2_000)
    queries, ways = [], {}
    for place in range(dice.randint(2, 6)):
        way = dice.choice("xyz") if named else str(place)
        apart = Option(1, f"apart {way}", "all", dice.uniform(100, 800), dice.uniform(100, 3_000))
        together = Option(2, "together", "all", *shared, dice.uniform(1, 3_000), way if named else "")
        apart, together = ways.setdefault(way, (apart, together))
        queries.append(Candidate(f"q{place}", apart, (apart, together)))
    tried = [(cost_us(each), each) for each in itertools.product(*(query.options for query in queries))]
    best, chosen = min(tried, key=lambda each: each[0])
    found = changes(queries)
    after = cost_us(each.running for each in _after(queries, found))
    together = [option for option in chosen if option.number == 2]
    saved = cost_us(each.running for each in queries) - best
    if len(together) > 1 and saved >= max(LEAST_US, LEAST_SHARE * cost_us(q.running for q in queries)):
        assert after == pytest.approx(best)
