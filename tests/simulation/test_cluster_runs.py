"""A cluster among scripted proxies keeps its promises, and the oracles notice when it does not."""

import os
import subprocess
import sys

import pytest

from tests.simulation.cluster_oracles import (
    Result,
    Stored,
    complete,
    numbered,
    published,
    same_snapshots,
    stored_once,
    windows,
)

RUNS = """
from pathlib import Path
from tests.simulation import preparing
preparing.prepare()
from tests.simulation.cluster_runs import Run
from tests.simulation.forked import apart
for seed in (2, 6):
    print(*apart(lambda: Run(str(seed), 3.0, Path("/dev/shm") / f"fjord-test-{NUMBER}").outcome())[2:5])
"""
ROWS = [Result(1, 10, 11, "a"), Result(2, 20, 21, "b"), Result(3, 20, 21, "c")]


REPLANNED = """
from pathlib import Path
from tests.simulation import preparing
preparing.prepare()
from tests.simulation.cluster_runs import Run
from tests.simulation.forked import apart
found = apart(lambda: Run("2", 4.0, Path("/dev/shm") / "fjord-test-replanned", replanned=True).outcome())
print(found.violations, found.migrations)
"""


def python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=250,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    ).stdout  # fmt: skip


def test_a_run_keeps_what_is_promised_and_repeats_itself():
    first, second = (python("-c", RUNS.replace("{NUMBER}", str(number))) for number in range(2))
    assert [line.split()[0] for line in first.splitlines()] == ["[]", "[]"], first
    assert first == second


def test_plans_that_change_by_themselves_keep_what_is_promised_through_crashes():
    violations, _, migrations = python("-c", REPLANNED).strip().rpartition(" ")
    assert violations == "[]"
    assert int(migrations) > 0


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lambda: numbered(ROWS), ""),
        (lambda: numbered([ROWS[0], ROWS[2]]), "wrong number"),
        (lambda: numbered([ROWS[1]._replace(sequence=1), ROWS[0]._replace(sequence=2)]), "start before"),
        (lambda: published(ROWS, [*ROWS[:2], *ROWS]), ""),
        (lambda: published(ROWS, ROWS[:2]), "never published"),
        (lambda: published(ROWS[:2], ROWS), "not stored"),
        (lambda: published(ROWS, [ROWS[1], ROWS[0], ROWS[2]]), "before earlier ones"),
        (lambda: published(ROWS, [*ROWS, ROWS[0]._replace(row="x")]), "two contents"),
        (lambda: complete(ROWS, [row[1:] for row in ROWS]), ""),
        (lambda: complete(ROWS, [ROWS[0][1:]]), "should not be"),
        (lambda: complete(ROWS[:1], [row[1:] for row in ROWS]), "missing"),
        (lambda: stored_once([Stored(1, "m", ())], [Stored(1, "m", ())] * 2), "more often"),
        (lambda: stored_once([Stored(1, "m", ())], []), "acknowledged and not stored"),
        (lambda: stored_once([Stored(1, "m", ())], [], late=1), ""),
    ],
)
def test_what_the_oracles_notice(found, words):
    text = " ".join(found())
    assert words in text
    assert bool(words) == bool(text)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([(0, 10, "a")], ""),
        ([(0, 4, "a"), (4, 10, "a")], ""),
        ([(0, 99, "a")], ""),
        ([(0, 10, "a"), (10, 30, "b")], ""),
        ([(0, 9, "a")], "1 answers missing: (9, 'a')"),
        ([(1, 10, "a")], "1 answers missing: (0, 'a')"),
        ([(0, 10, "a"), (4, 10, "a")], "1 answers that should not be, or not so often: (4, 'a')"),
        ([(0, 10, "b")], "1 answers missing: (0, 'a') 1 answers that should not be, or not so often: (0, 'b')"),
        ([], "1 answers missing: (0, 'a')"),
    ],
)
def test_snapshots_are_compared_however_answers_are_split(found, words):
    assert " ".join(same_snapshots(found, [(0, 12, "a")], until_us=10)) == words


def test_windows_by_their_definition():
    """
    stamps    0    5         |  windows of 10, every 5, end at 5, 10, 15
    """  # fmt: skip
    rows = [Stored(0, "m", ()), Stored(5, "m", ())]
    found = windows(rows, range_us=10, slide_us=5, until_us=10, answer=lambda members: str(len(members)))
    assert found == [(4, 9, "1"), (9, 14, "2")]
