"""Random texts with EMIT EARLY: the same snapshots as with EMIT FINAL, and all of them in time."""

from __future__ import annotations

import random
from collections.abc import Sequence

import polars as pl
import pytest

from cluster.fjord import early_answers
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.early_answers import NOTHING_GIVEN, LookAhead
from cluster.fjord.operator import Operator
from cluster.physical.operations import OPERATIONS, CountWindow
from protocols.errors import FjordError
from tests.cluster.oracle.early_running import Compared, compare_early, random_buckets
from tests.cluster.oracle.proving import delivered
from tests.cluster.oracle.text_leaves import Turns
from tests.cluster.oracle.text_queries import random_text
from tests.cluster.oracle.text_running import Planned, planned, runnable, streams_of, tables_of
from tests.cluster.oracle.text_world import World, random_world
from tests.cluster.oracle.text_writing import written

SEED = 20_261_123


def compared(plans: Planned, world: World, dice: random.Random) -> Compared:
    batches, restarts = delivered(streams_of(world, plans.streams), dice.getrandbits(32))
    return compare_early(
        plans.better,
        batches,
        restart_after=restarts,
        tables=lambda: tables_of(world.places),
        buckets=random_buckets(dice),
    )


def search(seed: int, texts: int, worlds: int = 4) -> tuple[int, int]:
    """Compare so many random texts; return how many pairs ran, and how many rows were opened."""
    turns, ran, opened = Turns(), 0, 0
    for number in range(texts):
        dice = random.Random(f"{seed}/{number}")
        text = random_text(dice, turns)
        derived, query = written(text)
        try:
            plans = planned(derived, query)
            if runnable(plans.better) is not None:
                continue
        except FjordError:
            continue
        for _ in range(worlds):
            world = random_world(dice)
            found = compared(plans, world, dice)
            assert found.wrong is None, f"text {number} of seed {seed}\n{'; '.join([*derived, query])}\n{found.wrong}"
            ran, opened = ran + 1, opened + found.opened
    return ran, opened


def test_random_texts_give_early_what_they_give_in_the_end() -> None:
    ran = opened = 0
    for seed in range(SEED, SEED + 8):
        of_seed = search(seed, 10, worlds=2)
        ran, opened = ran + of_seed[0], opened + of_seed[1]
        if ran >= 20 and opened:
            break
    assert ran >= 20
    assert opened > 0


NESTED = (
    "SELECT DISTINCT n FROM (SELECT COUNT(*) AS n FROM alpha WINDOW(RANGE 7 MICROSECONDS)) "
    "WINDOW(RANGE 10 MICROSECONDS SLIDE 5 MICROSECONDS)"
)


DELETIONS = "SELECT n FROM DSTREAM((SELECT COUNT(*) AS n FROM alpha WINDOW(ROWS 3))) WINDOW(RANGE 6 MICROSECONDS)"

HOLDING = (
    "SELECT v, k FROM alpha WINDOW(ROWS 3)",
    "SELECT v, k FROM alpha WINDOW(PARTITION BY k ROWS 2)",
    "SELECT v FROM alpha WINDOW(ROWS 4 SLIDE 2)",
    "SELECT DISTINCT ok FROM alpha WINDOW(PARTITION BY k ROWS 2)",
    "SELECT k, AVG(v) AS mean FROM alpha WINDOW(RANGE 5 MICROSECONDS) GROUP BY k",
    "SELECT COUNT(*) AS n, SUM(v) AS total FROM alpha WINDOW(PARTITION BY k ROWS 3)",
    "SELECT MAX(n) AS most FROM (SELECT k, COUNT(*) AS n FROM alpha WINDOW(RANGE 6 MICROSECONDS) GROUP BY k)",
    ("SELECT place, v FROM alpha WINDOW(RANGE 6 MICROSECONDS) "
    "WHERE v = (SELECT MAX(v) FROM alpha WINDOW(RANGE 6 MICROSECONDS))"),
    "SELECT k FROM alpha WINDOW(RANGE 5 MICROSECONDS) EXCEPT ALL SELECT k FROM Beta WINDOW(RANGE 3 MICROSECONDS)",
    "SELECT k FROM alpha WINDOW(ROWS 3) INTERSECT ALL SELECT k FROM Beta WINDOW(RANGE 8 MICROSECONDS)",
    ("SELECT k, v FROM alpha WINDOW(RANGE 8 MICROSECONDS) AS a "
    "WHERE NOT EXISTS (SELECT 1 FROM Beta WINDOW(ROWS 2) AS b WHERE b.k = a.k)"),
    "SELECT a.v, b._w FROM alpha WINDOW(ROWS 2) AS a JOIN Beta WINDOW(RANGE 5 MICROSECONDS) AS b ON a.k = b.k",
    "SELECT k FROM alpha WINDOW(ROWS 2) UNION ALL SELECT k FROM Beta WINDOW(RANGE 4 MICROSECONDS)",
    "SELECT n FROM ISTREAM((SELECT COUNT(*) AS n FROM alpha WINDOW(ROWS 3))) WINDOW(RANGE 6 MICROSECONDS)",
    "SELECT z.k, z.v FROM ISTREAM((SELECT k, v FROM alpha WINDOW(PARTITION BY k ROWS 1))) AS z WINDOW(ROWS 1)",
    DELETIONS,
    "SELECT DISTINCT k FROM (SELECT k FROM alpha WINDOW(ROWS 2)) WINDOW(RANGE 4 MICROSECONDS)",
    NESTED,
    "SELECT k, COUNT(*) AS n FROM alpha WINDOW(RANGE 10 MICROSECONDS SLIDE 5 MICROSECONDS) GROUP BY k",
    "SELECT k, v, quality FROM alpha WINDOW(RANGE 9 MICROSECONDS) COALESCE(v BY k) KEEP 2 TUPLES",
    "SELECT k, VALID(s) AS held FROM alpha WINDOW(ROWS 5) COALESCE(ok BY k) AS s",
    "SELECT ok, DURATION(VALID(s)) AS d FROM alpha WINDOW(PARTITION BY k ROWS 3) COALESCE(ok BY k) AS s WHERE k <> 1",
    "SELECT k, VALID(s) AS held FROM alpha WINDOW(ROWS 5) COALESCE(ok BY k) KEEP 3 TUPLES AS s",
    "SELECT ok, COUNT(*) AS n FROM alpha WINDOW(RANGE 20 MICROSECONDS) COALESCE(ok BY k) KEEP 3 TUPLES GROUP BY ok",
)  # fmt: skip
"""Queries with operators that hold rows back, and with windows and set operations above such."""


@pytest.mark.parametrize("query", HOLDING)
def test_a_query_that_holds_rows_back_gives_them_in_time(query: str) -> None:
    assert compared_often(query) is None


def compared_often(query: str, times: int = 12) -> str | None:
    """Return what is wrong with the early answers of a query in one of some random runs."""
    plans, opened = planned([], query), 0
    for number in range(times):
        dice = random.Random(f"{query}/{number}")
        found = compared(plans, random_world(dice), dice)
        if found.wrong is not None:
            return found.wrong
        opened += found.opened
    return None if opened or "SLIDE 5 MICROSECONDS) GROUP" in query else "nothing was ever opened"


def test_what_was_given_out_and_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    save = early_answers.state_of
    monkeypatch.setattr(early_answers, "state_of", lambda _, began: save(NOTHING_GIVEN, began))
    assert compared_often(HOLDING[0]) is not None


def test_a_frontier_that_is_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = LookAhead.known
    monkeypatch.setattr(LookAhead, "known", lambda self, frontier_us: known(self, frontier_us + 3))
    assert compared_often(HOLDING[4]) is not None


def test_an_end_that_is_known_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = early_answers._cut

    def too_early(rows: pl.DataFrame, until_us: int) -> pl.DataFrame:
        lasts = (pl.col(END) >= until_us) & (pl.col(START) < until_us - 1)
        return cut(rows, until_us).with_columns(pl.when(lasts).then(until_us - 1).otherwise(END).alias(END))

    monkeypatch.setattr(early_answers, "_cut", too_early)
    assert compared_often(HOLDING[0]) is not None


def test_that_more_is_promised_than_operators_have_answered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last end of a row is not known to what reports ends."""
    ahead = Operator.ahead

    def promising(self: Operator, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        return Batch(ahead(self, frontier_us, inputs).rows, frontier_us)

    monkeypatch.setattr(Operator, "ahead", promising)
    assert compared_often(DELETIONS) is not None


def test_a_row_that_is_given_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in OPERATIONS:
        monkeypatch.setattr(kind, "holds_rows_back", kind is CountWindow)
    assert compared_often(HOLDING[7]) is not None
