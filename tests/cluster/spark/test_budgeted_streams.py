"""Answers are the same whether old rows of streams are dropped as early as possible or kept.

    versions    1    2    3    4    5      all rows are dropped that no query has to read any more
    read             |                     micro-batches, crashes and queries with SINCE come in between
"""  # fmt: skip

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cluster.physical.lowering import lower
from cluster.physical.nodes import Host
from cluster.service.catalog.stream_settings import ReadProgress
from cluster.spark.offsets import SparkPositions, from_spark
from cluster.storage.budgets import Budget
from cluster.storage.compaction import Compaction
from cluster.storage.stream_retention import StreamRetention
from tests.cluster.spark.reader_run import ReaderRun, begins, coverage
from tests.cluster.spark.test_positions import lay

QUERIES = {
    "rows": "SELECT sensor, speed FROM traffic",
    "counts": "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 10 US SLIDE 5 US) GROUP BY sensor",
}
BACK = "SELECT sensor, speed FROM traffic SINCE 15 US AGO"
TOTALS_BACK = "SELECT COUNT(*) AS n FROM traffic SINCE 15 US AGO WINDOW(RANGE 10 US SLIDE 5 US)"


class Budgeted:
    """Drops all rows that may be dropped, as a cluster with a budget of no bytes does."""

    def __init__(self, run: ReaderRun, folder: Path) -> None:
        self._run = run
        self._table = run.tables["traffic"]
        self._checkpoint = folder / "checkpoint"
        self._positions = SparkPositions(self._checkpoint, run.plans)
        reading = ReadProgress(self._positions, lambda: lower(run.plan), lambda _: self._table.root)
        self._table.retention = StreamRetention(lambda: Budget(age_us=1), lambda: reading("traffic"))

    def look_after(self) -> None:
        for host in Host:
            offset = from_spark(self._run.offsets[host])
            lay(self._checkpoint, host, [offset], done=int(offset.epoch > 0))
        self._table._drop_old(self._table.position().watermark_us, 0)
        Compaction(needed=lambda: self._positions("traffic")).run(self._table._appended)

    @property
    def kept_from_us(self) -> int | None:
        return self._table.retention.kept_from_us


@settings(max_examples=5, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_dropping_rows_beyond_the_budget_changes_no_answer(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folders = [tmp_path_factory.mktemp(name) for name in ("all", "budgeted")]
    runs = [ReaderRun(folder, history_rows=6, max_rows=12) for folder in folders]
    budgeted = Budgeted(runs[1], folders[1])
    for run in runs:
        for name, sql in QUERIES.items():
            run.add(name, sql)
    watermark, with_history = 0, set[str]()
    for number in range(data.draw(st.integers(2, 5), label="rounds")):
        for _ in range(data.draw(st.integers(0, 3), label="versions")):
            ahead = data.draw(st.lists(st.integers(0, 8), max_size=5), label="ahead")
            rows = [(watermark + each, "ab"[each % 2], each) for each in ahead]
            watermark += data.draw(st.integers(0, 8), label="passes")
            for run in runs:
                run.append("traffic", rows, watermark)
        if data.draw(st.booleans(), label="has history"):
            kept_us = budgeted.kept_from_us
            for sql in (BACK, TOTALS_BACK):
                name = f"back{number}{sql is BACK}"
                query = [run.add(name, sql) for run in runs][1]
                if kept_us is not None and kept_us > begins(query, "traffic"):
                    with_history.add(name)
        if data.draw(st.booleans(), label="is looked after"):
            budgeted.look_after()
        for _ in range(data.draw(st.integers(0, 2), label="micro-batches")):
            crash = data.draw(st.booleans(), label="crash")
            for run in runs:
                run.step(crash=crash)
        if data.draw(st.booleans(), label="is looked after again"):
            budgeted.look_after()
    for run in runs:
        run.append("traffic", [], watermark + 100)
        run.drain()
    budgeted.look_after()
    for name in (runs[0].rows.keys() | runs[1].rows.keys()) - with_history:
        assert coverage(runs[1].rows.get(name, [])) == coverage(runs[0].rows.get(name, [])), name


def test_rows_beyond_the_budget_are_dropped_while_queries_run(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path)
    budgeted = Budgeted(run, tmp_path)
    run.add("rows", QUERIES["rows"])
    for at in range(0, 100, 10):
        run.append("traffic", [(at, "a", 1)], at + 10)
        run.drain()
        budgeted.look_after()
    assert run.tables["traffic"].retention.dropped.rows >= 8
    assert len(run.rows["rows"]) == 10
