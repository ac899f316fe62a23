"""Selectivities as they were measured, and what they make of estimates."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.costs.estimates import estimates_of
from cluster.fjord.measured_plans import measured_selectivities
from cluster.fjord.operator_statistics import NONE_YET, Rates
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Filter, Node
from cluster.operators.walks import nodes_of
from cluster.physical.lowering import lower
from cluster.physical.nodes import PhysicalPlan
from cluster.physical.operations import GroupedFilter
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of([StreamSchema("traffic", (Field("speed", FieldType.REAL), Field("lane", FieldType.INTEGER)))])
FAST, LANE = "SELECT speed FROM traffic WHERE speed > 3", "SELECT lane FROM traffic WHERE lane = 1"


def _node(text: str) -> Node:
    return rewrite(translate(text, CATALOG).node).node


def _plan(*texts: str) -> PhysicalPlan:
    return lower(Plan(1, tuple(PlannedQuery(f"q{n}", n, _node(text)) for n, text in enumerate(texts, 1))))


def _rates(plan: PhysicalPlan, shares: dict[str, float]) -> Callable[[str], Rates]:
    """Return rates as if the filter of a fragment passed the share of the query that subscribes to it."""
    known = {
        node.id: Rates(100.0, 100.0 * shares[fragment.subscribers[0].query])
        for fragment in plan.fragments
        for node in fragment.nodes
        if isinstance(node.operation, GroupedFilter) and fragment.subscribers[0].query in shares
    }
    return lambda name: known.get(name, NONE_YET)


def _expected(text: str, measured: dict[tuple[str, object], float]) -> float | None:
    node = _node(text)
    found = estimates_of(node, {"traffic": 90.0}, measured)  # type: ignore[arg-type] # expressions are keys of both
    return found[next(each for each in nodes_of(node) if isinstance(each, Filter))].rows_per_second


def test_the_next_query_with_a_condition_is_expected_to_pass_what_passed() -> None:
    plan = _plan(FAST, LANE)
    measured = measured_selectivities(plan, _rates(plan, {"q1": 0.9, "q2": 0.2}))
    assert sorted(measured.values()) == [0.2, 0.9]
    assert _expected("SELECT lane FROM traffic WHERE speed > 3", measured) == pytest.approx(81)
    assert _expected("SELECT speed FROM traffic WINDOW(RANGE 9 SECONDS) WHERE speed > 3", measured) == pytest.approx(81)
    assert _expected("SELECT lane FROM traffic WHERE lane = 1 AND speed > 3", measured) == pytest.approx(90 * 0.18)
    assert _expected("SELECT lane FROM traffic WHERE lane = 1 AND speed > 4", measured) == pytest.approx(90 * 0.2 / 3)
    assert _expected("SELECT lane FROM traffic WHERE speed > 4", measured) == pytest.approx(30)


def test_conditions_that_share_an_index_are_not_told_apart() -> None:
    plan = _plan(FAST, "SELECT speed FROM traffic WHERE speed > 5")
    assert len(plan.fragments) == 1
    assert measured_selectivities(plan, _rates(plan, {"q1": 0.9})) == {}


def test_nothing_is_measured_without_tuples_or_a_condition() -> None:
    assert measured_selectivities(_plan(FAST), lambda _: NONE_YET) == {}
    everything = _plan("SELECT speed FROM traffic")
    assert measured_selectivities(everything, _rates(everything, {"q1": 1.0})) == {}


def test_samples_at_a_period_of_their_own_are_not_those_of_the_stream() -> None:
    plan = _plan("SELECT speed FROM traffic WHERE speed > 3 SAMPLE EVERY 10 SECONDS")
    assert measured_selectivities(plan, _rates(plan, {"q1": 0.9})) == {}
