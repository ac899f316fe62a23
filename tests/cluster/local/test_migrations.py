"""Migrations on the local engine: what a query answers is what one of its plans answers that runs alone.

old plan    ----------|        what lies before the instant
new plan       . . . .|------  from it on; until then it fills
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cluster.plan.epoch import Handover, Plan, PlanChange, PlannedQuery, decode_plan, encode_plan
from tests.cluster.local.migrating import INSTANTS, Case, Setting, alone, migrated, wrong_with
from tests.cluster.plan.plans import A, window

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
