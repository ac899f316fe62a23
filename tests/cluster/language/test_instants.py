"""Of which plans every tuple is valid at one instant only (papers/pipes_algebra.md table 5.15)."""

from __future__ import annotations

import pytest

from cluster.operators import (
    Distinct,
    Dstream,
    Granularity,
    Intersection,
    Istream,
    Join,
    Node,
    PatternMatch,
    Sequence,
    Union,
    Zip,
)
from cluster.operators.pattern_match import PatternElement, RowPattern
from cluster.operators.sequence import SequenceCall
from protocols.wire.streams import FieldType
from tests.cluster.plan.plans import ALSO_A, A, B, call, grouped, pick, where, window

HOUR = window(A, 3_600_000_000)
PATTERN = RowPattern((PatternElement("A"),), (), (), (), (), (), None)


@pytest.mark.parametrize(
    ("node", "instantaneous"),
    [
        (A, True),
        (HOUR, False),
        (window(A, 1), True),
        (window(A, 2), False),
        (window(A, 1, slide_us=2), False),
        (window(A, None), False),
        (window(HOUR, 1), False),
        (Granularity(A, 1_000_000), False),
        (Istream(HOUR), True),
        (Dstream(HOUR), True),
        (Zip(A, B, (), 0, 0, "inner", "apart"), True),
        (PatternMatch(A, (), PATTERN), True),
        (Sequence(A, (), ("x",), (SequenceCall("n", "count", None, FieldType.INTEGER),)), True),
        (where(A, "x > 1"), True),
        (where(HOUR, "x > 1"), False),
        (pick(A, x="x"), True),
        (Distinct(A), True),
        (Distinct(HOUR), False),
        (grouped(A, "x", call("count")), True),
        (grouped(HOUR, "x", call("count")), False),
        (Union(A, ALSO_A), True),
        (Union(A, HOUR), False),
        (Union(HOUR, A), False),
        (Join(HOUR, B, None), True),
        (Join(B, HOUR, None), True),
        (Join(HOUR, window(B, 2), None), False),
        (Intersection(HOUR, A), True),
    ],
)
def test_which_plans_are_instantaneous(node: Node, *, instantaneous: bool) -> None:
    assert node.is_instantaneous is instantaneous
