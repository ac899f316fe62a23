"""An owner beside a victim: the victim's answers are exactly the oracle's, and the owner gets reasons.

How far the victim is behind depends on the machine: ``make neighbours`` measures that, and tries many more attacks.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.neighbours.attacks import ROWS, TEXTS, WORK, chosen
from tests.neighbours.deployment import Deployment
from tests.neighbours.running import Outcome, carried_out

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 3.0
"""For how long attacks are kept up here."""
pytestmark = [pytest.mark.system, pytest.mark.spark]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("neighbours")) as found:
        yield found


def outcome_of(name: str, deployment: Deployment) -> Outcome:
    (attack,) = chosen([name])
    outcome = carried_out(replace(attack, seconds=SECONDS), deployment)
    assert outcome.problems == ()
    assert outcome.seen.exact
    assert deployment.is_calm()
    return outcome


@pytest.mark.parametrize(("name", "reason"), [
    ("products/three windows of a minute", ROWS),
    ("products/fast samples", ROWS),
    ("groups/a slide of a millisecond", ROWS),
    ("relations/a product", ROWS),
    ("columns/800 STDDEV", WORK),
    ("texts/that no answer has", TEXTS),
])  # fmt: skip
def test_what_planning_can_price_is_refused_with_its_price(name: str, reason: str, deployment: Deployment) -> None:
    found = outcome_of(name, deployment)
    assert found.answered.accepted == 0
    (given,) = found.answered.reasons
    assert re.search(reason, given)


def test_long_texts_of_many_queries_are_refused_once_there_are_too_many(deployment: Deployment) -> None:
    found = outcome_of("results/long texts of many queries", deployment)
    assert found.answered.accepted
    assert found.answered.refused
    assert all(re.search(TEXTS, each) for each in found.answered.reasons)


def test_a_function_that_crashes_is_reported_to_its_owner_only(deployment: Deployment) -> None:
    found = outcome_of("functions/crashes", deployment)
    assert found.answered.refused == 0
    assert all("crashes" in each for each in found.errors)


@pytest.mark.parametrize("name", ["columns/3,000 of equal", "nested/50 queries", "churn/one query"])
def test_what_is_accepted_leaves_the_victim_its_answers(name: str, deployment: Deployment) -> None:
    assert outcome_of(name, deployment).answered.accepted
