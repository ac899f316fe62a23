"""When a query goes on with another plan: from which instant on, whole or cut, or why not.

stamps read    ----------|
reach                     ~~~~~~~~|      the new plan knows all that matters
instant                           T
delay                              ~~|   the old plan has answered what begins before T
"""

from __future__ import annotations

import pytest

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import (
    CountWindow,
    Distinct,
    Filter,
    Granularity,
    Istream,
    Join,
    Lookup,
    Node,
    PartitionedWindow,
    Ranked,
    SessionWindow,
    StampJoin,
    TimeWindow,
    Union,
)
from cluster.operators.columns import Ordering
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.window_shapes import Session
from cluster.physical.migration import Migration, MigrationRefusedError
from cluster.plan.epoch import Handover
from cluster.plan.history import EVER_US
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.local.plans_cut_apart import RELATION
from tests.cluster.plan.plans import ALSO_A, A, B, C, call, condition, grouped, pick, where, window

COUNT = call("count")
READINGS = StreamSchema("readings", (Field("k", FieldType.INTEGER), Field("x", FieldType.INTEGER)))


def planned(text: str) -> Node:
    return rewrite(translate(text, Catalog.of([READINGS])).node).node


def join(left: Node, right: Node, on: str = "x = u") -> Join:
    return Join(left, right, condition(on))


@pytest.mark.parametrize(
    ("plan", "reach", "delay"),
    [
        (A, 1, 0),
        (window(A, 10), 12, 0),
        (where(window(A, 10, 5), "x < 3"), 16, 0),
        (join(window(A, 10), window(B, 20)), 22, 0),
        (Distinct(Union(window(A, 10), window(ALSO_A, 7))), 12, 0),
        (grouped(window(A, 10), "x", COUNT), 12, 12),
        (grouped(window(A, 10, 5), "x", COUNT), 16, 5),
        (Granularity(window(A, 10), 4), 16, 4),
        (grouped(join(window(A, 10), window(B, 20)), "x", COUNT), 22, 12),
        (window(Istream(window(A, 10)), 30), 44, 1),
        (StampJoin(A, B, (("x", "u"),), -3, 8), 13, 12),
        (Ranked(window(A, 10), (), (Ordering("x"),), most=2), 12, 12),
        (Lookup(window(A, 10), RELATION, None), 12, 0),
        (Lookup(grouped(window(A, 10), "x", COUNT), RELATION, None), 12 + 12, 12),
        (planned("SELECT LAG(x) OVER (PARTITION BY k) WITHIN 7 US AS b FROM readings"), 1 + 8, 1),
    ],
)
def test_bounds_add_up_along_a_plan(plan: Node, reach: int, delay: int) -> None:
    assert (plan.reach_us(), plan.delay_us()) == (reach, delay)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (CountWindow(A, 3), "window by count"),
        (PartitionedWindow(A, ("x",), 3), "window by count"),
        (SessionWindow(A, ("x",), Session(3, 9)), "session"),
        (TimeWindow(A, None), "without a size"),
        (StampJoin(A, B, (("x", "u"),), None, 8, latest=True), "without a lower bound"),
        (planned("SELECT LAG(x) OVER (PARTITION BY k) AS before FROM readings"), "LAG over tuples without a bound"),
    ],
)
def test_a_plan_without_a_bound_says_why(plan: Node, reason: str) -> None:
    with pytest.raises(UnboundedPlanError, match=reason):
        plan.reach_us()


def test_the_instant_is_behind_all_that_only_the_old_plan_has_read() -> None:
    old, new = join(window(A, 10), window(B, 20)), pick(join(window(B, 20), window(A, 10)), x="x", y="y", u="u", v="v")
    migration = Migration(old, new)
    assert not migration.cut
    assert migration.handover(100) == Handover(100 + 22 + 1, 100 + 22 + 1)
    assert migration.handover(None) == Handover(EVER_US, EVER_US)
    later = Handover(500, 500)
    assert migration.handover(100, later).at_us == 500, "the plan before answers nothing before its own handover"


LAGS = "(SELECT k, x - LAG(x) OVER (PARTITION BY k) AS d FROM readings) AS t WINDOW(RANGE 1 MS)"


def test_a_deadline_is_behind_all_that_has_been_published() -> None:
    old = planned(f"SELECT DISTINCT k, d FROM {LAGS}")
    new = planned(f"SELECT k, d FROM (SELECT k, d, COUNT(*) AS n FROM {LAGS} GROUP BY k, d) AS i")
    assert Migration(old, new, deadline_us=200).handover(100).at_us == 100 + (1 + 1 + 1000 + 1) + 1
    assert Migration(old, new, deadline_us=5_000).handover(100).at_us == 100 + 5_000 + 1
    for deadline_us in (0, -5):
        with pytest.raises(MigrationRefusedError, match="more than nothing"):
            Migration(old, new, deadline_us=deadline_us)


def test_rows_that_never_end_are_not_cut() -> None:
    old, new = Distinct(window(A, None)), Distinct(Distinct(window(A, None)))
    with pytest.raises(MigrationRefusedError, match="for ever"):
        Migration(old, new, deadline_us=9)


def test_how_far_lag_reaches_does_not_delay_lead() -> None:
    text = "SELECT LAG(x) OVER (PARTITION BY k) AS p, LEAD(x) OVER (PARTITION BY k) WITHIN 100 US AS n FROM readings"
    assert planned(text).delay_us() == 101
    assert Migration(planned(text), planned(f"{text} WHERE x > 0"), deadline_us=500).handover(0).at_us == 501


def test_answers_wait_as_long_as_those_of_the_old_plan_may_be_on_their_way() -> None:
    old = grouped(window(A, 10), "x", COUNT)
    assert Migration(old, where(old, "x < 9")).handover(100) == Handover(113, 113 + 12, cut=True)
    ranked = Ranked(old, (), (Ordering("x"),), most=9)
    assert ranked.delay_us() == 24
    for plans in ((old, ranked), (ranked, old)):
        assert Migration(*plans).handover(100).opens_us == 113 + 24, "the halves of rows of both have flowed"
    plans = Distinct(window(A, 10)), Distinct(window(A, 9))
    assert Migration(*plans).handover(100).opens_us == 114, "the instant itself has passed"


def test_windows_that_slide_are_exchanged_where_both_have_a_border() -> None:
    old, new = grouped(window(A, 30, 10), "x", COUNT), grouped(window(A, 20, 4), "x", COUNT)
    migration = Migration(old, new)
    handover = migration.handover(1_000)
    assert migration.cut
    assert handover.at_us > 1_000 + max(old.reach_us(), new.reach_us())
    assert (handover.at_us + 1) % 20 == 0, "one microsecond before a multiple of both slides"
    assert handover.at_us < 1_000 + 41 + 1 + 20
    coarse = Migration(Granularity(window(A, 30, 10), 8), Granularity(window(A, 30, 10), 2)).handover(1_000)
    assert coarse.at_us % 8 == 0, "a granularity changes at its multiples"


@pytest.mark.parametrize(
    ("old", "new", "cut"),
    [
        (where(join(window(A, 9), window(B, 9)), "x < 3"), join(where(window(A, 9), "x < 3"), window(B, 9)), False),
        (window(where(A, "x < 3"), 9), where(window(A, 9), "x < 3"), False),
        (
            Distinct(window(Union(A, ALSO_A), 9)),
            Distinct(Union(window(A, 9), window(ALSO_A, 9))),
            True,
        ),
        (
            Ranked(where(window(A, 9), "x < 3"), (), (Ordering("x"),), most=2),
            Ranked(window(where(A, "x < 3"), 9), (), (Ordering("x"),), most=2),
            True,
        ),
        (Distinct(Distinct(window(A, 9))), Distinct(window(A, 9)), True),
        (Distinct(window(A, 9)), Distinct(window(A, 10)), True),
        (
            pick(join(join(window(A, 9), window(B, 8)), window(C, 7), "u = p"), x="x"),
            pick(join(window(C, 7), join(window(B, 8), window(A, 9)), "u = p"), x="x"),
            False,
        ),
        (window(Istream(window(A, 9)), 5), where(window(Istream(window(A, 9)), 5), "x < 3"), True),
    ],
)
def test_rows_are_whole_if_both_plans_make_the_same(old: Node, new: Node, *, cut: bool) -> None:
    assert Migration(old, new).cut is cut
    assert Migration(new, old).cut is cut


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (window(A, 9), pick(window(A, 9), x="x"), "other columns"),
        (window(A, 9), window(ALSO_A, 9), "other streams"),
        (window(A, 9), Distinct(window(A, 9)), "with state and without"),
        (window(A, 9), window(A, 8), "another window, and keeps no state"),
        (CountWindow(A, 3), CountWindow(A, 4), "window by count.*no instant is known"),
        (Distinct(window(A, 9)), Distinct(CountWindow(A, 9)), "window by count"),
    ],
)
def test_what_cannot_follow_is_refused_with_the_reason(old: Node, new: Node, reason: str) -> None:
    with pytest.raises(MigrationRefusedError, match=reason):
        Migration(old, new)


def test_a_plan_without_a_bound_follows_by_a_deadline() -> None:
    old = planned("SELECT k, LAG(x) OVER (PARTITION BY k) AS before FROM readings")
    new = Filter(old, condition("k >= 0"))
    with pytest.raises(MigrationRefusedError, match="LAG over tuples") as refused:
        Migration(old, new)
    assert refused.value.hint is not None
    assert "deadline" in refused.value.hint
    assert Migration(old, new, deadline_us=60).handover(1_000).at_us == 1_000 + 60 + 1
    with pytest.raises(MigrationRefusedError, match="window by count"):
        Migration(Distinct(CountWindow(A, 3)), Distinct(CountWindow(A, 4)), deadline_us=60)
