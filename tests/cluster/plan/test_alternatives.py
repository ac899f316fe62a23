"""Alternatives of a plan mean the same: at every instant, and row by row where none is cut in a migration."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import cluster.plan.alternatives as planning
from cluster.operators import (
    Aggregate,
    CountWindow,
    Distinct,
    Extent,
    Filter,
    Join,
    Node,
    Relation,
    SemiJoin,
    Source,
    TableLookup,
    TimeWindow,
    Union,
)
from cluster.operators.columns import STAMP, Column
from cluster.operators.extent import Coalescing
from cluster.operators.scalar_expressions import conjunction_of
from cluster.operators.walks import nodes_of
from cluster.physical.migration import Migration
from cluster.plan.alternatives import AS_PLANNED, MOST, Alternative, alternatives
from cluster.plan.explain import explain
from cluster.plan.rewrite import rewrite
from cluster.planning_budget import Budget, PlanningLimitError, limited
from tests.cluster.oracle.definition import snapshots_of_plan
from tests.cluster.oracle.running import deliveries, run_plan
from tests.cluster.plan.plans import INTEGER, call, condition, pick, prefixed, source, where

INSTANTS, HORIZON = 8, 16
VALUES = (0, 0, 1, 1, 2, None)


def _streams(dice: random.Random) -> dict[str, list[tuple[int, tuple[int | None, int | None]]]]:
    """Return streams with enough tuples for pairs, several partners and equal rows."""
    return {
        name: sorted(
            ((dice.randrange(INSTANTS), (dice.choice(VALUES), dice.choice(VALUES))) for _ in range(dice.randint(3, 7))),
            key=lambda row: row[0],
        )
        for name in "abcd"
    }


@st.composite
def sides(draw, name: str, prefix: str) -> Node:
    node: Node = TimeWindow(source(name, "x", "y"), draw(st.integers(1, 5)), draw(st.sampled_from([1, 1, 2])))
    if draw(st.integers(0, 2)) == 0:
        node = where(node, draw(st.sampled_from(['"x" > 0', '"y" < 2', '"x" = "y"'])))
    node = pick(node, **{f"{prefix}x": '"x"', f"{prefix}y": '"y"'})
    kind = draw(st.sampled_from(["plain", "plain", "plain", "distinct", "groups"]))
    if kind == "distinct":
        return Distinct(node)
    if kind == "groups":
        return Aggregate(node, (f"{prefix}x",), (replace(call("count"), name=f"{prefix}y"),))
    return node


@st.composite
def joins(draw, most: int = 4) -> Node:
    prefixes = "abcd"[: draw(st.integers(2, most))]
    node = draw(sides("a", "a"))
    for place, prefix in enumerate(prefixes[1:], start=1):
        other = draw(sides(draw(st.sampled_from("abcd")), prefix))
        before = st.sampled_from([f'"{each}{column}"' for each in prefixes[:place] for column in "xy"])
        own = st.sampled_from([f'"{prefix}x"', f'"{prefix}y"'])
        parts = [f"{draw(before)} = {draw(own)}"]
        if draw(st.integers(0, 3)) == 0:
            parts.append(f"{draw(before)} {draw(st.sampled_from(['<', '<>', '=']))} {draw(own)}")
        predicate = conjunction_of(map(condition, parts))
        node = Join(node, other, predicate)
        if draw(st.integers(0, 3)) == 0:
            node = Filter(node, condition(f"{draw(before)} <= {draw(own)}"))
    return node


KINDS = ("join", "project", "aggregate", "early", "grouped", "distinct", "partners", "union")


@st.composite
def queries(draw, kind: str) -> Node:
    if kind == "early":
        return draw(_aggregated_joins())
    if kind == "grouped":
        node = where(source("a", "x", "y"), draw(st.sampled_from(['"x" > 0', '"y" > 0', '"x" < 2 AND "y" < 2'])))
        return Aggregate(TimeWindow(node, draw(st.integers(1, 5))), (draw(st.sampled_from("xy")),), (call("count"),))
    if kind == "partners":
        left, right = draw(sides("a", "a")), draw(sides("b", "b"))
        return SemiJoin(left, right, condition('"ax" = "bx"'))
    if kind == "union":
        right = pick(draw(sides("b", "b")), ax='"bx"', ay='"by"')
        return Distinct(Union(draw(sides("a", "a")), right))
    node = draw(joins(4 if kind == "join" else 3))
    names = [column.name for column in node.schema]
    some = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    if kind == "aggregate":
        keys = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        function = draw(st.sampled_from(["count", "sum", "max"]))
        return Aggregate(node, tuple(keys), (replace(call(function, draw(st.sampled_from(names))), name="found"),))
    if kind == "project" or draw(st.booleans()):
        node = pick(node, **{each: f'"{each}"' for each in some})
    return Distinct(node) if kind == "distinct" else node


@st.composite
def _aggregated_joins(draw) -> Node:
    left = TimeWindow(pick(source("a", "x", "y"), ax='"x"', ay='"y"'), draw(st.integers(2, 5)))
    right: Node = TimeWindow(pick(source("b", "x", "y"), bx='"x"', by='"y"'), draw(st.integers(2, 5)))
    kind = draw(st.sampled_from(["plain", "distinct", "groups", "groups"]))
    if kind == "distinct":
        right = Distinct(right)
    elif kind == "groups":
        right = Aggregate(right, ("bx",), (replace(call("count"), name="by"),))
    on = draw(st.sampled_from(['"ax" = "bx"', '"ax" = "bx"', '"ay" = "bx"', '"ax" = "bx" AND "ay" = "by"']))
    join = Join(left, right, condition(on)) if draw(st.booleans()) else Join(right, left, condition(on))
    keys = draw(st.lists(st.sampled_from(["ax", "bx", "ay", "by"]), min_size=1, max_size=3, unique=True))
    function, argument = draw(st.sampled_from([("count", None), ("sum", "ay"), ("sum", "ax"), ("max", "by")]))
    return Aggregate(join, tuple(keys), (replace(call(function, argument), name="found"),))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_alternatives_mean_the_same(kind: str, data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    streams = _streams(dice)
    base = rewrite(data.draw(queries(kind))).node
    found = alternatives(base)
    assert found[0] == Alternative(base)
    kinds = sorted({tuple(each.changes[-1].split()[-3:]) for each in found[1:]})
    some = dice.sample(found[1:], min(len(found) - 1, 3))
    some += [next(each for each in found[1:] if tuple(each.changes[-1].split()[-3:]) == last) for last in kinds]
    meaning = snapshots_of_plan(base, streams, HORIZON)
    rows = _rows(base, streams, dice)
    assert _snapshots(rows) == meaning
    for each in dict.fromkeys(some):
        note(f"{each.words}\n{explain(base)}\n{explain(each.node)}")
        assert each.node.schema == base.schema
        assert snapshots_of_plan(each.node, streams, HORIZON) == meaning
        own = _rows(each.node, streams, dice)
        assert _snapshots(own) == meaning
        if not Migration(base, each.node).cut:
            assert Counter(own) == Counter(rows)


def _rows(plan: Node, streams: dict, dice: random.Random) -> list[tuple]:
    return run_plan(plan, deliveries(streams, random.Random(dice.random())))


def _snapshots(rows: list[tuple]) -> list[Counter]:
    return [Counter(row[2:] for row in rows if row[0] <= at < row[1]) for at in range(HORIZON)]


def _chain(number: int) -> Node:
    node: Node = TimeWindow(prefixed("a", "a"), 5)
    for one, other in pairwise("abcdef"[:number]):
        node = Join(node, TimeWindow(prefixed(other, other), 5), condition(f'"{one}x" = "{other}x"'))
    return rewrite(node).node


def test_all_orders_of_one_key_are_found_once() -> None:
    # (2n - 3)!! trees of n inputs of which each can be joined with each.
    for number, orders in ((2, 1), (3, 3), (4, 15), (5, 105), (6, 945)):
        found = alternatives(_chain(number))
        assert len(found) == len({each.node for each in found}) == orders


def test_an_order_needs_no_product() -> None:
    a, b, c = (TimeWindow(prefixed(name, name), 5) for name in "abc")
    plan = rewrite(Join(Join(a, b, condition('"ax" = "bx"')), c, condition('"by" = "cy"'))).node
    assert [each.words for each in alternatives(plan)] == [AS_PLANNED, "streams are joined as (a, (b, c))"]


def test_orders_by_equality_come_first_and_of_these_one_input_after_the_other() -> None:
    a, b, c, d = (TimeWindow(prefixed(name, name), 5) for name in "abcd")
    plan = Join(Join(Join(a, b, condition('"ax" = "bx"')), c, condition('"by" < "cy"')), d, condition('"cx" = "dx"'))
    words = [each.words for each in alternatives(rewrite(plan).node)]
    deep = [each.count("((") < 2 or "), (" not in each for each in words]
    assert deep == sorted(deep, reverse=True)
    assert len(words) == 5


def test_equalities_that_follow_are_used() -> None:
    found = {each.words: each.node for each in alternatives(_chain(3))}
    tree = explain(found["streams are joined as ((a, c), b)"])
    assert "join ax = cx" in tree
    assert "join ax = bx AND bx = cx" in tree


def test_tidied_orders_stay_as_they_are() -> None:
    a, b, c, d = (TimeWindow(prefixed(name, name), 5) for name in "abcd")
    joined = Join(Join(Join(a, b, condition('"ax" = "bx"')), c, condition('"bx" = "cx"')), d, condition('"cy" = "dy"'))
    plan = rewrite(pick(joined, ay='"ay"', dx='"dx" + 1')).node
    orders = [each.node for each in alternatives(plan) if all("joined as" in words for words in each.changes)]
    assert len(orders) > 5
    assert all(rewrite(each).node == each for each in orders)


def _words(plan: Node) -> list[str]:
    return [each.words for each in alternatives(rewrite(plan).node)]


def test_an_aggregate_is_computed_before_a_join_with_one_row_of_each_key() -> None:
    a, b = TimeWindow(prefixed("a", "a"), 5), TimeWindow(prefixed("b", "b"), 3)
    groups = Aggregate(b, ("bx",), (replace(call("count"), name="n"),))
    total = replace(call("sum", "ay"), name="total")
    early = "a is aggregated before the join"
    equal = condition('"ax" = "bx"')
    assert early in _words(Aggregate(Join(a, groups, equal), ("ax", "n"), (total,)))
    assert early in _words(Aggregate(Join(a, Distinct(pick(b, bx='"bx"')), equal), ("bx",), (total,)))
    # Several partners count a row several times.
    assert early not in _words(Aggregate(Join(a, b, equal), ("ax",), (total,)))
    # The same row of A has a partner for each value of a column that is neither joined nor a key.
    partly = Aggregate(Join(a, Distinct(b), equal), ("ax",), (total,))
    assert not list(planning.aggregate_before_join(partly))
    assert list(planning.aggregate_before_join(replace(partly, keys=("ax", "by"))))
    # Groups of A have other partners.
    assert early not in _words(Aggregate(Join(a, groups, equal), ("ay",), (total,)))
    assert early not in _words(Aggregate(Join(a, groups, condition('"ax" = "bx" AND "ay" < "n"')), ("ax",), (total,)))
    # The other side is aggregated, too.
    both = (total, replace(call("max", "n"), name="most"))
    assert early not in _words(Aggregate(Join(a, groups, equal), ("ax",), both))
    # It matters which row comes first.
    first = replace(call("first", "ay"), name="first")
    assert early not in _words(Aggregate(Join(a, groups, equal), ("ax",), (first,)))


def test_lookups_follow_those_whose_columns_they_read() -> None:
    def table(name: str, *columns: str) -> Relation:
        return Relation(name, f"{name}@1", tuple(Column(each, INTEGER) for each in columns))

    found = tuple(Column(each, INTEGER) for each in ("x", "p", "q", "r"))
    lookups = (
        TableLookup(table("one", "p"), condition('"x" = "p"'), "inner"),
        TableLookup(table("two", "q"), condition('"p" = "q"'), "inner"),
        TableLookup(table("three", "r"), condition('"x" = "r"'), "inner"),
    )
    plan = Source("a", found, lookups=lookups)
    assert [each.words for each in alternatives(plan)[1:]] == [
        "tuples of a are looked up in one, three, two, in this order",
        "tuples of a are looked up in three, one, two, in this order",
    ]


def test_what_depends_on_the_order_of_rows_keeps_what_is_below() -> None:
    """Of two tuples at one instant, another plan may count another one as the last."""
    a, b, c = (prefixed(name, name) for name in "abc")
    joined = Join(Join(a, b, condition('"ax" = "bx"')), c, condition('"bx" = "cx"'))
    assert len(alternatives(rewrite(joined).node)) == 3
    assert _words(CountWindow(joined, 2)) == [AS_PLANNED]


def test_they_are_bounded() -> None:
    inputs = [TimeWindow(prefixed(name, f"{name}{number}"), 5) for number in range(4) for name in "abc"]
    node: Node = inputs[0]
    names = [column.name for each in inputs for column in each.schema][::2]
    for place, each in enumerate(inputs[1:], start=1):
        node = Join(node, each, condition(f'"{names[place - 1]}" = "{names[place]}"'))
    found = alternatives(node)
    assert len(found) == MOST
    assert alternatives(node, most=7) == found[:7]


def test_they_end_with_the_time_for_planning() -> None:
    ticks = iter(range(10_000_000))
    with limited(Budget(500, lambda: float(next(ticks)))), pytest.raises(PlanningLimitError):
        alternatives(_chain(6))


def test_numbers_depend_on_the_plan_alone() -> None:
    once = alternatives(_chain(4))
    assert once == alternatives(_chain(4))


VARIED: dict[str, Callable[[], Node]] = {
    "join_orders": lambda: _chain(3),
    "aggregate_before_join": lambda: Aggregate(
        Join(
            TimeWindow(prefixed("a", "a"), 5), Distinct(TimeWindow(pick(source("b", "x", "y"), bx='"x"'), 5)),
            condition('"ax" = "bx"'),
        ),
        ("ax",), (call("count"),),
    ),
    "distinct_below": lambda: Distinct(
        Join(TimeWindow(prefixed("a", "a"), 5), TimeWindow(prefixed("b", "b"), 5), condition('"ax" = "bx"'))
    ),
    "distinct_partners": lambda: SemiJoin(
        TimeWindow(prefixed("a", "a"), 5), TimeWindow(prefixed("b", "b"), 5), condition('"ax" = "bx"')
    ),
    "filter_above_aggregate": lambda: Aggregate(
        TimeWindow(where(source("a", "x", "y"), '"x" > 1'), 5), ("x",), (call("count"),)
    ),
    "filter_above_join": lambda: Join(
        TimeWindow(where(prefixed("a", "a"), '"ay" > 1'), 5), TimeWindow(prefixed("b", "b"), 5),
        condition('"ax" = "bx"'),
    ),
    "pane_families": lambda: Aggregate(TimeWindow(source("a", "x", "y"), 6, 4), ("x",), (call("count"),)),
    "extents_kept": lambda: Extent(
        TimeWindow(Source("a", (*source("a", "x", "y").columns, STAMP)), 6), ("x",),
        Coalescing(("y",), STAMP.name, ("x", "y"), ("since", "until")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("variation", planning.VARIATIONS, ids=lambda each: each.__name__)
def test_each_variation_applies(variation: planning.Variation) -> None:
    if variation is planning.lookup_orders:
        return  # above
    plan = rewrite(VARIED[variation.__name__]()).node
    assert [words for node in nodes_of(plan) for _, words in variation(node)]


def test_stamps_are_columns_like_others() -> None:
    stamped = Source("a", (Column("x", INTEGER), STAMP))
    assert alternatives(TimeWindow(stamped, 5)) == (Alternative(TimeWindow(stamped, 5)),)
