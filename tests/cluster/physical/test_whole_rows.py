"""Which plans are exchanged for each other without a row being cut."""

from __future__ import annotations

import pytest

from cluster.operators import Distinct, Granularity, Join, Lookup, Node, Ranked, SemiJoin, Union
from tests.cluster.local.plans_cut_apart import RELATION
from tests.cluster.plan.plans import ALSO_A, A, B, C, call, condition, grouped, pick, where, window

ONE, OTHER, THIRD, ALSO = (window(each, 9) for each in (A, B, C, ALSO_A))


@pytest.mark.parametrize(
    ("plan", "alike"),
    [
        (Join(Join(ONE, OTHER, None), THIRD, None), Join(OTHER, Join(THIRD, ONE, None), condition("x = u"))),
        (where(Join(ONE, OTHER, None), "y > 2"), Join(pick(where(ONE, "y > 2"), x="x", y="y"), OTHER, None)),
        (Lookup(ONE, RELATION, None), Lookup(where(ONE, "x > 1"), RELATION, condition("x = k"))),
        (window(Union(A, ALSO_A), 9), window(where(Union(ALSO_A, A), "x > 1"), 9)),
    ],
)
def test_plans_whose_rows_last_as_long_as_their_tuples(plan: Node, alike: Node) -> None:
    assert plan.interval_shape() is not None
    assert plan.interval_shape() == alike.interval_shape()


@pytest.mark.parametrize(
    ("plan", "other"),
    [
        (window(A, 9), window(A, 8)),
        (window(A, 9), window(A, 9, 3)),
        (Join(ONE, OTHER, None), Join(Join(ONE, OTHER, None), OTHER, None)),
        (Union(ONE, ALSO), Union(ONE, ONE)),
    ],
)
def test_plans_whose_tuples_last_differently(plan: Node, other: Node) -> None:
    assert plan.interval_shape() != other.interval_shape()


@pytest.mark.parametrize(
    "plan",
    [
        grouped(ONE, "x", call("count")),
        Distinct(ONE),
        Granularity(ONE, 2),
        Ranked(ONE, (), (), most=1),
        SemiJoin(ONE, OTHER, condition("x = u")),
        window(Join(A, B, None), 9),
        Join(OTHER, grouped(ONE, "x", call("count")), None),
    ],
)
def test_rows_that_also_begin_and_end_with_other_tuples(plan: Node) -> None:
    assert plan.interval_shape() is None
