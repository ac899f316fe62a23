"""The rewriter as a whole: what it makes of queries, that it comes to rest, and what it must never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import PlanError
from cluster.language.translation import translate
from cluster.operators import (
    Aggregate,
    CountWindow,
    Difference,
    Distinct,
    Filter,
    Granularity,
    Join,
    PartitionedWindow,
    Project,
    Source,
    TimeWindow,
    Union,
)
from cluster.plan.explain import explain
from cluster.plan.rewrite import RULES, rewrite
from tests.cluster.language.example_catalog import CATALOG
from tests.cluster.language.fixture_files import pairs
from tests.cluster.plan.plans import ALSO_A, A, B, call, condition, grouped, pick, where, window

PAIRS = pairs(Path(__file__).parent / "fixtures")
QUERIES = [*pairs(Path(__file__).parent.parent / "language" / "fixtures"), *PAIRS]


@pytest.mark.parametrize(("query", "expected"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS])
def test_query_is_rewritten(query, expected):
    rewritten = rewrite(translate(query, CATALOG).node)
    rules = ", ".join(dict.fromkeys(rewritten.applied)) or "nothing"
    assert f"{explain(rewritten.node)}\nby {rules}" == expected


@pytest.mark.parametrize("query", [pair[1] for pair in QUERIES], ids=[pair[0] for pair in QUERIES])
def test_rewriting_keeps_the_columns_and_comes_to_rest(query):
    node = translate(query, CATALOG).node
    rewritten = rewrite(node)
    assert rewritten.node.schema == node.schema
    assert rewrite(rewritten.node).applied == ()
    assert all(rule in {each.__name__ for each in RULES} for rule in rewritten.applied)


# Equivalences that do not hold (papers/pipes_algebra.md section 4.3): the rewriter must leave these as they are.
NON_RULES = {
    "δ(A ∪ B) = δA ∪ δB": Distinct(Union(A, ALSO_A)),
    "δA ∪ δB = δ(A ∪ B)": Union(Distinct(A), Distinct(ALSO_A)),
    "δ(A − B) = δA − δB": Distinct(Difference(A, ALSO_A)),
    "δA − δB = δ(A − B)": Difference(Distinct(A), Distinct(ALSO_A)),
    "(A ∪ B) − C = A ∪ (B − C)": Difference(Union(A, ALSO_A), A),
    "A ∪ (B − C) = (A ∪ B) − C": Union(A, Difference(ALSO_A, A)),
    "μ(A − B) = μA − μB": pick(Difference(A, ALSO_A), z='"x"'),
    "μ(δ(A)) = δ(μ(A))": pick(Distinct(A), z='"x"'),
    "δ(μ(A)) = μ(δ(A))": Distinct(pick(A, z='"x"')),
    "SUM(δ(A)) = SUM(A)": grouped(Distinct(A), "x", call("sum", "y")),
    "COUNT(δ(A)) = COUNT(A)": grouped(Distinct(pick(A, x='"x"')), "x", call("count")),
    "AVG(δ(A)) = AVG(A)": grouped(Distinct(A), "x", call("avg", "y")),
    "ω_v(A) ∪ ω_w(B) as one window": Union(window(A, 3), window(ALSO_A, 5)),
    "ω_v,a(A) ∪ ω_v,b(B) as one window": Union(window(A, 3, 2), window(ALSO_A, 3, 3)),
    "δω = ωδ": Distinct(window(A, 5)),
    "ωδ = δω": window(Distinct(A), 5),
    "ω(A ⋈ B) = ωA ⋈ ωB": window(Join(A, B, condition('"x" = "u"')), 5),
    "ωA ⋈ ωB = ω(A ⋈ B)": Join(window(A, 5), window(B, 5), condition('"x" = "u"')),
    "ω(A − B) = ωA − ωB": window(Difference(A, ALSO_A), 5),
    "ωA − ωB = ω(A − B)": Difference(window(A, 5), window(ALSO_A, 5)),
    "αω = ωα": grouped(window(A, 5), "x", call("sum", "y")),
    "ωα = αω": window(grouped(A, "x", call("sum", "y")), 5),
    "ω_v ω_w = ω_v+w−1 on bags": window(window(A, 3), 5),
    "σ ω_count = ω_count σ": where(CountWindow(A, 3), '"x" > 1'),
    "ω_count σ = σ ω_count": CountWindow(where(A, '"x" > 1'), 3),
    "ω_count over ∪": CountWindow(Union(A, ALSO_A), 3),
    "ω_count(A) ∪ ω_count(B) as one": Union(CountWindow(A, 3), CountWindow(ALSO_A, 3)),
    "σ with a partitioned window for a general p": where(PartitionedWindow(A, ("x",), 3), '"y" > 1'),
    "partitioned window over ∪": PartitionedWindow(Union(A, ALSO_A), ("x",), 3),
    "μ with a partitioned window that merges groups": pick(PartitionedWindow(Distinct(A), ("x",), 3), z='"y"'),
    "μ below a partitioned window that merges groups": PartitionedWindow(pick(A, z='"x" % 2'), ("z",), 3),
    "Γω = ωΓ": Granularity(window(A, 5), 2),
    "ωΓ = Γω": window(Granularity(A, 2), 5),
}


@pytest.mark.parametrize("plan", NON_RULES.values(), ids=NON_RULES.keys())
def test_equivalences_that_do_not_hold_are_not_applied(plan):
    rewritten = rewrite(plan)
    assert rewritten.node == plan
    assert rewritten.applied == ()


def test_window_of_a_query_and_its_subquery_is_shared():
    text = (
        "SELECT itemID, bid_price FROM Bid WINDOW({0}) WHERE bid_price = (SELECT MAX(bid_price) FROM Bid WINDOW({0}))"
    )
    for form in ("RANGE 10 MINUTES", "ROWS 10", "PARTITION BY itemID ROWS 3"):
        node = rewrite(translate(text.format(form), CATALOG).node).node
        windows = set(_all(node, TimeWindow | CountWindow | PartitionedWindow))
        assert len(windows) == 1


def test_rules_are_listed_in_the_order_of_their_application():
    plan = where(window(pick(A, z='"x"'), 1), '"z" > 1')
    assert rewrite(plan).applied == ("drop_now_window", "filter_below_project")


def test_rules_that_undo_each_other_are_found_out():
    def turn(node):
        return pick(node.input, x='"y"', y='"x"') if isinstance(node, Project) else None

    def back(node):
        return pick(node.input, x='"x"', y='"y"') if isinstance(node, Project) else None

    def swap(node):
        return turn(node) if turn(node) != node else back(node)

    with pytest.raises(PlanError, match="does not come to rest"):
        rewrite(pick(A, x='"x"', y='"y"'), rules=(swap,))


def test_a_plan_is_a_value():
    plan = where(window(A, 5), '"x" > 1')
    before = repr(plan)
    rewrite(plan)
    assert repr(plan) == before


def test_with_inputs_rebuilds_any_node():
    for _, query, _ in QUERIES:
        for node in _all(translate(query, CATALOG).node, object):
            assert node.with_inputs(node.inputs) == node


def test_shared_parts_are_rewritten_once():
    part = where(window(grouped(A, "x", call("count")), 5), '"x" > 1')
    rewritten = rewrite(Union(part, part))
    assert isinstance(rewritten.node, Union)
    assert rewritten.node.left == rewritten.node.right
    assert isinstance(next(iter(_all(rewritten.node, Aggregate))), Aggregate)
    assert len(rewritten.applied) == len(rewrite(part).applied)


def test_small_parts_that_are_shared_are_improved_for_each_of_those_above():
    both = Union(A, ALSO_A)
    plan = Join(where(both, '"x" > 1'), pick(where(both, '"x" > 2'), u='"x"'), condition('"x" = "u"'))
    rewritten = rewrite(plan).node
    assert [type(each) for each in rewritten.inputs] == [Union, Union]
    assert all(isinstance(each.input, Source) for each in _all(rewritten, Filter))


def _all(node, kind):
    found = [node] if isinstance(node, kind) else []
    return found + [each for below in node.inputs for each in _all(below, kind)]
