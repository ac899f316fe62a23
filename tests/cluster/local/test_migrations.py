"""Migrations on the local engine: what a query answers is what one of its plans answers that runs alone.

old plan    ----------|        what lies before the instant
new plan       . . . .|------  from it on; until then it fills
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cluster.fjord.batch import NEVER
from cluster.language.algebra import Union
from cluster.plan.epoch import Handover, Plan, PlanChange, PlannedQuery, decode_plan, encode_plan
from tests.cluster.local.migrating import (
    INSTANTS,
    STREAMS,
    Case,
    Setting,
    alone,
    migrated,
    random_setting,
    wrong_with,
)
from tests.cluster.local.plans_cut_apart import PAIRS, Pair
from tests.cluster.plan.plans import ALSO_A, A, call, grouped, pick, where, window

SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
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


@pytest.mark.parametrize("pair", PAIRS)
def test_plans_whose_rows_are_cut_elsewhere_answer_the_same(pair: Callable[[random.Random], Pair]) -> None:
    for seed in range(6):
        dice = random.Random(seed)
        case, setting = Case(*pair(dice)), random_setting(dice)
        ran = migrated(case, setting, 3)
        assert ran.cut
        assert ran.answered.snapshots() == alone(case.old, setting).snapshots()
