"""What changes make of queries and plans, without a registry's file."""

from __future__ import annotations

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING, PhysicalPlan
from cluster.plan.epoch import Handover
from cluster.plan.rewrite import rewrite
from cluster.plan.sized import sized
from cluster.service.registry.plan_transitions import (
    LostEpochs,
    Transition,
    adding,
    adding_many,
    dropping,
    finishing,
    migrating,
    skipping,
)
from cluster.service.registry.running_queries import NextPlan, RegisteredQuery, RunningQueries
from tests.cluster.service.conftest import TRAFFIC

FIRST = RunningQueries(epoch=1)


def query(name: str, epoch: int, most: int) -> RegisteredQuery:
    text = f"SELECT speed FROM traffic WHERE speed < {most}"
    node = rewrite(translate(text, Catalog.of([TRAFFIC])).node).node
    return RegisteredQuery(name, text, node, epoch, created_us=0)


def ranged(name: str, epoch: int) -> RegisteredQuery:
    text = "SELECT AVG(speed) AS mean FROM traffic WINDOW(RANGE MIN 1 HOUR, MAX 2 HOURS)"
    node = rewrite(sized(translate(text, Catalog.of([TRAFFIC])).node)).node
    return RegisteredQuery(name, text, node, epoch, created_us=0)


def carried_out(change: Transition, physical: PhysicalPlan) -> PhysicalPlan:
    planned = change.planned(physical)
    assert (planned.epoch, planned.positions) == (change.after.epoch, change.after.positions)
    assert planned.subscribers.keys() == {each.identity for each in change.after.by_name.values()}
    return planned


def test_queries_come_and_go_with_an_epoch_each() -> None:
    slow, others = query("slow", 2, 10), (query("a", 3, 20), query("b", 3, 30))
    came = adding(FIRST, slow, {"traffic": 4}, used=7)
    assert (came.come, came.goes, came.used, came.lost) == ((slow,), None, 7, None)
    more = adding_many(came.after, others, {"traffic": 5})
    gone = dropping(more.after, slow, {"traffic": 6})
    assert (gone.come, gone.goes) == ((), "slow")
    assert [change.after.epoch for change in (came, more, gone)] == [2, 3, 4]
    assert list(gone.after.by_name) == ["a", "b"]
    physical = lower(FIRST.plan, NOTHING)
    for change in (came, more, gone):
        physical = carried_out(change, physical)


def test_queries_with_ranges_are_known_apart() -> None:
    first, second = ranged("first", 2), ranged("second", 3)
    one = adding_many(FIRST, (query("slow", 2, 10), first), {"traffic": 4}).after
    both = adding(one, second, {"traffic": 5}).after
    assert list(both.sized.values()) == [first, second]
    following = NextPlan(4, Handover(10, 10), 0)
    moves = migrating(both, first, ranged("first", 2).node, following, {"traffic": 6}).after
    assert [each.next for each in moves.sized.values()] == [following, None]
    moved = finishing(moves, moves.by_name["first"], {"traffic": 7}).after
    assert [(each.name, each.since_epoch, each.next) for each in moved.sized.values()] == [
        ("first", 4, None), ("second", 3, None),
    ]  # fmt: skip
    without = dropping(moved, moved.by_name["first"], {"traffic": 8}).after
    assert list(dropping(without, without.by_name["slow"], {"traffic": 9}).after.sized.values()) == [second]
    assert list(skipping(both, 9, {}, LostEpochs(0, 0), seen_us=0).after.sized) == ["first", "second"]


def test_names_that_differ_in_case_only_are_known_together() -> None:
    """Earlier versions let in such queries."""
    both = adding_many(FIRST, (query("warm", 2, 10), query("Warm", 2, 20), query("cold", 2, 30)), {}).after
    assert dict(both.spellings) == {"warm": ("warm", "Warm"), "cold": ("cold",)}
    moved = migrating(both, both.by_name["warm"], query("warm", 2, 40).node, NextPlan(3, Handover(1, 1), 0), {}).after
    assert dict(moved.spellings) == dict(both.spellings)
    one = dropping(moved, moved.by_name["warm"], {}).after
    assert dict(one.spellings) == {"warm": ("Warm",), "cold": ("cold",)}
    assert dict(dropping(one, one.by_name["Warm"], {}).after.spellings) == {"cold": ("cold",)}


def test_what_is_lost_adds_up() -> None:
    before = adding(FIRST, query("slow", 2, 10), {"traffic": 4}).after
    moved = skipping(before, 9, {"traffic": 8}, LostEpochs(3, 1), seen_us=2)
    assert moved.lost == LostEpochs(3 + 7, 2)
    assert (moved.after.epoch, list(moved.after.by_name)) == (10, ["slow"])
    carried_out(moved, NOTHING)
