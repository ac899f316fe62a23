"""Outcomes of attacks as a table, as totals and as JSON. Pure."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tests.neighbours.running import MOST_LAG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.neighbours.running import Outcome

LONGEST_REASON = 100


def table(outcomes: Iterable[Outcome]) -> Table:
    """Return a table with a line for each attack."""
    made = Table(
        "attack", "tried", "answered", "median, s", "p99, s", "rows exact", "what the owner got", "verdict", box=None
    )
    for number in (3, 4):
        made.columns[number].justify = "right"
    for each in outcomes:
        seen = each.seen
        made.add_row(
            each.attack.name,
            tried(each),
            answer(each),
            f"{seen.median_s:.2f}",
            f"{seen.p99_s:.2f}",
            f"{seen.expected} of {seen.expected}" if seen.exact else f"{seen.lacking} lack, {seen.wrong} wrong",
            reason(each),
            verdict(each),
        )
    return made


def tried(outcome: Outcome) -> str:
    """Return what was tried, in words."""
    attack = outcome.attack
    count = len(attack.statements)
    return f"{count} statement{'s' if count > 1 else ''} {attack.way}"


def answer(outcome: Outcome) -> str:
    """Return how it was answered: how many requests were accepted and refused."""
    answered = outcome.answered
    words = [
        f"{count} {word}" for count, word in ((answered.accepted, "accepted"), (answered.refused, "refused")) if count
    ]
    return ", ".join(words) or "nothing"


def reason(outcome: Outcome) -> str:
    """Return what the owner got: the first error, shortened."""
    found = (*outcome.errors, *outcome.answered.reasons)
    if not found:
        return "answers"
    text = re.sub(r"\s+", " ", found[0])
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


def verdict(outcome: Outcome) -> str:
    """Return whether the victim was left alone and the owner got a reason, in a word."""
    if outcome.problems:
        return "failed"
    return "too slow" if outcome.slow else "held"


def totals(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the totals of all attacks, line by line."""
    if not outcomes:
        return ["no attack was carried out"]
    left = [each for each in outcomes if not each.held]
    compared = sum(each.seen.expected for each in outcomes)
    lines = [f"{len(outcomes)} attacks, {len(outcomes) - len(left)} held; {compared} answers of the victim compared"]
    for each in left:
        slow = [f"median lag of {each.seen.median_s:.1f} s, at most {MOST_LAG_SECONDS:g} s"] if each.slow else []
        lines.append(f"{each.attack.name} was not held: {'; '.join([*slow, *each.problems])}")
    return lines


def as_json(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return outcomes as JSON has them."""
    return [
        {
            "attack": each.attack.name,
            "way": str(each.attack.way),
            "statements": len(each.attack.statements),
            "accepted": each.answered.accepted,
            "refused": each.answered.refused,
            "reasons": list(each.answered.reasons),
            "errors": list(each.errors),
            "victim": {**asdict(each.seen), "exact": each.seen.exact},
            "held": each.held,
            "problems": list(each.problems),
        }
        for each in outcomes
    ]
