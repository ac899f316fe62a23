"""Constants of the cost model, measured: what the model makes of them is what was measured."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from cluster.temporal.windows import Equal
from tests.cluster.temporal.measuring import Sample, measured, workload

SIZES = (24, 40)


def stream(length: int, *, coalescing: float, disorder: float) -> list[Sample]:
    random, value, found = Random(24), 0, []
    for stamp in range(length):
        value += random.random() >= coalescing
        found.append((stamp + (random.random() < disorder) * random.uniform(0, 20), (stamp, ("g",), (value,))))
    return [each for _, each in sorted(found, key=lambda each: each[0])]


def test_every_operation_costs_what_the_clock_shows() -> None:
    ticks = count()
    found = measured(stream(400, coalescing=0.5, disorder=0.3), 100, Equal(), SIZES, clock=lambda: next(ticks))
    constants = found.constants
    assert (constants.insert, constants.merge, constants.detach, constants.delete, constants.split) == (1, 1, 1, 1, 0)
    assert (found.eager_update, found.lazy_update, found.eager_scan, found.lazy_scan) == (2, 2, 1, 1)
    assert found.lazy_bytes == 100 * 40
    assert workload(found, 100, SIZES).eager_update(constants) == pytest.approx(2)


@pytest.mark.parametrize(("coalescing", "disorder"), [(0.2, 0.0), (0.5, 0.4), (0.9, 0.2)])
def test_the_model_comes_to_what_was_measured(coalescing: float, disorder: float) -> None:
    found = measured(stream(1_500, coalescing=coalescing, disorder=disorder), 200, Equal(), SIZES)
    work = workload(found, 200, SIZES)
    assert work.eager_update(found.constants) == pytest.approx(found.eager_update, rel=0.35)
    assert work.lazy_update(found.constants) == pytest.approx(found.lazy_update, rel=0.01)
    assert work.lazy_scan(found.constants) == pytest.approx(found.lazy_scan, rel=0.01)
    assert work.eager_scan(found.constants) == pytest.approx(found.eager_scan, rel=0.25)
    assert work.eager_memory() == pytest.approx(found.eager_bytes, rel=0.25)
    if not disorder:
        assert found.disorder == 0


def test_in_order_nothing_is_split() -> None:
    found = measured(stream(300, coalescing=1, disorder=0), 50, Equal(), SIZES)
    assert found.constants.split == 0
    assert found.coalescing == 1
    assert found.constants.insert == found.constants.merge  # none was inserted: as the nearest one
