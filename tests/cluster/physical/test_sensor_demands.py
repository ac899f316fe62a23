"""The demands of queries on sensors are part of the plan: derived once for each query."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from cluster.operators import Node
from cluster.physical.lowering import lower, with_query
from cluster.physical.nodes import NOTHING
from cluster.physical.plan_files import PlanFiles
from cluster.physical.rules import sensor_demands as rule
from cluster.plan.demand import demands_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.planning_budget import Budget, PlanningLimitError, limited
from protocols.wire.demands import encode_query_demand
from tests.cluster.physical.test_plan_files import TEXTS
from tests.cluster.physical.test_text import planned

SLOW = "SELECT speed FROM traffic WHERE speed < 7 SAMPLE EVERY 1 MINUTE"


@pytest.mark.parametrize("text", TEXTS)
def test_the_plan_has_the_demands_of_the_query(text: str) -> None:
    query = planned(text, 1)
    demanded = lower(Plan(1, (query,))).subscribers["q1@1"].demands
    assert dict(demanded.streams) == demands_of("q1", query.node)
    assert demanded.refused == ""


def test_it_is_derived_once_for_each_query(tmp_path: Path) -> None:
    queries = tuple(planned(SLOW.replace("7", str(number)), number) for number in range(1, 6))
    files, running = PlanFiles(tmp_path), NOTHING
    with patch.object(rule, "demands_of", wraps=demands_of) as derived:
        for epoch in range(1, 6):
            with_query(running, queries[epoch - 1])
            running = lower(Plan(epoch, queries[:epoch]), running)
            files.write(running)
            assert derived.call_count == epoch
        assert PlanFiles(tmp_path).read(5).subscribers == running.subscribers
        assert derived.call_count == 5


def without_bound(period_us: int) -> Node:
    """A plan that an earlier version registered, before periods had a bound."""
    node = planned(SLOW, 1).node
    source = node
    while hasattr(source, "input"):
        source = source.input
    return put_below(node, replace(source, sample_period_us=period_us))  # type: ignore[call-arg] # below all inputs is a source


def put_below(node: Node, source: Node) -> Node:
    return replace(node, input=put_below(node.input, source)) if hasattr(node, "input") else source


def test_a_demand_that_no_proxy_could_read_affects_its_own_query_only(tmp_path: Path) -> None:
    queries = (PlannedQuery("bad", 1, without_bound(2**50)), planned(SLOW, 2))
    plan = lower(Plan(2, queries))
    files = PlanFiles(tmp_path)
    files.write(plan)
    bad, good = PlanFiles(tmp_path).read(2).oldest_first
    assert "no proxy could read the demand" in bad.demands.refused
    assert bad.demands.of("traffic") == ()
    (demand,) = good.demands.of("traffic")
    assert demand.query == "q2"
    assert encode_query_demand(demand)


def test_a_statement_that_takes_too_long_is_not_reported_as_a_refused_demand() -> None:
    query = planned(SLOW, 1)
    spent = Budget(10.0)
    spent.cancel()
    with pytest.raises(PlanningLimitError), limited(spent):
        rule.sensor_demands(query)
    assert rule.sensor_demands(query).refused == ""
