"""The hosts without Spark: any division into micro-batches, workers that restart, micro-batches that are repeated."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.fjord import counters
from cluster.fjord.counters import work_of
from cluster.fjord.row_order import split_by_bucket
from cluster.physical.lowering import lower
from cluster.physical.text import plan_text
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.spark.envelopes import CONTROL, COUNTERS, COUNTING_BUCKET
from cluster.spark.reading.reads import UpstreamTask
from cluster.spark.upstream import run_upstream
from tests.cluster.spark.hosted_run import BUCKETS, Run, plan_node, queries

MEANS = (
    "SELECT sensor, SUM(speed) AS total FROM traffic WINDOW(RANGE 20 MICROSECONDS SLIDE 10 MICROSECONDS)"
    " GROUP BY sensor"
)
SLOW = "SELECT sensor, speed FROM traffic WHERE speed < 3"


def expected_totals(rows: list[tuple[int, str, int]], until: int) -> set[tuple[int, int, str, int]]:
    """By definition: at each multiple of 10, the sum over the 20 instants before it, per sensor that has any."""
    found = set()
    for k in range(10, until + 1, 10):
        window = [(sensor, speed) for at, sensor, speed in rows if k - 20 <= at < k]
        for sensor in {sensor for sensor, _ in window}:
            found.add((k - 1, k + 9, sensor, sum(speed for other, speed in window if other == sensor)))
    return found


STREAM = st.lists(st.tuples(st.integers(0, 99), st.sampled_from("abcd"), st.integers(0, 9)), max_size=40)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=STREAM, cuts=st.lists(st.integers(0, 100), max_size=4), data=st.data())
def test_answers_do_not_depend_on_cuts_workers_or_repetitions(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str, int]], cuts: list[int], data: st.DataObject
) -> None:
    run = Run(tmp_path_factory.mktemp("run"), Plan(1, queries(means=MEANS, slow=SLOW)))
    bounds = [0, *sorted(cuts), 100]
    for low, high in pairwise(bounds):
        run.append(data.draw(st.permutations([row for row in rows if low <= row[0] < high])), high)
        if data.draw(st.booleans(), label="micro-batch now"):
            if data.draw(st.booleans(), label="it is lost and repeated"):
                run.step(parts=data.draw(st.integers(1, 3)), keep=False)
            if data.draw(st.booleans(), label="the worker is a new one"):
                run.engine.forget()
            run.step(parts=data.draw(st.integers(1, 3)))
    run.append([], 200)
    run.step()
    totals = [(start, end, row["sensor"], row["total"]) for start, end, row in run.rows.get("means", [])]
    assert len(set(totals)) == len(totals)
    assert set(totals) == expected_totals(rows, 120)
    slow = [(start, row["sensor"], row["speed"]) for start, _, row in run.rows.get("slow", [])]
    assert sorted(slow) == sorted(row for row in rows if row[2] < 3)
    assert [start for start, _, _ in slow] == sorted(start for start, _, _ in slow)


def test_adding_and_dropping_queries_affects_no_other(tmp_path: Path) -> None:
    first, second = queries(means=MEANS)[0], PlannedQuery("slow", 2, plan_node(SLOW))
    third = PlannedQuery("sensors", 3, plan_node("SELECT DISTINCT sensor FROM traffic WHERE speed < 3"))
    run = Run(tmp_path, Plan(1, (first,)))
    run.plans.write(Plan(2, (first, second, third)))
    run.plans.write(Plan(3, (second, third)))
    rows = [(at, "a", 1) for at in range(0, 60, 5)]
    for low, high, epoch in ((0, 23, 1), (23, 41, 2), (41, 60, 3)):
        run.append([row for row in rows if low <= row[0] < high], high)
        run.step(epoch=epoch)
    totals = {(start, row["total"]) for start, _, row in run.rows["means"]}
    assert totals == {(9, 2), (19, 4), (29, 4), (39, 4)}, "all that was complete when it left"
    for name in ("slow", "sensors"):
        assert [start for start, _, _ in run.rows[name]] == [25, 30, 35, 40, 45, 50, 55]
    owners = {name.split("@")[0] for store in run.engine.stores for name in store if name}
    (sensors,) = lower(Plan(3, (third,))).fragments
    assert owners == {sensors.identity.split("@")[0]}, "the state of a dropped query is removed; some need none"


def test_a_query_that_fails_answers_an_error_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cluster.fjord.operators.set_operations import Distinct

    def fail(self: Distinct, port: int, batch: Any) -> Any:
        raise ValueError("no such thing")

    monkeypatch.setattr(Distinct, "transition", fail)
    run = Run(tmp_path, Plan(1, queries(means=MEANS, slow="SELECT DISTINCT speed FROM traffic")))
    run.append([(at, "a", 1) for at in range(30)], 30)
    run.step()
    assert [len(run.errors[query]) for query in run.errors] == [1]
    assert "no such thing" in run.errors["slow"][0]
    assert {(start, row["total"]) for start, _, row in run.rows["means"]} == {(9, 10), (19, 20), (29, 20)}


def test_counters_of_operators_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "REPORT_EVERY_SECONDS", 0.0)
    run = Run(tmp_path, Plan(1, queries(means=MEANS, slow=SLOW)))
    for low in (0, 30):
        run.append([(at, "a", 1) for at in range(low, low + 30)], low + 30)
        run.step(parts=2)
    plan = lower(run.plans.read(1))
    slow, panes = plan.fragments
    assert run.counters["scan of traffic"].rows_in == 2 * 60, "one for each host"
    work = work_of(plan, run.counters)
    assert work[slow.identity].tuples == 60
    assert work[slow.identity].answers == len(run.rows["slow"])
    assert work[panes.identity].answers == len(run.rows["means"])
    assert all(totals.dropped == 0 for totals in run.counters.values())
    assert f"{len(run.rows['slow']):,} rows out" in plan_text(plan, work)


def test_every_bucket_gets_a_message_in_every_micro_batch(tmp_path: Path) -> None:
    run = Run(tmp_path, Plan(1))
    task = UpstreamTask(str(run.plans.folder), str(tmp_path / "streams"), 1, 0, BUCKETS, 0, ())
    (batch,) = run_upstream(task)
    assert [(row["bucket"], row["exchange"]) for row in batch.to_pylist()] == [
        (COUNTING_BUCKET, COUNTERS),
        *((bucket, CONTROL) for bucket in range(BUCKETS)),
    ]


@given(st.lists(st.tuples(st.none() | st.text(max_size=3), st.none() | st.integers(0, 5)), max_size=30))
def test_equal_keys_share_a_bucket_and_no_row_is_lost(keys: list[tuple[str | None, int | None]]) -> None:
    rows = pl.DataFrame(
        {"k": [key for key, _ in keys], "n": [number for _, number in keys], "row": list(range(len(keys)))},
        schema={"k": pl.String, "n": pl.Int64, "row": pl.Int64},
    )
    parts = split_by_bucket(rows, ("k", "n"), 4)
    assert sorted(row for part in parts.values() for row in part["row"]) == list(range(len(keys)))
    owner: dict[Any, int] = {}
    for bucket, part in parts.items():
        for key in part.select("k", "n").iter_rows():
            assert owner.setdefault(key, bucket) == bucket
