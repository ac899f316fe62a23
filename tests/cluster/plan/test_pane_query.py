"""Which windowed aggregates can share panes with others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cluster.operators import Distinct, Join, Node
from cluster.operators.columns import STAMP
from cluster.operators.source import Tolerance
from cluster.plan.pane_query import pane_query_of
from tests.cluster.plan.plans import A, B, call, condition, grouped, pick, where, window

COUNT, SUM = call("count"), call("sum", "y")
SLIDING = window(A, 20, 10)


def test_a_windowed_aggregate_is_taken_apart() -> None:
    below = where(window(pick(where(A, '"x" > 1'), k='"x" + 1', y='"y"'), 20, 10), '"k" < 9')
    found = pane_query_of(where(grouped(below, "k", COUNT, SUM), '"count" > 2'))
    assert found is not None
    assert found.source == A
    assert [key.sql for key in found.keys] == ['"x" + 1']
    assert (found.size_us, found.slide_us, found.own_pane_us) == (20, 10, 10)
    assert [(each.function, each.argument and each.argument.sql, each.order) for each in found.calls] == [
        ("count", None, None), ("sum", '"y"', None),
    ]  # fmt: skip
    assert found.predicate == condition('"x" > 1 AND ("x" + 1) < 9')


@pytest.mark.parametrize("node", [
    SLIDING,
    grouped(A, "x", COUNT),
    grouped(window(A, 20), "x", COUNT),
    grouped(window(A, None, 10), "x", COUNT),
    grouped(window(SLIDING, 40, 10), "x", COUNT),
    grouped(window(SLIDING, 40), "x", COUNT),
    grouped(Distinct(SLIDING), "x", COUNT),
    grouped(Join(SLIDING, B, None), "x", COUNT),
    Distinct(grouped(SLIDING, "x", COUNT)),
])  # fmt: skip
def test_plans_that_are_no_single_windowed_aggregate_have_no_panes(node: Node) -> None:
    assert pane_query_of(node) is None


def test_a_family_groups_alike_and_its_windows_are_of_like_width() -> None:
    def family(node: Node, keys: str = "x") -> str:
        found = pane_query_of(grouped(node, keys, COUNT))
        assert found is not None
        return found.family

    own = family(SLIDING)
    assert own == family(window(A, 60, 20))
    assert own == family(where(SLIDING, '"y" > 1'))
    wishing = replace(A, tolerances=(Tolerance("y", 1.0),), slowest_us=30, lifetime_us=90)
    assert own == family(window(wishing, 20, 10))
    assert own == family(window(replace(A, columns=(*A.columns, STAMP)), 20, 10))
    assert own != family(window(replace(A, sample_period_us=5), 20, 10))
    assert own != family(SLIDING, "y")
    assert own != family(window(A, 3_600_000_000, 60_000_000))


def test_what_its_author_allows_of_samples_is_kept() -> None:
    wishing = replace(A, tolerances=(Tolerance("y", 1.0),), slowest_us=30, lifetime_us=90)
    found = pane_query_of(grouped(window(wishing, 20, 10), "x", SUM))
    assert found is not None
    assert (found.tolerances, found.slowest_us) == (wishing.tolerances, 30)
    assert found.source == A
