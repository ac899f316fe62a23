"""Golden operators: what runs where of the golden query of each specimen, and what is expected of it.

    filter
    1 query: q ...                              the plan, as people see it
    1 Scan    of a tuple 1, at once 1 ...       estimates, as in tests/cluster/fjord/test_golden_estimates.py

After a change that is meant, write them anew with ``python -m tests.cluster.physical.test_golden_operators`` and read
what differs.
"""

from __future__ import annotations

from pathlib import Path

from cluster.language.translation import translate
from cluster.operators import Node
from cluster.physical.lowering import lower, lower_alone
from cluster.physical.operations import OPERATIONS, Filter
from cluster.physical.text import plan_text
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from tests.cluster.fjord.test_golden_estimates import estimates, fragments
from tests.cluster.local.host_cases import CASES, CATALOG
from tests.cluster.oracle.strategies import below
from tests.cluster.specimens import SPECIMENS

FILE = Path(__file__).with_name("golden_operators.txt")
GOLDEN = {each.golden: kind for kind, each in SPECIMENS.items() if each.golden is not None}
PER_SECOND = 300_000.0
"""Tuples: windows of these queries last for microseconds."""


def rewritten(name: str) -> Node:
    return rewrite(translate(CASES[name], CATALOG).node).node


def written(name: str) -> str:
    node = rewritten(name)
    plan = plan_text(lower(Plan(1, (PlannedQuery("q", 1, node),))))
    return "\n".join((name, plan, *estimates(lower_alone(node), PER_SECOND), ""))


def golden() -> str:
    return "\n".join(map(written, GOLDEN))


def test_operators_run_and_are_estimated_as_before() -> None:
    assert golden() == FILE.read_text("utf-8")


def test_a_golden_query_has_its_operator() -> None:
    for name, kind in GOLDEN.items():
        assert kind in {type(each) for each in below(rewritten(name))}, name


def test_operations_of_every_kind_are_estimated() -> None:
    # Filters are of rules that fold queries; alone, a query's conditions are those of its query group.
    plans = [fragment for _, fragment in fragments()] + [lower_alone(rewritten(name)) for name in GOLDEN]
    assert set(OPERATIONS) - {type(node.operation) for each in plans for node in each.nodes} == {Filter}


if __name__ == "__main__":
    FILE.write_text(golden(), "utf-8")
