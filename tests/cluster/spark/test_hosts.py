"""The hosts without Spark: a stream cut anyhow, workers that forget, micro-batches that are repeated."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.language.algebra import Node
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.plan.epoch import Plan, PlanFiles, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.spark import downstream
from cluster.spark.downstream import BucketHost, Envelope
from cluster.spark.envelopes import CONTROL, split_by_bucket, unpack_rows
from cluster.spark.upstream import UpstreamTask, run_upstream
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from protocols.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema("traffic", (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.INTEGER)))
MEANS = (
    "SELECT sensor, SUM(speed) AS total FROM traffic WINDOW(RANGE 20 MICROSECONDS SLIDE 10 MICROSECONDS)"
    " GROUP BY sensor"
)
SLOW = "SELECT sensor, speed FROM traffic WHERE speed < 3"
BUCKETS = 3


def plan_node(sql: str) -> Node:
    return rewrite(translate(sql, Catalog.of([TRAFFIC])).node).node


@dataclass
class Memory:
    """A bucket's state store."""

    values: dict[str, bytes] = field(default_factory=dict)

    def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    def put(self, name: str, value: bytes) -> None:
        self.values[name] = value

    def remove(self, name: str) -> None:
        del self.values[name]

    def names(self) -> Iterable[str]:
        return list(self.values)


class Run:
    """Feeds a table's versions to hosts, micro-batch by micro-batch, as Spark would."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plans = PlanFiles(folder / "plans")
        self.plans.write(plan)
        self.epoch = plan.epoch
        self.table = StreamTable(str(folder / "streams" / "traffic"), TRAFFIC)
        self.stores = [Memory() for _ in range(BUCKETS)]
        self.rows: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
        self.errors: dict[str, list[str]] = {}
        self._read = 0

    def append(self, rows: list[tuple[int, str, int]], watermark: int) -> None:
        table = pl.DataFrame(
            {
                "fjord_start_us": [at for at, _, _ in rows],
                "fjord_mote": ["m"] * len(rows),
                "fjord_default_rate": [True] * len(rows),
                "sensor": [sensor for _, sensor, _ in rows],
                "speed": [speed for _, _, speed in rows],
            },
            schema_overrides={"fjord_start_us": pl.Int64, "speed": pl.Int64, "fjord_default_rate": pl.Boolean},
        ).to_arrow()
        self.table.append([table.cast(arrow_schema(TRAFFIC))], StreamPosition(watermark, {}), {})

    def step(self, *, epoch: int | None = None, parts: int = 1, keep: bool = True) -> None:
        """Run one micro-batch over everything new, in so many parts; `keep` False loses what it did, as a crash."""
        previous, current = self.epoch, epoch if epoch is not None else self.epoch
        files: list[str] = []
        for version in range(self._read + 1, self.table.version + 1):
            files.extend(file.path for file in self.table.log.read(version).files)
        watermark = self.table.position().watermark_us
        envelopes: dict[int, list[Envelope]] = {}
        for origin in range(parts):
            task = UpstreamTask(
                str(self.plans.folder), str(self.folder / "streams"), current, previous, BUCKETS, origin,
                tuple(("traffic", path) for path in files[origin::parts]),
                {} if watermark is None else {"traffic": watermark},
            )  # fmt: skip
            for batch in run_upstream(task):
                for row in batch.to_pylist():
                    envelopes.setdefault(row["bucket"], []).append(Envelope(row["edge"], row["origin"], row["payload"]))
        before = copy.deepcopy(self.stores)
        answers = [
            (bucket, output)
            for bucket in range(BUCKETS)
            for output in BucketHost(str(self.plans.folder), BUCKETS, "run").process(
                bucket, envelopes[bucket], self.stores[bucket]
            )
        ]
        if not keep:
            self.stores = before
            return
        self._read, self.epoch = self.table.version, current
        for _, output in answers:
            for start, end, kind, row in unpack_rows(output.payload).iter_rows():
                if kind == "error":
                    self.errors.setdefault(output.query, []).append(msgspec.json.decode(row))
                else:
                    self.rows.setdefault(output.query, []).append((start, end, msgspec.json.decode(row)))


def queries(**sql: str) -> tuple[PlannedQuery, ...]:
    return tuple(PlannedQuery(name, 1, plan_node(text)) for name, text in sql.items())


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
                downstream._kept.clear()
            run.step(parts=data.draw(st.integers(1, 3)))
    run.append([], 200)
    run.step()
    totals = [(start, end, row["sensor"], row["total"]) for start, end, row in run.rows.get("means", [])]
    assert len(set(totals)) == len(totals)
    assert set(totals) == expected_totals(rows, 120)
    slow = [(start, row["sensor"], row["speed"]) for start, _, row in run.rows.get("slow", [])]
    assert sorted(slow) == sorted(row for row in rows if row[2] < 3)
    assert [start for start, _, _ in slow] == sorted(start for start, _, _ in slow)


def test_a_query_that_joins_and_one_that_leaves_disturb_nobody(tmp_path: Path) -> None:
    first, second = queries(means=MEANS)[0], PlannedQuery("slow", 2, plan_node(SLOW))
    run = Run(tmp_path, Plan(1, (first,)))
    run.plans.write(Plan(2, (first, second)))
    run.plans.write(Plan(3, (second,)))
    rows = [(at, "a", 1) for at in range(0, 60, 5)]
    for low, high, epoch in ((0, 23, 1), (23, 41, 2), (41, 60, 3)):
        run.append([row for row in rows if low <= row[0] < high], high)
        run.step(epoch=epoch)
    totals = {(start, row["total"]) for start, _, row in run.rows["means"]}
    assert totals == {(9, 2), (19, 4), (29, 4), (39, 4)}, "all that was complete when it left"
    assert [start for start, _, _ in run.rows["slow"]] == [25, 30, 35, 40, 45, 50, 55]
    names = {name.split("@")[0] for store in run.stores for name in store.values if name}
    assert names == {"slow"}, "the state of a dropped query is removed"


def test_a_query_that_fails_answers_an_error_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cluster.fjord.operators.filtering import Filter

    def fail(self: Filter, port: int, batch: Any) -> Any:
        raise ValueError("no such thing")

    monkeypatch.setattr(Filter, "transition", fail)
    run = Run(tmp_path, Plan(1, queries(means=MEANS, slow=SLOW)))
    run.append([(at, "a", 1) for at in range(30)], 30)
    run.step()
    assert [len(run.errors[query]) for query in run.errors] == [1]
    assert "no such thing" in run.errors["slow"][0]
    assert {(start, row["total"]) for start, _, row in run.rows["means"]} == {(9, 10), (19, 20), (29, 20)}


def test_every_bucket_hears_of_every_micro_batch(tmp_path: Path) -> None:
    run = Run(tmp_path, Plan(1))
    task = UpstreamTask(str(run.plans.folder), str(tmp_path / "streams"), 1, 0, BUCKETS, 0, (), {})
    (batch,) = run_upstream(task)
    assert [(row["bucket"], row["edge"]) for row in batch.to_pylist()] == [
        (bucket, CONTROL) for bucket in range(BUCKETS)
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
