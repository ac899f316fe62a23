"""What plans take besides their operators, as priced."""

from __future__ import annotations

import pytest

from cluster.costs.estimates import answering_us, crossings_of, estimates_of
from cluster.costs.prices import Price, Prices, form_of
from cluster.language.translation import translate
from cluster.local.calibration import CATALOG
from cluster.operators import Node
from cluster.operators.walks import nodes_of
from cluster.plan.rewrite import rewrite

PRICES = Prices(
    {"Answers": Price(batch=100, row_out=2), "Exchange": Price(batch=10, row_in=0.5), "Queue": Price(batch=1)}
)
RATES = {"readings": 30.0, "others": 10.0}
WINDOW = "WINDOW(RANGE 1 SECOND)"


def _plan(text: str) -> Node:
    return rewrite(translate(text, CATALOG).node).node


@pytest.mark.parametrize(
    ("text", "crossings", "expected"),
    [
        ("SELECT x FROM readings", 0, 2 + 100 + 30 * 2),
        (f"SELECT DISTINCT k FROM readings {WINDOW}", 1, 4 + 100 + 30 * 0.5 + 30 * 2),
        (
            f"SELECT k FROM readings {WINDOW} UNION ALL SELECT k FROM others {WINDOW}",
            2,
            7 + 100 + 10 + 40 * 0.5 + 40 * 2,
        ),
    ],
)
def test_a_plan_pays_for_answers_for_rows_that_are_sent_and_for_each_further_stream(
    text: str, crossings: int, expected: float
) -> None:
    node = _plan(text)
    assert len(crossings_of(node)) == crossings
    assert answering_us(node, estimates_of(node, RATES), PRICES) == pytest.approx(expected)


def test_of_what_is_not_known_the_batches_count() -> None:
    node = _plan("SELECT x FROM readings")
    assert answering_us(node, estimates_of(node, {}), PRICES) == 102


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (f"SELECT k, COUNT(*) AS n FROM readings {WINDOW} GROUP BY k", "Aggregate"),
        (f"SELECT COUNT(*) AS n FROM readings {WINDOW}", "TotalAggregate"),
        ("SELECT k, COUNT(*) AS n FROM readings WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND) GROUP BY k", "SteppedAggregate"),
        (f"SELECT a.x FROM readings {WINDOW} AS a JOIN others {WINDOW} AS b ON a.k = b.k", "Join"),
        (f"SELECT a.x FROM readings {WINDOW} AS a JOIN others {WINDOW} AS b ON a.k < b.k", "JoinOfAll"),
    ],
)
def test_forms_that_work_differently_have_prices_of_their_own(text: str, form: str) -> None:
    forms = {each: form_of(each) for each in nodes_of(_plan(text))}
    (node,) = (each for each, found in forms.items() if found == form)
    assert Prices({form: Price(batch=7)}).of(node).batch == 7


def test_a_file_that_an_earlier_version_measured_has_one_price_for_all_forms() -> None:
    node = next(
        each
        for each in nodes_of(_plan(f"SELECT COUNT(*) AS n FROM readings {WINDOW}"))
        if form_of(each) == "TotalAggregate"
    )
    assert Prices({"Aggregate": Price(batch=3)}).of(node).batch == 3
