"""Extents that change while a stream drifts: the choice follows costs, and no answer changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cluster.temporal.cost_model import Constants, Weights
from cluster.temporal.windows import CountWindow, ExtentError, Link
from tests.cluster.temporal.adapting import PROBED_WINDOW, TIMED, AdaptingExtents
from tests.cluster.temporal.measuring import Measured, Sample, measured
from tests.cluster.temporal.shared_extents import SharedExtents, StreamSchema, coalescing_query

SCHEMA = StreamSchema(key=("room",), invariant=(), varying=("heat", "damp"))
HEAT = coalescing_query(SCHEMA, ["heat"], ["room"])
DAMP = coalescing_query(SCHEMA, ["damp"], ["room"])
EVERY = PROBED_WINDOW + TIMED
WINDOW = CountWindow(80)


def drifting(seed: int, stretches: Sequence[tuple[float, float]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Samples of stretches with probabilities that heat and damp stay, some of them late."""
    random, heat, damp, stamp = Random(seed), 0, 0, 0
    for heat_stays, damp_stays in stretches:
        samples = []
        for _ in range(EVERY):
            stamp += 1
            heat += random.random() >= heat_stays
            damp += random.random() >= damp_stays
            row = {"room": random.choice("ab"), "heat": heat, "damp": damp}
            samples.append((stamp + random.uniform(0, 5), (stamp, row)))
        yield from (each for _, each in sorted(samples, key=lambda each: each[0]))


def by_counting(samples: Sequence[Sample], window: int, link: Link, row_bytes: tuple[int, int]) -> Measured:
    """Measure without a clock: reading a run or a sample takes 1, an eager update 3, a lazy one 1."""
    found = measured(samples, window, link, row_bytes)
    return replace(found, constants=Constants(3, 0, 3, 0, 0, 1, 0, lazy_insert=1, lazy_delete=0, lazy_read=1))


@pytest.mark.parametrize("seed", range(4))
def test_the_choice_follows_the_stream_and_no_answer_changes(seed: int) -> None:
    """Eager pays where much coalesces."""
    extents = AdaptingExtents(SCHEMA, WINDOW, [HEAT, DAMP], Weights(0, 1, 4), every=EVERY, measure=by_counting)
    constant = SharedExtents(SCHEMA, WINDOW, [HEAT, DAMP], [])
    chosen = []
    stretches = [(0.0, 0.0), (0.95, 0.0), (0.95, 0.95), (0.0, 0.95), (0.0, 0.0)]
    for number, (stamp, row) in enumerate(drifting(seed, stretches), 1):
        assert extents.insert(stamp, row) is constant.insert(stamp, row)
        if number % 7 == 0:
            assert [extents.answer(each) for each in (HEAT, DAMP)] == [constant.answer(each) for each in (HEAT, DAMP)]
        if number % EVERY == 100:
            chosen.append(extents.extents.eager)
    extents.decide()
    for stamp in range(10_000, 10_100):
        extents.insert(stamp, {"room": "a", "heat": stamp, "damp": stamp})
    chosen.append(extents.extents.eager)
    assert chosen == [frozenset(), frozenset(), {HEAT}, {HEAT, DAMP}, {DAMP}, frozenset()]
    assert (extents.decisions, extents.changes) == (len(stretches) + 1, 4)


def test_with_measured_costs_answers_stay_the_same() -> None:
    extents = AdaptingExtents(SCHEMA, WINDOW, [HEAT, DAMP], Weights(1, 0.5, 2), every=EVERY)
    constant = SharedExtents(SCHEMA, WINDOW, [HEAT, DAMP], [])
    assert extents.decide() is None
    for number, (stamp, row) in enumerate(drifting(9, [(0.2, 0.9), (0.9, 0.2)]), 1):
        assert extents.insert(stamp, row) is constant.insert(stamp, row)
        if number % 50 == 0:
            assert [extents.answer(each) for each in (HEAT, DAMP)] == [constant.answer(each) for each in (HEAT, DAMP)]
    decided = extents.decide()
    assert decided is not None
    assert all(each > 0 for each in (*decided.prices.eager, *decided.prices.lazy, decided.prices.shared))
    assert extents.decisions == 3


def test_a_look_needs_samples() -> None:
    with pytest.raises(ExtentError, match="every 10 samples"):
        AdaptingExtents(SCHEMA, WINDOW, [HEAT], Weights(1, 1, 1), every=10)


def test_extents_change_only_where_it_pays() -> None:
    """A lazy scan gets dearer, and cheaper again: by a little is no reason, in either direction."""
    lazy_read = [1.0]

    def measure(samples: Sequence[Sample], window: int, link: Link, row_bytes: tuple[int, int]) -> Measured:
        constants = Constants(1, 0, 1, 0, 0, 1, 0, lazy_insert=1, lazy_delete=0, lazy_read=lazy_read[0])
        return replace(measured(samples, window, link, row_bytes), constants=constants)

    extents = AdaptingExtents(SCHEMA, WINDOW, [HEAT], Weights(0, 0, 1), every=10**6, measure=measure)
    for stamp, row in drifting(1, [(0.0, 0.0)]):
        extents.insert(stamp, row)
    found = []
    for each in (1.0, 1.03, 1.3, 0.97, 1.0, 0.7):
        lazy_read[0] = each
        decided = extents.decide()
        assert decided is not None
        found.append((decided.eager == {HEAT}, decided.changed))
        for stamp in range(10_000 * len(found), 10_000 * len(found) + 100):
            extents.insert(stamp, {"room": "a", "heat": stamp, "damp": stamp})
    assert found == [(False, False), (False, False), (True, True), (True, False), (True, False), (False, True)]
