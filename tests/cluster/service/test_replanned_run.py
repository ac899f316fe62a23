"""Plans that change while queries come and go and rates drift change no answer, and do not flutter."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from cluster.costs.choice import REST_SECONDS
from tests.cluster.service.replanned_run import STREAMS, ReplannedRun, Text, random_text

SEEDS = range(3)


def _drifting(dice: random.Random) -> dict[str, float]:
    return {name: dice.choice((0.5, 2.0, 8.0)) for name in STREAMS}


def test_answers_are_those_of_the_definition_however_plans_change() -> None:
    """Queries come and go, and rates drift; each query that is left has answered what its text means."""
    changed = 0
    for seed in SEEDS:
        dice = random.Random(seed)
        run = ReplannedRun(seed)
        names = [run.add(random_text(dice)) for _ in range(4)]
        rates = _drifting(dice)
        for second in range(140):
            if second % 40 == 0:
                rates = _drifting(dice)
            if dice.random() < 0.04 and len(names) < 8:
                names.append(run.add(random_text(dice)))
            if dice.random() < 0.02 and len(names) > 2:
                run.drop(names.pop(dice.randrange(len(names))))
            run.step({name: rate * dice.uniform(0.85, 1.15) for name, rate in rates.items()})
        found = run.end()
        for name in names:
            assert found.answers[name] == found.expected[name], (seed, name, run.texts[name], found.changes.get(name))
        for name, at in found.changes.items():
            assert all(b - a >= REST_SECONDS for a, b in pairwise(at)), (seed, name, at)
            changed += len(at)
    assert changed >= len(SEEDS), "hardly anything has changed"


@pytest.mark.parametrize("seed", SEEDS)
def test_rates_that_waver_change_nothing(seed: int) -> None:
    """By 15 %, around those by which plans were chosen."""
    dice = random.Random(seed)
    run = ReplannedRun(seed)
    for _ in range(5):
        run.add(random_text(dice))
    rates = _drifting(dice)
    for _ in range(90):
        run.step(rates)
    settled = {name: len(at) for name, at in run.ran.changes.items()}
    for _ in range(80):
        run.step({name: rate * dice.choice((0.85, 1.0, 1.15)) for name, rate in rates.items()})
    assert {name: len(at) for name, at in run.ran.changes.items()} == settled


def test_texts_are_drawn_that_have_a_choice() -> None:
    dice = random.Random(1)
    drawn = [random_text(dice) for _ in range(50)]
    assert {each.slide_s for each in drawn} == {None, 2, 3, 4, 6}
    assert all(isinstance(each, Text) for each in drawn)
