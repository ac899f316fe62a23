"""Windows by count, DISTINCT and set operations: two definitions that share nothing, and the operators."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cluster.operators import CountWindow, PartitionedWindow, Source
from cluster.operators.walks import unbounded_operator
from cluster.plan.rewrite import rewrite
from tests.cluster.oracle.comparison import assert_equal_snapshots, first_difference
from tests.cluster.oracle.definition import Streams, evaluate
from tests.cluster.oracle.running import deliveries, run_plan, tuple_by_tuple
from tests.cluster.oracle.second_definition import INSTANTS, Query, queries, second_snapshots, windowed
from tests.cluster.oracle.strategies import random_streams
from tests.cluster.specimens.drawing import COLUMNS

SEEDS = st.integers(0, 2**32 - 1)


def check(query: Query, seed: int) -> None:
    """Compare both definitions, and the answers of a plan, as it is and rewritten, with one tuple per micro-batch."""
    assume(unbounded_operator(query.node) is None)
    dice = random.Random(seed)
    streams = random_streams(dice, sampled=True)
    expected = second_snapshots(query, streams)
    meaning = evaluate(query.node, [streams], INSTANTS)
    assert not meaning.ambiguous
    at = first_difference(expected, meaning.snapshots[0])
    assert at is None, f"the definitions differ at {at}: {expected[at]} and {meaning.snapshots[0][at]}\n{query.sql}"
    plan = dice.choice((query.node, rewrite(query.node).node))
    for batches in (tuple_by_tuple(streams, dice), deliveries(streams, dice)):
        restarts = frozenset(number for number in range(len(batches)) if dice.random() < dice.choice((0, 0.4)))
        rows = run_plan(plan, batches, restart_after=restarts, lag_us=dice.choice((0, 4, 10**6)))
        assert_equal_snapshots(plan, streams, expected, rows)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(windowed(), SEEDS)
def test_windows_hold_what_came_last(query: Query, seed: int) -> None:
    check(query, seed)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(queries(), SEEDS)
def test_distinct_and_set_operations_are_those_of_sql_at_every_instant(query: Query, seed: int) -> None:
    check(query, seed)


STREAMS: Streams = {"alpha": [(1, (1, 0, "x")), (3, (2, 0, "x")), (3, (1, 5, "y")), (8, (1, 6, "x"))], "beta": []}
UP_TO_NOW = "SELECT * FROM alpha WHERE stamp <= $t QUALIFY"
ALPHA = Source("alpha", COLUMNS["alpha"])


@pytest.mark.parametrize(
    ("node", "sql", "at", "rows"),
    [
        (
            CountWindow(ALPHA, 2),
            f"{UP_TO_NOW} row_number() OVER (ORDER BY stamp DESC, arrival DESC) <= 2",
            3,
            [(2, 0), (1, 5)],
        ),
        (
            PartitionedWindow(ALPHA, ("k",), 1),
            f"{UP_TO_NOW} row_number() OVER (PARTITION BY k ORDER BY stamp DESC, arrival DESC) <= 1",
            9,
            [(2, 0), (1, 6)],
        ),
    ],
)
def test_what_the_second_definition_says_of_a_window_written_by_hand(
    node: CountWindow | PartitionedWindow, sql: str, at: int, rows: list[tuple[int, int]]
) -> None:
    query = Query(node, f'SELECT k, "count" FROM ({sql})', ("k", "count"))
    assert sorted(second_snapshots(query, STREAMS)[at].elements()) == sorted(rows)
