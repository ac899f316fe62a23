"""Rates of operators: smoothed, of those that run, and of no others."""

from __future__ import annotations

import pytest

from cluster.fjord.counters import Totals, owners_of
from cluster.fjord.operator_statistics import HALF_LIFE_SECONDS, NONE_YET, OperatorStatistics
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def totals(
    rows_in: int, rows_out: int = 0, seconds: float = 0.0, *, owner: str = "stream s", broken: int = 0
) -> Totals:
    return Totals(owner, 1, rows_in=rows_in, rows_out=rows_out, seconds=seconds, broken=broken)


def test_first_rates_are_those_since_the_beginning() -> None:
    clock = Clock()
    statistics = OperatorStatistics(clock)
    statistics.add({"scan": totals(100, 25, 0.5)})
    clock.now += 10
    statistics.observe(["stream s"])
    rates = statistics.rates("scan")
    assert (rates.rows_in_per_second, rates.rows_out_per_second, rates.busy) == (10, 2.5, 0.05)
    assert (rates.rows_out_per_row, rates.microseconds_per_row) == (0.25, 5_000)


def test_an_extent_has_companions_of_each_row_that_entered() -> None:
    clock = Clock()
    statistics = OperatorStatistics(clock)
    did = Totals("stream s", 1, rows_in=20, companions=50, neighbours=40, linked=30)
    statistics.add({"extent": did, "scan": totals(20)})
    clock.now += 10
    statistics.observe(["stream s"])
    assert statistics.rates("extent").companions_per_row == 2.5
    assert statistics.rates("scan").companions_per_row is None
    assert statistics.rates("extent").linked_share == 0.75
    assert statistics.rates("scan").linked_share is None
    statistics.add({"extent": Totals("stream s", 1, rows_in=20, companions=110)})
    clock.now += HALF_LIFE_SECONDS
    statistics.observe(["stream s"])
    assert 2.5 < (statistics.rates("extent").companions_per_row or 0) < 5.5


def test_a_change_counts_half_after_a_half_life_however_often_it_is_observed() -> None:
    found = []
    for steps in (1, 6):
        clock = Clock()
        statistics = OperatorStatistics(clock)
        statistics.add({"scan": totals(0)})
        clock.now += 1
        statistics.observe(["stream s"])
        for _ in range(steps):
            statistics.add({"scan": totals(int(100 * HALF_LIFE_SECONDS / steps))})
            clock.now += HALF_LIFE_SECONDS / steps
            statistics.observe(["stream s"])
        found.append(statistics.rates("scan").rows_in_per_second)
    assert found == pytest.approx([50, 50])


def test_an_operator_without_rows_falls_silent() -> None:
    clock = Clock()
    statistics = OperatorStatistics(clock)
    statistics.add({"scan": totals(100)})
    for _ in range(2):
        clock.now += 10 * HALF_LIFE_SECONDS
        statistics.observe(["stream s"])
    assert statistics.rates("scan").rows_in_per_second < 0.01
    assert NONE_YET.rows_out_per_row is None
    assert NONE_YET.microseconds_per_row is None


def test_operators_that_left_are_forgotten_but_not_that_they_were_wrong() -> None:
    clock = Clock()
    statistics = OperatorStatistics(clock)
    statistics.add({"scan": totals(1), "sum": totals(1, owner="fold-1@0", broken=2)})
    clock.now += 1
    statistics.observe(["stream s", "fold-1@0"])
    assert statistics.broken == 2
    clock.now += 1
    statistics.observe(["stream s"])
    assert set(statistics.counters) == {"scan"}
    assert (statistics.broken, statistics.rates("sum")) == (2, NONE_YET)
    statistics.add({"sum": totals(1, owner="fold-1@0", broken=1)})  # a late report
    clock.now += 1
    statistics.observe(["stream s"])
    assert (statistics.broken, set(statistics.counters)) == (3, {"scan"})


def test_it_is_due_now_and_then() -> None:
    clock = Clock()
    statistics = OperatorStatistics(clock)
    assert not statistics.due
    clock.now += 2
    assert statistics.due
    statistics.observe([])
    assert not statistics.due


def test_a_plan_owns_its_fragments_and_the_scans_of_its_streams() -> None:
    catalog = Catalog.of([StreamSchema("traffic", (Field("speed", FieldType.REAL),))])
    node = rewrite(translate("SELECT speed FROM traffic WHERE speed > 3", catalog).node).node
    plan = lower(Plan(1, (PlannedQuery("q", 1, node),)))
    assert owners_of(plan) == {plan.fragments[0].identity, "stream traffic"}
    assert owners_of(lower(Plan(1))) == set()
