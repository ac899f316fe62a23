"""Migrations on the local engine: what a query answers is what one of its plans answers that runs alone.

old plan    ----------|        what lies before the instant
new plan       . . . .|------  from it on; until then it fills
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from cluster.fjord.batch import NEVER
from cluster.operators import Union
from cluster.plan.epoch import Handover, Plan, PlanChange, PlannedQuery, decode_plan, encode_plan
from tests.cluster.local.judged_migrations import wrong_with
from tests.cluster.local.migrating import INSTANTS, STREAMS, Setting, alone, migrated, random_setting
from tests.cluster.local.migrating_plans import Case
from tests.cluster.local.plans_cut_apart import PAIRS, Pair
from tests.cluster.plan.plans import ALSO_A, A, call, grouped, pick, where, window
from tests.examples import some_of

SEEDS = range(24)
AT_THE_INSTANT = 6313
"""Here streams come exactly to the instant: one half of a row is known then, and the other one later."""
IN_ANOTHER_BUCKET = 680_921_959
"""Here a row that waits for its other half begins before rows of another bucket."""


@pytest.mark.examples
@pytest.mark.parametrize("seed", [*range(some_of(len(SEEDS), fewest=6)), AT_THE_INSTANT, IN_ANOTHER_BUCKET])
def test_a_random_migration_changes_no_snapshot(seed: int) -> None:
    assert wrong_with(seed) is None


def test_a_handover_that_comes_too_early_is_found() -> None:
    assert any(wrong_with(seed, spoil=lambda found: replace(found, at_us=found.at_us - 8)) for seed in SEEDS)


def test_rows_that_are_not_cut_are_found() -> None:
    assert any(wrong_with(seed, spoil=lambda found: replace(found, cut=False)) for seed in SEEDS)


def test_no_row_is_sent_for_what_a_migration_does_not_change() -> None:
    rows = [(at, (at % 3, 0)) for at in range(INSTANTS)]
    batches = [{"a": (rows[at : at + 5], at + 5)} for at in range(0, INSTANTS, 5)]
    setting = Setting([{**each, **{name: ([], 10**6) for name in ("b", "c", "also_a")}} for each in batches])
    case = Case(window(A, 9), window(A, 9))
    assert migrated(case, setting, 3).answered.rows == alone(window(A, 9), setting).rows


COUNTS = grouped(window(A, 20), "x", call("count"))
SLOW = [(at, (at // 30, 0)) for at in range(0, INSTANTS, 10)]
"""Tuples of a few groups: their counts change every 10 instants, and T lies between two changes."""


def slowly(*, early: bool, step: int = 5, **further: Any) -> Setting:
    batches = [
        {"a": ([row for row in SLOW if at <= row[0] < at + step], at + step), **dict.fromkeys("bc", ([], at + step)),
         "also_a": ([], at + step)}
        for at in range(0, INSTANTS, step)
    ]  # fmt: skip
    return Setting([*batches, dict.fromkeys(STREAMS, ([], NEVER))], early=early, **further)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("buckets", [1, 3])
def test_a_row_that_goes_on_is_one_row_in_whichever_buckets_its_halves_are(*, early: bool, buckets: int) -> None:
    setting = slowly(early=early, buckets=buckets, restarts=frozenset(range(20)), replays=frozenset(range(20)))
    for at in (2, 5, 8):
        ran = migrated(Case(COUNTS, where(COUNTS, "x >= 0")), setting, at)
        reference = alone(COUNTS, setting)
        assert ran.cut
        assert any(start < ran.handover.at_us < end for start, end, _ in reference.rows)
        assert sorted(ran.answered.rows) == sorted(reference.rows)
        assert ran.answered.messages <= reference.messages, "fewer if an end comes while answers wait"
        assert not ran.answered.open


@pytest.mark.parametrize("early", [False, True])
def test_a_row_goes_on_that_only_the_new_plan_cuts_at_the_instant(*, early: bool) -> None:
    largest = call("max", "y")
    old = grouped(where(window(A, 20), "y > 1"), "x", largest)
    new = where(grouped(window(A, 20), "x", largest), '"max(y)" > 1')
    rows = [(0, (1, 3)), (10, (1, 3)), (25, (1, 3)), (33, (1, 0))]
    others = [dict.fromkeys(("b", "c", "also_a"), ([], at + 1)) for at in range(INSTANTS)]
    batches = [{"a": ([row for row in rows if row[0] == at], at + 1), **others[at]} for at in range(INSTANTS)]
    setting = Setting([*batches, dict.fromkeys(STREAMS, ([], NEVER))], early=early)
    ran = migrated(Case(old, new), setting, 15)
    assert ran.handover.at_us == 33
    assert any(start == 33 for start, _, _ in alone(new, setting).rows)
    assert (30, 45, '{"x":1,"max(y)":3}') in ran.answered.rows
    assert ran.answered.messages <= alone(old, setting).messages


def test_a_plan_with_handovers_is_read_as_it_was_written() -> None:
    handover = Handover(7, 9, cut=True)
    queries = PlannedQuery("q", 1, A, until=handover), PlannedQuery("q", 2, window(A, 3), since=handover)
    for plan in (Plan(2, queries), PlanChange(2, queries)):
        assert decode_plan(encode_plan(plan)) == plan
    assert b'since"' not in encode_plan(Plan(1, (PlannedQuery("q", 1, A),)))


def test_rows_that_the_plan_before_has_opened_are_closed_by_it() -> None:
    """A union of short groups and long rows, published early: the long ones would end long after the instant."""
    short = pick(grouped(window(A, 3), "x", call("count")), x="x", y='"count"')
    old = Union(short, window(ALSO_A, 40))
    new = where(old, "x >= 0")
    rows = [(at, (1, 1)) for at in range(0, INSTANTS, 2)]
    batches = [
        {
            "a": (rows[at : at + 2], 2 * at + 4),
            "also_a": (rows[at : at + 2], 2 * at + 4),
            **dict.fromkeys(("b", "c"), ([], 2 * at + 4)),
        }
        for at in range(0, len(rows), 2)
    ]
    setting = Setting([*batches, dict.fromkeys(STREAMS, ([], NEVER))], early=True)
    ran = migrated(Case(old, new), setting, 2)
    reference = alone(old, setting)
    assert any(start < ran.handover.at_us and end > ran.handover.opens_us for start, end, _ in reference.rows)
    assert any(end == ran.handover.at_us for _, end, _ in ran.answered.rows)
    assert not ran.answered.open
    assert ran.answered.snapshots() == reference.snapshots()


@pytest.mark.examples
@pytest.mark.parametrize("pair", PAIRS)
def test_plans_whose_rows_are_cut_elsewhere_answer_the_same(pair: Callable[[random.Random], Pair]) -> None:
    for seed in range(some_of(6, fewest=2)):
        dice = random.Random(seed)
        case, setting = Case(*pair(dice)), random_setting(dice)
        ran = migrated(case, setting, 3)
        assert ran.cut
        assert ran.answered.snapshots() == alone(case.old, setting).snapshots()
