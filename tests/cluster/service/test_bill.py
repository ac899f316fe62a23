"""Shares of the bill: the axioms of the Shapley value, and the ledger it divides."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.service.billing.bill import Divided, Spent, Splitter, divide, make_bill, splits_of
from cluster.service.billing.energy import asleep_mw
from cluster.service.billing.shapley import MOST_EXACT, MOST_SAMPLED, Method, shapley
from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import fold_demands
from protocols.acquisition.program_reports import ProgramStyle, SensorTraits
from protocols.power.profiles import find_profile
from protocols.wire.demands import PaneDemand, PropertyBand
from protocols.wire.programs import Band, DeadBand, Measure
from tests.cluster.service.energy_cases import SCHEMAS, SECOND, TRAFFIC, demand, entry

MICAZ = find_profile("micaz")
COUNTS = {Method.EXACT: MOST_EXACT, Method.SAMPLED: MOST_EXACT + 3, Method.PROPORTIONAL: MOST_SAMPLED + 3}


def game(values):
    """Return a cost function from a table, and where it has no entry from the classes' numbers."""
    return lambda chosen: values[chosen] if chosen else 0.0


@st.composite
def games(draw, most=4):
    members = draw(st.lists(st.integers(1, 4), min_size=1, max_size=most))
    numbers = range(len(members))
    chosen = [frozenset(each) for size in range(1, len(members) + 1) for each in itertools.combinations(numbers, size)]
    return members, {each: draw(st.floats(-10, 10)) for each in chosen}


def by_all_orders(values, members):
    """Return the shares by the definition: players one by one, in all orders."""
    players = [number for number, count in enumerate(members) for _ in range(count)]
    totals = Counter()
    orders = list(itertools.permutations(range(len(players))))
    for order in orders:
        there = frozenset()
        for player in order:
            after = there | {players[player]}
            totals[player] += values[after] - (values[there] if there else 0.0)
            there = after
    first = [players.index(number) for number in range(len(members))]
    return [totals[player] / len(orders) for player in first]


@settings(max_examples=60, deadline=None)
@given(games(most=3).filter(lambda game: sum(game[0]) <= 6))
def test_shares_are_those_of_the_definition(found):
    members, values = found
    shares, method = shapley(game(values), members)
    assert method is Method.EXACT
    assert shares == pytest.approx(by_all_orders(values, members), abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(games())
def test_shares_add_up_to_the_cost_of_all(found):
    members, values = found
    shares, _ = shapley(game(values), members)
    whole = sum(share * count for share, count in zip(shares, members, strict=True))
    assert whole == pytest.approx(values[frozenset(range(len(members)))], abs=1e-9)


@pytest.mark.parametrize(("method", "count"), COUNTS.items())
def test_however_shares_are_found_they_add_up_and_null_players_pay_nothing(method, count):
    """The cost is that of the most expensive class; class 0 costs nothing."""
    members = [1 + number % 3 for number in range(count)]

    def cost(chosen):
        return math.sqrt(sum(chosen))

    shares, found = shapley(cost, members)
    assert found is method
    whole = sum(share * count for share, count in zip(shares, members, strict=True))
    assert whole == pytest.approx(cost(frozenset(range(count))))
    assert shares[0] == 0
    assert shapley(cost, members)[0] == shares


@given(st.integers(2, MOST_EXACT), st.floats(0.1, 10))
def test_equal_players_pay_equal_shares(count, amount):
    """Classes that are interchangeable pay the same; here the first of them pays for all."""
    shares, _ = shapley(lambda _: amount, [1] * count)
    assert shares == pytest.approx([amount / count] * count)


@settings(max_examples=50, deadline=None)
@given(games(most=3), st.integers(1, 3))
def test_a_player_that_adds_no_cost_pays_nothing_and_changes_no_share(found, count):
    members, values = found
    null = len(members)
    shares, _ = shapley(lambda chosen: values.get(chosen - {null}, 0.0), [*members, count])
    assert shares[null] == pytest.approx(0.0, abs=1e-9)
    assert shares[:null] == pytest.approx(shapley(game(values), members)[0], abs=1e-9)


def test_without_players_there_are_no_shares():
    assert shapley(lambda _: 1.0, []) == ((), Method.EXACT)


# -- motes and queries


QUERIES = st.lists(
    st.builds(
        lambda period, fields, low, panes, width: demand(
            "q",
            period,
            fields,
            bands=(Band("speed", low, None),) if low and not panes and not width else (),
            panes=PaneDemand(f"aa{period}", 60 * SECOND, (Measure.SUM,)) if panes else None,
            tolerances=(DeadBand(fields[0], width),) if width and not panes else (),
            output_us=60 * SECOND,
        ),
        st.sampled_from([1, 2, 5]),
        st.sampled_from([("speed",), ("flow",), ("flow", "speed")]),
        st.sampled_from([None, 10.0]),
        st.booleans(),
        st.sampled_from([0.0, 1.0]),
    ),
    min_size=1,
    max_size=3,
)


def named(demands):
    return [demand.__class__(f"q{n}", *(getattr(demand, name) for name in demand.__struct_fields__[1:]))
            for n, demand in enumerate(demands)]  # fmt: skip


def split(*demands, about=None):
    (found,) = splits_of([about or entry()], {"traffic": demands}, SCHEMAS, Splitter())
    return found


@settings(max_examples=25, deadline=None)
@given(QUERIES)
def test_shares_of_a_mote_add_up_to_its_draw(demands):
    demands = named(demands)
    traits = SensorTraits(30 * SECOND, 100_000, MICAZ, 20_000.0, device="micaz")
    merged = Merger(fold_demands(demands, TRAFFIC), ProgramStyle()).merge(traits, {})
    found = split(*demands)
    assert found.total == pytest.approx(merged.milliwatts)
    assert found.asleep == asleep_mw(MICAZ)
    for one, other in itertools.combinations(demands, 2):
        if one == other.__class__(one.query, *(getattr(other, name) for name in other.__struct_fields__[1:])):
            assert found.queries[one.query] == found.queries[other.query]


def test_equal_demands_pay_equally_and_the_more_expensive_query_pays_more():
    found = split(demand("a", 1), demand("b", 1), demand("c", 5)).queries
    assert found["a"] == found["b"] > found["c"]


def test_a_query_pays_only_for_motes_that_it_concerns():
    here, there = (PropertyBand("segment", 1, 1),), (PropertyBand("segment", 2, 2),)
    assert set(split(demand("a", sensors=here), demand("b", sensors=there)).queries) == {"a"}


def test_a_query_with_two_demands_on_a_stream_is_one_player():
    alone = split(demand("a", 1), demand("a", 5, ("flow",)))
    assert set(alone.queries) == {"a"}
    two = split(demand("a", 1), demand("a", 5, ("flow",)), demand("b", 1), demand("b", 5, ("flow",)))
    assert two.queries["a"] == two.queries["b"] == pytest.approx(alone.queries["a"] / 2)


def test_without_queries_the_whole_draw_is_shared():
    found = split()
    assert (found.queries, found.total) == ({}, asleep_mw(MICAZ))
    (unknown,) = splits_of([entry(stream="rain")], {}, SCHEMAS, Splitter())
    assert unknown == found


def test_motes_of_one_kind_are_computed_once(monkeypatch):
    merged = []
    merge = Merger.merge
    monkeypatch.setattr(Merger, "merge", lambda *arguments: merged.append(1) or merge(*arguments))
    splitter = Splitter()
    entries = [entry(f"m{n}") for n in range(50)]
    for _ in range(3):
        splits_of(entries, {"traffic": [demand("a"), demand("b", 5)]}, SCHEMAS, splitter)
    assert len(merged) == 3  # a, b, and both


def test_spent_energy_is_divided_in_proportion_to_the_draw():
    demands = {"traffic": [demand("a", 1), demand("b", 5)]}
    found = divide([(entry("m1"), 10.0), (entry("m2"), 20.0)], demands, SCHEMAS, Splitter())
    one = split(*demands["traffic"])
    assert found.total == pytest.approx(30.0)
    assert found.shared == pytest.approx(30 * one.asleep / one.total)
    assert found.queries["a"] == pytest.approx(30 * one.queries["a"] / one.total)


def test_the_bill_adds_up():
    demands = {"traffic": [demand("a", 1), demand("b", 5), demand("c", 1, ("flow",))]}
    entries = [entry("m1"), entry("m2", device="telosb"), entry("m3", device="")]
    spent = Spent(Divided({"a": 5.0, "gone": 2.0}, shared=12.0, unknown=1.0), 7, 2, 21.0)
    bill = make_bill(entries, demands, SCHEMAS, Splitter(), spent)
    shares = [each.milliwatts for each in bill.queries] + [bill.everybody_milliwatts]
    assert sum(each.value for each in shares) == pytest.approx(bill.milliwatts.value)
    assert sum(each.milliwatts_share for each in bill.queries) == pytest.approx(
        1 - bill.everybody_milliwatts.value / bill.milliwatts.value
    )
    assert all(each.low < each.value < each.high for each in shares)
    assert (
        bill.joules
        == 20.0
        == sum(each.joules for each in bill.queries) + 12.0 + bill.ended_joules + bill.unbilled_joules
    )
    assert (bill.ended_joules, bill.unbilled_joules, bill.since_us, bill.expected_joules) == (2.0, 1.0, 7, 21.0)
    assert [each.motes for each in bill.queries] == [3, 3, 3]
    assert bill.methods == {"exact": 3}
