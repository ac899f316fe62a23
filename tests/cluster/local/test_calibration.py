"""Measuring what steps of operators cost."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cluster.costs.prices import SHIPPED, Price
from cluster.language.translation import translate
from cluster.language.walks import nodes_of
from cluster.local import calibration
from cluster.local.calibration import CATALOG, Sighting, calibrated, fitted
from cluster.local.price_workloads import LOADS, WORKLOADS, Load, written
from cluster.plan.rewrite import rewrite


def _sighting(price: Price, rows_in: float, rows_out: float, kept: float, compared: float) -> Sighting:
    us = price.batch + price.row_in * rows_in + price.row_out * rows_out + price.kept * kept + price.compared * compared
    return Sighting(rows_in, rows_out, kept, compared, us)


def test_prices_are_found_again() -> None:
    price = Price(batch=700, row_in=0.5, row_out=0.25, kept=0.125, compared=0.0625)
    dice = np.random.default_rng(1)
    seen = [_sighting(price, *(float(each) for each in dice.integers(1, 10_000, 4))) for _ in range(12)]
    assert dataclasses.astuple(Sighting(*_as_tuple(fitted(seen)))) == pytest.approx(_as_tuple(price), abs=1e-4)


def _as_tuple(price: Price) -> tuple[float, float, float, float, float]:
    return (price.batch, price.row_in, price.row_out, price.kept, price.compared)


def test_no_price_is_below_zero_and_noise_makes_none() -> None:
    dice = np.random.default_rng(2)
    seen = [
        dataclasses.replace(_sighting(Price(batch=700), *(float(each) for each in dice.integers(1, 10_000, 4))), us=us)
        for us in dice.uniform(600, 800, 12)
    ]
    found = fitted(seen)
    assert min(_as_tuple(found)) >= 0
    means = [float(np.mean(each)) for each in zip(*map(dataclasses.astuple, seen), strict=True)]
    mean = _sighting(found, *means[:4])
    assert mean.us == pytest.approx(700, rel=0.2)


def test_what_does_not_vary_has_no_price_of_its_own() -> None:
    assert fitted([Sighting(rows, rows, 10, 0, 100 + rows) for rows in (10, 100, 1_000)]).kept == 0


@pytest.mark.parametrize("kind", WORKLOADS)
def test_each_workload_has_its_operator(kind: str) -> None:
    for text in WORKLOADS[kind]:
        node = rewrite(translate(written(text, LOADS[0]), CATALOG).node).node
        assert kind == "Lookup" or kind in {type(each).__name__ for each in nodes_of(node)}
    assert kind in SHIPPED.kinds


def test_this_machine_has_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LOADS", (Load(50, 1), Load(200, 2)))
    few = {kind: WORKLOADS[kind][:1] for kind in ("Filter", "Aggregate", "Join", "Lookup")}
    monkeypatch.setattr(calibration, "WORKLOADS", few)
    seen: list[str] = []
    found = calibrated(seen.append, machine="here", measured="now")
    assert seen == [each for each in few for _ in range(2)]
    assert (found.machine, found.measured) == ("here", "now")
    assert {*few, "Source", "TimeWindow", "Project"} <= found.kinds.keys()
    assert all(price.batch + price.row_in + price.row_out > 0 for price in found.kinds.values())
