"""A source that is idle waits for what comes, and answers at once when it is asked the first time."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from cluster.operators import Source
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.spark import source
from cluster.spark.source import (
    AWAITED_SECONDS,
    LOOK_SECONDS,
    RESTING_AFTER_SECONDS,
    RESTING_TIMES,
    FjordReader,
    SourceOptions,
)
from protocols.wire.streams import FieldType

LIMIT = ReadMaxRows(1_000)


class Sleeps:
    """Stands for the clock: what happens in each sleep, and how long they were."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lengths: list[float] = []
        self.happens = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.lengths.append(seconds)
        self.happens.pop(len(self.lengths), lambda: None)()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    found = Sleeps()
    monkeypatch.setattr(source, "time", found)
    return found


def plan(epoch: int, queries: int):
    node = Source("traffic", (Column("speed", FieldType.REAL),))
    return lower(Plan(epoch, tuple(PlannedQuery(f"q{each}", each, node) for each in range(queries)), {"traffic": 0}))


@pytest.fixture
def files(tmp_path: Path) -> PlanFiles:
    found = PlanFiles(tmp_path / "plans")
    found.write(plan(1, 1))
    return found


def reader_of(folder: Path) -> FjordReader:
    return FjordReader(SourceOptions(str(folder), str(folder / "plans"), 1, 1, 10, host=Host.STATELESS))


def test_what_comes_while_it_waits_is_read_at_the_next_look(tmp_path, files, sleeps):
    reader = reader_of(tmp_path)
    begin = reader.latestOffset(reader.initialOffset(), LIMIT)
    assert reader.latestOffset(begin, LIMIT) == begin
    assert sleeps.lengths == []
    sleeps.happens[3] = lambda: files.write(plan(2, 2))
    assert reader.latestOffset(begin, LIMIT)["epoch"] == 2
    assert sleeps.lengths == [LOOK_SECONDS] * 3


def test_it_waits_no_longer_than_it_should(tmp_path, files, sleeps):
    reader = reader_of(tmp_path)
    begin = reader.latestOffset(reader.initialOffset(), LIMIT)
    for _ in range(3):
        assert reader.latestOffset(begin, LIMIT) == begin
    assert sum(sleeps.lengths) == pytest.approx(2 * AWAITED_SECONDS, abs=2 * LOOK_SECONDS)


def test_after_a_micro_batch_it_answers_at_once_again(tmp_path, files, sleeps):
    """What waits until everything is answered is not held up."""
    reader = reader_of(tmp_path)
    begin = reader.latestOffset(reader.initialOffset(), LIMIT)
    reader.latestOffset(begin, LIMIT)
    files.write(plan(2, 2))
    begin = reader.latestOffset(begin, LIMIT)
    assert begin["epoch"] == 2
    assert reader.latestOffset(begin, LIMIT) == begin
    assert sleeps.lengths == []


def test_after_a_while_without_anything_to_do_it_looks_less_often_until_something_comes(tmp_path, files, sleeps):
    reader = reader_of(tmp_path)
    begin = reader.latestOffset(reader.initialOffset(), LIMIT)
    reader.latestOffset(begin, LIMIT)
    sleeps.now += RESTING_AFTER_SECONDS - 0.001
    assert reader.latestOffset(begin, LIMIT) == begin
    assert set(sleeps.lengths) == {LOOK_SECONDS}
    sleeps.lengths.clear()
    assert reader.latestOffset(begin, LIMIT) == begin
    assert set(sleeps.lengths) == {LOOK_SECONDS * RESTING_TIMES}
    assert sum(sleeps.lengths) == pytest.approx(AWAITED_SECONDS * RESTING_TIMES, abs=LOOK_SECONDS * RESTING_TIMES)
    sleeps.happens[len(sleeps.lengths) + 2] = lambda: files.write(plan(2, 2))
    begin = reader.latestOffset(begin, LIMIT)
    assert begin["epoch"] == 2
    sleeps.lengths.clear()
    for _ in range(2):
        assert reader.latestOffset(begin, LIMIT) == begin
    assert set(sleeps.lengths) == {LOOK_SECONDS}


def test_tables_elsewhere_are_looked_at_less_often(tmp_path, files, sleeps, monkeypatch):
    monkeypatch.setattr(source, "is_local", lambda _: False)
    reader = reader_of(tmp_path)
    begin = reader.latestOffset(reader.initialOffset(), LIMIT)
    for _ in range(2):
        assert reader.latestOffset(begin, LIMIT) == begin
    assert set(sleeps.lengths) == {AWAITED_SECONDS}
