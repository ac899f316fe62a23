"""A plan made of the one before is the plan that is lowered anew, with everything that is derived from it.

epoch      1         2         3             4
queries    a         a b       a b c         a c           one step each, at the cost of the step
fragments  F(a)      F(a b)    F(a b) P(c)   F(a) P(c)
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as msgspec_replace

from cluster.fjord.acceptance import RowLimits, check_rows, check_texts, made_per_second
from cluster.fjord.upper_estimates import check_state, kept_by
from cluster.language.translation import translate
from cluster.layered_map import LayeredMap
from cluster.operators import Node
from cluster.physical import plan_json
from cluster.physical.lowering import (
    begins_with_others,
    lower,
    with_handover,
    with_query,
    without_queries,
    without_query,
)
from cluster.physical.nodes import NOTHING, PhysicalPlan
from cluster.physical.plan_changes import PhysicalChange
from cluster.physical.plan_files import WHOLE_EVERY, whole_every
from cluster.physical.subscriber_tally import SubscriberTally
from cluster.plan.epoch import Handover, Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from tests.cluster.physical.test_lowering import CATALOG, KINDS, NODES
from tests.counted_calls import calls

DERIVED = (
    "by_identity",
    "subscribers",
    "homes",
    "readers",
    "streams",
    "relation_readers",
    "relations",
    "with_history",
)
RATES = {"traffic": 40.0}
STEPS = st.lists(st.one_of(KINDS, st.none()), min_size=1, max_size=12)


def plan_of(text: str) -> Node:
    return rewrite(translate(text, CATALOG).node).node


def check_same(found: PhysicalPlan, queries: tuple[PlannedQuery, ...]) -> None:
    anew = lower(Plan(found.epoch, queries, found.positions))
    assert found == anew
    for name in DERIVED:
        assert getattr(found, name) == getattr(anew, name), name
    assert [each.identity for each in found.oldest_first] == [each.identity for each in queries]
    assert {query: part.identity for query, part in found.by_query.items()} == {
        each.identity: part.identity for part in anew.fragments for each in part.subscribers
    }
    for one, other in zip(found.fragments, anew.fragments, strict=True):
        tallies = one.tally, SubscriberTally.of(other.subscribers)
        ordered = [replace(each, by_group=LayeredMap()) for each in tallies]
        assert ordered[0] == ordered[1]
        windows = [{group: sorted(lengths) for group, lengths in each.by_group.items()} for each in tallies]
        assert windows[0] == windows[1]
        assert list(one.tally.measures) == list(other.tally.measures)
    assert made_per_second(found, RATES) == pytest.approx(made_per_second(anew, RATES))
    state = [sum(each.bytes for each in kept_by(plan, RATES)) for plan in (found, anew)]
    assert state[0] == pytest.approx(state[1])


def read_by_change(followed: PhysicalPlan, before: PhysicalPlan, after: PhysicalPlan) -> PhysicalPlan:
    """Return what a reader of the files has after the change between two plans."""
    change = PhysicalChange.between(before, after)
    assert change is not None
    decoded = plan_json.decode(plan_json.encode(change))
    assert isinstance(decoded, PhysicalChange)
    return decoded.applied_to(followed)


@given(STEPS, st.randoms(use_true_random=False))
def test_what_is_carried_over_is_what_is_made_anew(steps: list[tuple[int, int] | None], dice: random.Random) -> None:
    queries: tuple[PlannedQuery, ...] = ()
    running = followed = NOTHING
    for epoch, step in enumerate(steps, 1):
        before = running
        if step is None and queries:
            gone = queries[dice.randrange(len(queries))]
            queries = tuple(each for each in queries if each is not gone)
            running = without_query(running, gone, {"traffic": epoch})
        elif step is not None:
            queries = (*queries, PlannedQuery(f"q{epoch}", epoch, NODES[step[0]][step[1]]))
            running = with_query(running, queries[-1], {"traffic": epoch})
        else:
            running = lower(Plan(epoch, queries), running)
        check_same(running, queries)
        followed = read_by_change(followed, before, running)
        check_same(followed, queries)


@given(STEPS, st.randoms(use_true_random=False))
def test_a_handover_is_carried_over_like_what_is_made_anew(
    steps: list[tuple[int, int] | None], dice: random.Random
) -> None:
    queries: tuple[PlannedQuery, ...] = ()
    running = followed = NOTHING
    for epoch, step in enumerate(steps, 1):
        before, positions = running, {"traffic": epoch}
        plain = [each for each in queries if each.until is None]
        leaving = [each for each in queries if each.until is not None]
        node = NODES[dice.randrange(len(NODES))][0] if step is None else NODES[step[0]][step[1]]
        choice = dice.randrange(4)
        if choice < 2 and plain:
            old, handover = dice.choice(plain), Handover(60 * epoch, 60 * epoch + 5, cut=choice == 0)
            handing = msgspec_replace(old, until=handover)
            new = PlannedQuery(old.name, epoch, node, since=handover)
            queries = (*(handing if each is old else each for each in queries), new)
            running = with_handover(running, handing, new, positions)
        elif choice == 2 and leaving:
            gone = dice.choice(leaving)
            both = [each for each in queries if each.name == gone.name] if dice.random() < 0.5 else [gone]
            queries = tuple(each for each in queries if all(each is not other for other in both))
            running = without_queries(running, both, positions)
        else:
            queries = (*queries, PlannedQuery(f"q{epoch}", epoch, node))
            running = with_query(running, queries[-1], positions)
        check_same(running, queries)
        followed = read_by_change(followed, before, running)
        check_same(followed, queries)
        assert lower(Plan(epoch, queries, positions), before) == running


@given(STEPS)
def test_a_large_plan_is_written_in_parts_that_are_the_same_text(steps: list[tuple[int, int] | None]) -> None:
    nodes = [NODES[step[0]][step[1]] for step in steps if step is not None]
    plan = lower(Plan(7, tuple(PlannedQuery(f"q{n}", n, node) for n, node in enumerate(nodes, 1)), {"traffic": 3}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_json, "PART", 2)
        text = b"".join(plan_json.file_parts(plan))
    assert plan_json.decode(text) == plan
    plan_json.check_digest(text)
    if len(nodes) > 2:
        assert text.replace(b"\n", b"") == plan_json.encode(plan)
        with pytest.raises(ValueError, match="has been changed"):
            plan_json.check_digest(text.replace(b'"epoch":7', b'"epoch":8', 1))


def test_a_change_of_what_is_not_there_is_refused() -> None:
    plan = with_query(NOTHING, PlannedQuery("a", 1, NODES[0][0]))
    (fragment,) = plan.fragments
    with pytest.raises(ValueError, match="changes twice"):
        PhysicalChange(2, go=(fragment.identity, fragment.identity)).applied_to(plan)
    with pytest.raises(ValueError, match="there is no"):
        PhysicalChange(2, go=("fold-x@0",)).applied_to(plan)


def test_whole_plans_are_further_apart_the_larger_they_are() -> None:
    many = [PlannedQuery(f"q{n}", n, NODES[0][n % 3]) for n in range(1, 2_000)]
    assert whole_every(lower(Plan(1, tuple(many[:100])))) == WHOLE_EVERY
    assert whole_every(lower(Plan(1, tuple(many)))) == 4 * WHOLE_EVERY


def test_queries_that_need_an_epoch_of_their_own_are_told_apart() -> None:
    *others, distinct = [begins_with_others(nodes[0]) for nodes in NODES]
    assert all(others)
    assert not distinct, "rows of its subscribers are distinguished by the epochs with which they began"
    assert not begins_with_others(plan_of("SELECT speed FROM traffic SINCE 2 HOURS AGO WHERE speed < 3"))


def filtered(number: int) -> Node:
    """Return one of three kinds of plans, with a condition of its own."""
    texts = (
        "SELECT speed FROM traffic WHERE speed < {}",
        "SELECT lane, AVG(speed) AS v FROM traffic WINDOW(RANGE 5 MINUTES) WHERE speed < {} GROUP BY lane",
        "SELECT DISTINCT lane FROM traffic WINDOW(RANGE 1 MINUTE) WHERE speed > {}",
    )
    return plan_of(texts[number % 3].format(number))


def test_a_query_more_or_less_is_the_same_work_however_many_run() -> None:
    nodes = {number: filtered(number) for number in range(660)}

    def running(count: int) -> tuple[PhysicalPlan, tuple[PlannedQuery, ...]]:
        queries = tuple(PlannedQuery(f"q{n}", n + 1, nodes[n]) for n in range(count))
        plan = lower(Plan(count, queries, {"traffic": 1}))
        # One more and one less, so that all indices are there.
        added = PlannedQuery("x", count + 1, nodes[658])
        more = with_query(plan, added)
        check_rows(plan, more, added.identity, RATES, RowLimits())
        check_texts(plan, more, added.identity, RATES, 0)
        check_state(plan, more, added.identity, RATES, limit_bytes=2**50)
        return without_query(more, added, {"traffic": 2}), queries

    work = []
    for count in (30, 600):
        plan, queries = running(count)
        added = PlannedQuery("new", count + 7, nodes[659])

        def add(plan: PhysicalPlan = plan, added: PlannedQuery = added) -> PhysicalPlan:
            after = with_query(plan, added)
            check_rows(plan, after, added.identity, RATES, RowLimits())
            check_texts(plan, after, added.identity, RATES, 0)
            check_state(plan, after, added.identity, RATES, limit_bytes=2**50)
            assert PhysicalChange.between(plan, after) is not None
            return after

        def drop(plan: PhysicalPlan = plan, gone: PlannedQuery = queries[4]) -> None:
            after = without_query(plan, gone, {"traffic": 3})
            assert PhysicalChange.between(plan, after) is not None

        add()  # what is remembered with a plan's nodes
        work.append((calls(add), calls(drop)))
    (few_add, few_drop), (many_add, many_drop) = work
    # Looking for a place among them halves what is left.
    assert many_add <= few_add + 20
    assert many_drop <= few_drop + 20
