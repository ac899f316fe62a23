"""Carries out attacks beside the victim, one after the other, and says what became of both."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.neighbours.victim import QUERIES, SECOND_US, Seen, judged, meant

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.neighbours.attacks import Attack
    from tests.neighbours.deployment import Deployment
    from tests.neighbours.owner import Answered

MOST_LAG_SECONDS = 2.0
"""What the victim's lag must stay under at the median."""
CAUGHT_UP_SECONDS = 60.0
"""How long the victim may take after an attack until all its answers are there."""
STOPPED_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attack.

    Parameters
    ----------
    attack
        The attack.
    answered
        What the owner was answered.
    errors
        Errors of its queries at run time, each once.
    seen
        What became of the victim.
    problems
        What should have been otherwise, seconds apart; none if all was as promised.
    """

    attack: Attack
    answered: Answered
    errors: tuple[str, ...]
    seen: Seen
    problems: tuple[str, ...]

    @property
    def slow(self) -> bool:
        """Whether the victim was too far behind."""
        return self.seen.median_s >= MOST_LAG_SECONDS

    @property
    def held(self) -> bool:
        """Whether all was as promised, lags too."""
        return not self.problems and not self.slow


def carried_out(attack: Attack, deployment: Deployment) -> Outcome:
    """Carry out an attack, wait until the victim is answered, and drop what the owner has left."""
    begin_us = -(-int(time.time() * SECOND_US) // SECOND_US) * SECOND_US
    answered = deployment.owner.attack(attack)
    deployment.children.check()
    end_us = int(time.time()) * SECOND_US
    errors = _errors(attack, answered, deployment)
    deployment.owner.drop_all()
    expected = meant(begin_us, end_us)
    _wait(
        lambda: len({each.answer for each in deployment.subscriber.between(begin_us, end_us)}) >= len(expected),
        CAUGHT_UP_SECONDS,
    )
    arrivals = deployment.subscriber.between(begin_us, end_us)
    # While a statement is planned, nothing runs yet that could hold up the victim.
    lags_from_us = round((answered.begun or 0.0) * SECOND_US)
    seen = judged(expected, arrivals, time.time(), lags_from_us=lags_from_us)
    problems = [*wrong_answers(attack, answered, errors), *_victims_problems(deployment, seen)]
    return Outcome(attack, answered, errors, seen, tuple(problems))


def _errors(attack: Attack, answered: Answered, deployment: Deployment) -> tuple[str, ...]:
    """Return the errors of the owner's queries; where some must come, wait for them."""

    def found() -> list[str]:
        return [error for name in answered.queries for error in deployment.subscriber.errors(name)]

    if attack.stopped is not None and answered.queries:
        pattern = re.compile(attack.stopped)
        _wait(lambda: any(pattern.search(each) for each in found()), STOPPED_SECONDS)
    return tuple(dict.fromkeys(found()))


def wrong_answers(attack: Attack, answered: Answered, errors: tuple[str, ...]) -> list[str]:
    """Return what an owner should have been answered instead."""
    if attack.refused is not None:
        if answered.accepted:
            return [f"{answered.accepted} statements were accepted that had to be refused"]
        unclear = [each for each in answered.reasons if not re.search(attack.refused, each)]
        return [f"refused for another reason: {each}" for each in unclear[:1]]
    if attack.stopped is not None and not any(re.search(attack.stopped, each) for each in errors):
        return ["no error says why its query has no answers"]
    return [] if answered.accepted else [f"nothing was accepted: {', '.join(answered.reasons[:1])}"]


def _victims_problems(deployment: Deployment, seen: Seen) -> list[str]:
    problems = []
    if not seen.exact:
        problems.append(f"of {seen.expected} answers of the victim {seen.lacking} lack and {seen.wrong} are wrong")
    problems += [
        f"the victim got an error: {each}" for name in QUERIES for each in deployment.subscriber.errors(name)[:1]
    ]
    return problems


def _wait(reached: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
