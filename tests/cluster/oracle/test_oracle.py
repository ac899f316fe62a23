"""A short run of ``make oracle``, always with the same seed, and proof that the oracle can say no."""

from __future__ import annotations

import random

import polars as pl
import pytest
from click.testing import CliRunner

from cluster.fjord.batch import ALWAYS, START
from cluster.fjord.operators.set_operations import Distinct as DistinctOperator
from cluster.operators import Aggregate, Difference, Distinct, Node, Project, Source, TimeWindow
from cluster.operators.columns import AggregateCall, Output
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.oracle import proving
from tests.cluster.oracle.__main__ import main
from tests.cluster.oracle.comparison import difference_of_rows
from tests.cluster.oracle.definition import evaluate, horizon_of
from tests.cluster.oracle.proving import MismatchError, Tally, prove
from tests.cluster.oracle.running import all_at_once, run_plan
from tests.cluster.oracle.searching import search
from tests.cluster.oracle.strategies import random_streams
from tests.cluster.specimens.drawing import COLUMNS, LAST
from tests.examples import some_of

ALPHA = Source("alpha", COLUMNS["alpha"])


@pytest.mark.examples
def test_random_queries_over_random_streams_answer_what_they_mean() -> None:
    plans = some_of(60)
    tally = search(round_seed=20_261_121, plan_count=plans, stream_sets=6)
    assert tally.pairs >= 2 * plans
    assert tally.rewritten > 0
    assert not any("PlanError" in reason for reason in tally.unsupported), tally.unsupported


def test_an_operator_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = proving.run_plan

    def forgetful(node: Node, *args: object, **options: object) -> list[tuple[object, ...]]:
        return run(node, *args, **options)[1:]  # type: ignore[arg-type]

    monkeypatch.setattr(proving, "run_plan", forgetful)
    dice = random.Random(1)
    with pytest.raises(MismatchError, match="missing"):
        prove(Distinct(TimeWindow(ALPHA, 3)), [random_streams(dice) for _ in range(8)], dice, Tally())


def test_a_distinct_that_remembers_only_how_far_it_has_come_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of groups come in the order in which they end: what begins earlier may come later."""
    cover = DistinctOperator._cover

    def far(self: DistinctOperator, rows: pl.DataFrame) -> pl.DataFrame:
        fresh = cover(self, rows)
        self._covered = self._covered.with_columns(pl.lit(ALWAYS, pl.Int64).alias(START))
        return fresh

    monkeypatch.setattr(DistinctOperator, "_cover", far)
    counted = Aggregate(TimeWindow(ALPHA, 7), ("k",), (AggregateCall("n", "count", None, FieldType.INTEGER),))
    plan = Distinct(Project(counted, (Output("n", read_scalar('"n"', FieldType.INTEGER)),)))
    dice = random.Random(1)
    with pytest.raises(MismatchError, match="missing"):
        prove(plan, [random_streams(dice) for _ in range(40)], dice, Tally())


def test_a_rewriting_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    good = proving.rewrite(ALPHA)
    monkeypatch.setattr(proving, "rewrite", lambda _: type(good)(TimeWindow(ALPHA, 2), ("wrong rule",)))
    dice = random.Random(1)
    with pytest.raises(MismatchError, match="wrong rule"):
        prove(TimeWindow(ALPHA, 3), [random_streams(dice) for _ in range(8)], dice, Tally())


def test_the_comparison_sees_one_copy_too_many() -> None:
    plan = Difference(TimeWindow(ALPHA, 4), TimeWindow(ALPHA, 2))
    streams = {"alpha": [(1, (1, 1, "x")), (1, (1, 1, "x")), (5, (None, 2, ""))]}
    instants = horizon_of(plan, LAST)
    expected = evaluate(plan, [streams], instants).snapshots[0]
    rows = run_plan(plan, all_at_once(streams))
    assert difference_of_rows(rows, expected) is None
    assert difference_of_rows([*rows, rows[0]], expected) is not None
    assert difference_of_rows(rows[1:], expected) is not None


@pytest.mark.parametrize("wrong", [("--minutes", "nan"), ("--minutes", "0"), ("--pairs", "0"), ("--workers", "0")])
def test_a_search_that_proves_nothing_or_never_ends_is_refused(wrong: tuple[str, str]) -> None:
    done = CliRunner().invoke(main, wrong)
    assert done.exit_code == 2
    assert f"Invalid value for '{wrong[0]}'" in done.output
