"""A condition on what is computed level above level reaches the stream, and costs a step a level."""

from __future__ import annotations

import pytest

from cluster.expressions.walks import column_uses, node_count
from cluster.fjord.scalars import program_of
from cluster.language.translation import translate
from cluster.operators import Filter, Source
from cluster.operators.walks import nodes_of
from cluster.physical.lowering import lower
from cluster.plan import stored_plans
from cluster.plan.demand import demands_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.explain import explain
from cluster.plan.rewrite import rewrite
from tests.cluster.language.example_catalog import CATALOG

LEVELS = 30


@pytest.mark.parametrize("computed", ["x * x - x", "IF(x > 3, x, x + 1)", "COALESCE(x, 1) % NULLIF(x, 7)"])
def test_a_condition_reaches_the_stream_through_many_levels(computed: str) -> None:
    text = "SELECT lane AS x FROM traffic"
    for level in range(LEVELS):
        text = f"SELECT {computed} AS x FROM ({text}) AS q{level}"
    node = rewrite(translate(f"SELECT x FROM ({text}) AS q WHERE x > 3", CATALOG).node).node
    (condition,) = (each.predicate for each in nodes_of(node) if isinstance(each, Filter))
    assert [type(each.input) for each in nodes_of(node) if isinstance(each, Filter)] == [Source]
    expression = condition.expression
    assert column_uses(expression)["lane"] >= 2**LEVELS
    assert node_count(expression) < 12 * LEVELS
    assert len(program_of(expression).steps) < 12 * LEVELS
    assert len(explain(node)) < 20_000
    assert stored_plans.read(stored_plans.written(node)) == node
    assert demands_of("q", node)["traffic"][0].fields == ("lane",)
    assert len(stored_plans.encoded(node)) < 100_000
    assert lower(Plan(1, (PlannedQuery("q", 1, node),))).fragments
