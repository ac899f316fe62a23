"""Families of panes: which windows may join which, how they are stored, and that other windows know nothing of them."""

from __future__ import annotations

from cluster.operators import Aggregate, Join, TimeWindow
from cluster.physical.lowering import lower, lower_alone
from cluster.physical.migration import Migration
from cluster.physical.text import plan_text
from cluster.plan.alternatives import alternatives
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.explain import explain
from cluster.plan.pane_query import differ_in_families_only, families_of, with_family
from cluster.plan.stored_plans import read, written
from tests.cluster.plan.plans import A, B, call, condition, grouped, where, window

SECOND = 1_000_000


def counted(size_s: int, slide_s: int, keys: str = "x") -> Aggregate:
    return grouped(window(A, size_s * SECOND, slide_s * SECOND), keys, call("count"))


def test_a_window_may_join_families_of_whole_parts_of_its_own_panes() -> None:
    assert families_of(counted(60, 10)) == tuple(10 * SECOND // parts for parts in (1, 2, 4, 5))
    assert families_of(grouped(window(A, 4, 6), "x", call("count"))) == (2, 1)


def test_what_shares_no_panes_has_no_families() -> None:
    joined = Join(counted(60, 10), window(B, 5), condition("x = u"))
    for plan in (A, window(A, 6, 2), joined, grouped(window(A, 60), "x", call("count"))):
        assert families_of(plan) == ()


def test_each_family_is_a_plan_with_a_number() -> None:
    found = alternatives(counted(61, 7))
    assert [each.words for each in found[1:]] == [
        f"panes are shared in the family of {width} only" for width in ("1s", "500ms", "250ms", "200ms")
    ]
    assert found[1].node == with_family(counted(61, 7), SECOND)
    keyed = grouped(where(window(A, 6, 2), "x > 1"), "x", call("count"))
    assert alternatives(keyed)[1].words == "conditions on keys are tested behind the aggregate", (
        "numbers stay as they were"
    )


def test_windows_of_one_family_share_panes_and_others_do_not() -> None:
    odd, also_odd, even = counted(61, 7), counted(6, 3), counted(60, 5)
    queries = [odd, with_family(odd, SECOND), with_family(also_odd, SECOND), even]
    plan = lower(Plan(1, tuple(PlannedQuery(f"q{place}", 1, each) for place, each in enumerate(queries))))
    shared = [[each.query for each in fragment.subscribers] for fragment in plan.fragments]
    assert shared == [["q0", "q3"], ["q1", "q2"]]
    assert "panes of 1s, of the family of 1s\n" in plan_text(plan)
    assert "window of 1m1s, moving every 7s, with panes of the family of 1s" in explain(queries[1])


def test_windows_of_any_width_meet_in_a_family() -> None:
    """Common families are for windows within a factor of 256; one with a name is whatever was put there."""
    wide, narrow = counted(600, 600), grouped(window(A, 100 * SECOND, 100 * SECOND), "x", call("count"))
    assert (
        lower_alone(with_family(wide, 100 * SECOND)).identity == lower_alone(with_family(narrow, 100 * SECOND)).identity
    )


def test_a_plan_of_an_earlier_version_is_in_the_common_family() -> None:
    plan = counted(60, 10)
    assert b"family" not in written(plan)
    assert read(written(plan)) == plan == with_family(with_family(plan, 5), None)
    assert lower_alone(read(written(plan))).identity == "panes-24f7e61e26c83f9f"
    assert read(written(with_family(plan, 5))) == with_family(plan, 5)


def test_a_migration_between_families_cuts_no_row() -> None:
    plan = counted(60, 10)
    assert differ_in_families_only(plan, with_family(plan, SECOND))
    assert not Migration(plan, with_family(plan, SECOND)).cut
    assert not differ_in_families_only(plan, with_family(counted(70, 10), SECOND))
    assert Migration(plan, counted(70, 10)).cut
    assert not differ_in_families_only(TimeWindow(A, 5, 2), TimeWindow(A, 5, 2, family_us=1)), "it shares no panes"
