"""Prices of operators: in a file, and what follows from them."""

from __future__ import annotations

import math

import pytest

from cluster.costs.prices import SHIPPED, Price, Prices, prices_text, read_prices
from cluster.costs.work import compared_per_second, work_us
from cluster.errors import PlanError
from cluster.operators import Distinct, Dstream, Source
from cluster.operators.characteristics import Characteristics

STREAM = Source("readings", ())
SECOND_US = 1_000_000


def test_prices_are_read_as_they_were_written() -> None:
    prices = Prices({"Filter": Price(batch=1.5, compared=2)}, "2026-11-26 10:00:00", "a machine")
    assert read_prices(prices_text(prices)) == prices


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"kinds": {"Join": {"batch": -1}}}', ">= 0.0 - at `$.kinds[...].batch`"),
        (b'{"kinds": {"Join": {"batch": 1e300}}}', "<= 1000000000.0"),
        (b'{"kinds": {"Join": {"row": 1}}}', "unknown field `row`"),
        (b"\xff\xff", "malformed"),
        (b"[" * 100_000, ""),
    ],
)
def test_a_file_without_prices_is_refused_with_the_place(text: bytes, fault: str) -> None:
    with pytest.raises(PlanError, match="cannot be read") as refused:
        read_prices(text)
    assert fault in str(refused.value)
    assert "fjord plan calibrate" in str(refused.value.hint)


def test_kinds_without_a_price_of_their_own_cost_as_shipped_or_as_a_filter() -> None:
    own = Prices({"Filter": Price(batch=7)})
    assert own.of(Distinct(STREAM)) == SHIPPED.kinds["Distinct"]
    assert own.of(Dstream(STREAM)) == SHIPPED.kinds["Filter"]
    assert own.named("Filter") == Price(batch=7)


def test_work_is_that_of_batches_rows_and_pairs() -> None:
    price = Price(batch=100, row_in=2, row_out=3, kept=0.5, compared=0.25)
    below = (Characteristics(SECOND_US / 10, 1), Characteristics(SECOND_US / 30, 1))
    flow = Characteristics(SECOND_US / 4, 1)
    assert work_us(price, below, flow, 20, compared=8, batches=2) == pytest.approx(2 * (100 + 10) + 80 + 12 + 2)


def test_what_is_not_gone_through_costs_nothing_however_much_it_is() -> None:
    flow = Characteristics(SECOND_US, 1)
    assert work_us(Price(batch=1), (flow,), flow, math.inf, compared=math.inf) == 1
    assert work_us(Price(kept=1), (flow,), flow, math.inf) == math.inf


def test_rows_without_end_are_compared_with_ever_more() -> None:
    ever = Characteristics(SECOND_US, math.inf)
    assert compared_per_second(ever, ever, 10) == math.inf
    valid = Characteristics(SECOND_US / 10, 5 * SECOND_US)
    assert compared_per_second(valid, valid, 10) == pytest.approx(10 * 50 * 2 / 10)
