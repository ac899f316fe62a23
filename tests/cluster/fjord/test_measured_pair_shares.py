"""Shares of pairs as joins have found them, and what they make of the estimates of other orders."""

from __future__ import annotations

import pytest

from cluster.costs.selectivity import share_of_pairs
from cluster.fjord.measured_plans import measured_pair_shares
from cluster.fjord.operator_statistics import Rates
from cluster.operators import Join, Node, TimeWindow
from cluster.operators.characteristics import KEYS_ASSUMED
from tests.cluster.plan.plans import condition, prefixed

RATES = {"a": 10.0, "b": 20.0, "c": 5.0}
SECOND_US = 1_000_000


def _side(name: str) -> Node:
    return TimeWindow(prefixed(name, name), 4 * SECOND_US)


INNER = Join(_side("a"), _side("b"), condition('"ax" = "bx"'))
ABOVE = condition('"bx" = "cx"')
PLAN = Join(INNER, _side("c"), ABOVE)
PAIRS_PER_SECOND = 10 * 20 * 8
"""Of a and b: each new row meets those of 4 seconds."""


@pytest.mark.parametrize("times", [1.0, 3.0])
def test_a_share_is_that_of_the_rows_that_came(times: float) -> None:
    """A fragment may run for three queries, or be behind, and be given three times as many rows as come."""
    measured = {INNER: Rates(30 * times, 16 * times, 0.1)}
    (share,) = measured_pair_shares(PLAN, measured, RATES).values()
    assert share == pytest.approx(16 / PAIRS_PER_SECOND, rel=1e-3)


def test_what_has_made_no_row_yet_is_not_taken_for_empty() -> None:
    (share,) = measured_pair_shares(PLAN, {INNER: Rates(30, 0, 0.1)}, RATES).values()
    assert share > 0


def test_a_join_above_is_measured_with_what_is_known_below() -> None:
    inner = Rates(30, 16, 0.1)
    alone = measured_pair_shares(PLAN, {PLAN: Rates(7, 2, 0.1)}, RATES)
    both = measured_pair_shares(PLAN, {INNER: inner, PLAN: Rates(7, 2, 0.1)}, RATES)
    assert len(both) == 2
    assert both[ABOVE.expression] != alone[ABOVE.expression]


def test_an_equality_that_follows_has_the_share_of_one_with_its_column() -> None:
    one, other = condition('"ax" = "bx"').expression, condition('"bx" = "cx"').expression
    implied, foreign = condition('"ax" = "cx"').expression, condition('"ay" = "cy"').expression
    left, right = frozenset({"ax", "ay"}), frozenset({"cx", "cy"})
    known = {one: 0.25, other: 0.5}
    assert share_of_pairs(implied, left, right, known) == 0.5
    assert share_of_pairs(foreign, left, right, known) == 1 / KEYS_ASSUMED
    assert share_of_pairs(None, left, right, known) == 1
    both = condition('"ax" = "cx" AND "ay" < "cy"').expression
    assert share_of_pairs(both, left, right, known) == pytest.approx(0.5 / 3)
