"""A batch that breaks the contract of queues is counted, and is an error of the queries that read it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cluster.fjord.batch import START, Batch
from cluster.fjord.operators.set_operations import Distinct
from cluster.fjord.stream_scan import StreamScan
from cluster.plan.epoch import Plan
from tests.cluster.spark.hosted_run import Run, queries

DISTINCT = "SELECT DISTINCT speed FROM traffic WINDOW(RANGE 20 US)"
WINDOW = "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US) GROUP BY sensor"
PLAIN = "SELECT sensor FROM traffic WHERE speed > 3"


def test_an_operator_that_breaks_it_fails_its_query_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Distinct.transition

    def backwards(self: Distinct, port: int, batch: Batch) -> Batch:
        answer = right(self, port, batch)
        return Batch(answer.rows.reverse(), answer.watermark_us)

    monkeypatch.setattr(Distinct, "transition", backwards)
    run = Run(tmp_path, Plan(1, queries(wrong=DISTINCT, right=WINDOW)))
    run.append([(at, "ab"[at % 2], at % 5) for at in range(40)], 40)
    run.step()
    assert set(run.errors) == {"wrong"}
    assert "Distinct" in run.errors["wrong"][0]
    assert "rows that are not in the order of their starts" in run.errors["wrong"][0]
    assert "wrong" not in run.rows
    assert run.rows["right"]
    assert sum(totals.broken for name, totals in run.counters.items() if name.endswith(" Distinct")) == 1


def test_a_scan_that_breaks_it_fails_the_queries_that_read_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = StreamScan.samples

    def backwards(self: StreamScan, *what: object, **options: object) -> Batch:
        batch = right(self, *what, **options)  # type: ignore[arg-type] # handed on as they come
        return Batch(batch.rows.sort(pl.col(START), descending=True), batch.watermark_us)

    monkeypatch.setattr(StreamScan, "samples", backwards)
    run = Run(tmp_path, Plan(1, queries(window=WINDOW, plain=PLAIN)))
    run.append([(at, "a", at % 5) for at in range(20)], 20)
    run.step()
    assert not run.rows
    for name in ("window", "plain"):
        assert "was given rows that are not in the order of their starts" in run.errors[name][0]


def test_a_row_with_a_duration_is_answered_when_it_ends(tmp_path: Path) -> None:
    """Rows of a micro-batch are put in the order of their starts; those of the next one may begin before them."""
    run = Run(tmp_path, Plan(1, queries(q=WINDOW)))
    run.append([(0, "a", 1), (5, "b", 1), (7, "b", 1)], 10)
    run.step()
    early = [start for start, _, _ in run.rows["q"]]
    run.append([], 100)
    run.step()
    late = [start for start, _, _ in run.rows["q"]][len(early) :]
    assert early == [5]
    assert sorted(late) == [0, 7, 25]
