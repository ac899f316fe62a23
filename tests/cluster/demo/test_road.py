"""What the road's query answers, found by looking near each reading, is what all combinations give."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest

from cluster.demo.replan_scene import QUERY, RUSH_HOUR, SECOND_US, VALUES, WINDOW_US, Reading, answers, readings


def of_all_combinations(sent: dict[str, list[Reading]]) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for held in product(*(sent[stream] for stream in VALUES)):
        start_us, end_us = max(each[0] for each in held), min(each[0] + WINDOW_US for each in held)
        if start_us < end_us and len({each[1] for each in held}) == 1:
            found[start_us, end_us, held[0][1], *(each[2] for each in held)] += 1
    return found


@pytest.mark.parametrize("seed", range(30))
def test_answers_are_those_of_all_combinations(seed: int) -> None:
    dice = random.Random(seed)
    sent = {
        stream: sorted(
            (dice.randrange(12) * WINDOW_US // 4 - dice.randrange(2), dice.randrange(2), dice.randrange(3))
            for _ in range(dice.randrange(25))
        )
        for stream in VALUES
    }
    assert answers(sent) == of_all_combinations(sent)


def test_windows_of_the_text_are_those_of_the_answers() -> None:
    assert QUERY.count(f"WINDOW(RANGE {WINDOW_US // SECOND_US} SECONDS)") == len(VALUES)


@pytest.mark.parametrize("rate", sorted(set(RUSH_HOUR.values())))
def test_readings_are_spread_over_time_without_gap_or_repetition(rate: int) -> None:
    quarters = [
        each[0]
        for quarter in range(40)
        for each in readings(random.Random(1), rate, quarter * SECOND_US // 4, (quarter + 1) * SECOND_US // 4)
    ]
    assert quarters == [place * SECOND_US // rate for place in range(10 * rate)]
