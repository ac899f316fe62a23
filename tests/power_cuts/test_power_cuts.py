"""The power is cut at random instants; nothing acknowledged is missing afterwards, and nothing is there twice.

A few cuts by default; ``make test-power-cuts`` makes two hundred (FJORD_CUTS, FJORD_SEED).
"""

from __future__ import annotations

import os

import pytest

from tests.power_cuts.lives import Ended, as_published, doubled, live, rows_of, speeds

CUTS = int(os.environ.get("FJORD_CUTS", "12"))
SEED = int(os.environ.get("FJORD_SEED", "1"))
CUTS_A_STORY = 12
"""Lives on one folder, one after the other."""
LAST = 30


def check(found: Ended, expected: Ended) -> None:
    """Compare with what an undisturbed cluster leaves, and with what was acknowledged to those outside."""
    assert found.stored == speeds(LAST)
    for name, answers in found.answers.items():
        assert [number for number, *_ in answers] == list(range(1, len(answers) + 1)), name
        assert {(name, answer[0]): as_published(answer) for answer in answers} == {
            key: row for key, row in found.outside.published.items() if key[0] == name
        }
    assert [answer[1:] for answer in found.answers["rows"]] == [answer[1:] for answer in expected.answers["rows"]]
    assert sorted(answer[1:] for answer in found.answers["counts"]) == sorted(
        answer[1:] for answer in expected.answers["counts"]
    )
    late = [row["speed"] for row in rows_of(found.answers["late-rows"])]
    assert sorted(late) == [speed for speed in speeds(LAST) if late and speed >= min(late)]
    assert not doubled([start for _, start, *_ in found.answers["late-counts"]])


@pytest.mark.parametrize("seed", range(SEED, SEED + max(1, CUTS // CUTS_A_STORY)))
async def test_nothing_is_lost_and_nothing_doubled(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    expected = await live(tmp_path_factory.mktemp("undisturbed"), monkeypatch, cuts=0, seed=seed, last=LAST)
    found = await live(tmp_path_factory.mktemp("disturbed"), monkeypatch, cuts=CUTS_A_STORY, seed=seed, last=LAST)
    check(found, expected)
