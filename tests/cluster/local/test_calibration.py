"""Measuring what steps of operators cost."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cluster.costs.prices import SHIPPED, Price, form_of
from cluster.fjord import hosted_fragment
from cluster.fjord.operator import State
from cluster.fjord.saved_state import pack_state
from cluster.language.translation import translate
from cluster.local import calibration
from cluster.local.calibration import (
    CATALOG,
    LOADS,
    WORKLOADS,
    Load,
    Sighting,
    calibrated,
    fitted,
    nonnegative,
    run_query,
    written,
)
from cluster.operators.walks import nodes_of
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
        assert kind == "Lookup" or kind in {form_of(each) for each in nodes_of(node)}
    assert kind in SHIPPED.kinds


def test_this_machine_has_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LOADS", (Load(50, 1), Load(200, 2)))
    few = {kind: WORKLOADS[kind][:1] for kind in ("Filter", "Aggregate", "Join", "Lookup")}
    monkeypatch.setattr(calibration, "WORKLOADS", few)
    seen: list[str] = []
    found = calibrated(seen.append, machine="here", measured="now")
    assert seen == [each for each in few for _ in range(2)] * calibration.TIMES
    assert (found.machine, found.measured) == ("here", "now")
    assert {*few, "Source", "TimeWindow", "Project", "Answers", "Exchange"} <= found.kinds.keys()
    nodes = [price for kind, price in found.kinds.items() if kind not in {"Answers", "Exchange", "Queue"}]
    assert all(price.batch + price.row_in + price.row_out > 0 for price in nodes)


def test_runs_that_are_quick_by_chance_count_no_more_than_others() -> None:
    """Errors in relation to the times themselves would give 640 for 500, 1,000 and 1,500; 1,000 is what they take."""
    times = np.array([500.0, 1_000.0, 1_500.0])
    assert nonnegative(np.ones((3, 1)), times) == [pytest.approx(1_000)]


def test_what_a_micro_batch_takes_besides_operators_is_divided_among_answers_and_streams() -> None:
    text = "SELECT k FROM readings WINDOW(RANGE 1 SECOND) UNION ALL SELECT k FROM others WINDOW(RANGE 1 SECOND)"
    run = run_query(text, Load(100, 1), np.random.default_rng(1), batches=4)
    assert 0 < run.besides_us < run.us
    operators = sum(each.us * (2 if kind in {"Source", "TimeWindow"} else 1) for kind, each in run.sightings.items())
    assert run.us == pytest.approx(operators + run.besides_us, rel=0.05)
    assert run.estimates[run.node].rows_per_second == pytest.approx(200)


def test_shares_are_those_of_tuples_though_scans_leave_some_out() -> None:
    run = run_query("SELECT k FROM readings WHERE x < 0.25", Load(1_000, 1), np.random.default_rng(1))
    (share,) = run.selectivities.values()
    assert share == pytest.approx(0.25, abs=0.05)


def test_windows_that_move_every_other_second_are_measured_with_their_answers() -> None:
    text = "SELECT COUNT(*) AS n FROM readings WINDOW(RANGE 2 SECONDS SLIDE 2 SECONDS)"
    run = run_query(text, Load(50, 2), np.random.default_rng(1))
    made = run.sightings["SteppedAggregate"].rows_out
    assert made == pytest.approx(1.5)  # a partial row each second, and an answer every other one


def test_what_it_takes_to_save_state_is_that_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]

    def slowly(state: State) -> bytes:
        passed[0] += 0.02
        return pack_state(state)

    monkeypatch.setattr(hosted_fragment.time, "process_time", lambda: passed[0])
    monkeypatch.setattr(hosted_fragment, "pack_state", slowly)
    text = "SELECT DISTINCT k FROM readings WINDOW(RANGE 1 SECOND)"
    run = run_query(text, Load(20, 1), np.random.default_rng(1), batches=2)
    assert run.sightings["Distinct"].us > 20_000
