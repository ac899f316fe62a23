"""Runs histories on the hosts, as Spark would: several streams, relations that change, queries that come and go."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from cluster.fjord.answers import COUNTERS
from cluster.fjord.scalars import POLARS_TYPES
from cluster.language.algebra import Node
from cluster.plan.epoch import Plan, PlanFiles, PlannedQuery
from cluster.spark import downstream, stateless
from cluster.spark.downstream import BucketHost, Envelope
from cluster.spark.envelopes import unpack_rows
from cluster.spark.upstream import run_upstream
from cluster.spark.upstream_task import UpstreamTask
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from tests.cluster.oracle.relation_world import ALL_RELATIONS, SCHEMAS, STATIC, STREAMS, Arrival, History, versions_of
from tests.cluster.spark.hosted_run import BUCKETS, Memory
from tests.cluster.spark.stateless_run import answered, slices

FAILURE = "cannot be read"


@dataclass(frozen=True)
class Asked:
    """A query: its plan, and the first and last step in which it runs."""

    name: str
    node: Node
    first: int
    last: int

    @property
    def planned(self) -> PlannedQuery:
        return PlannedQuery(self.name, 1000 * (self.first + 1) + int(self.name[1:]), self.node)


@dataclass
class Answers:
    """What the hosts said: rows with their intervals and errors, by query; errors with the step."""

    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    errors: dict[str, list[tuple[int, str]]] = field(default_factory=dict)


def run_history(folder: Path, history: History, queries: list[Asked]) -> Answers:
    """Run a history step by step."""
    return _Hosts(folder, history, queries).run()


class _Hosts:
    def __init__(self, folder: Path, history: History, queries: list[Asked]) -> None:
        self._folder = folder
        self._history = history
        self._queries = queries
        self._plans = PlanFiles(folder / "plans")
        self._tables = {
            name: StreamTable(str(folder / "streams" / name), schema) for name, schema in SCHEMAS.items()
        }  # fmt: skip
        self._read = dict.fromkeys(STREAMS, 0)
        self._versions = {
            name: RelationVersions(folder / "relations" / relation.identity) for name, relation in STATIC.items()
        }
        self._coming = {name: iter(versions) for name, versions in versions_of(history).items()}
        self._stores = [Memory() for _ in range(BUCKETS)]
        self._answers = Answers()
        self._passed_us: dict[str, int] = {}

    def run(self) -> Answers:
        for number, step in enumerate(self._history.steps):
            running = [each.planned for each in self._queries if each.first <= number <= each.last]
            self._plans.write(Plan(number + 1, tuple(running)))
            for event in step.events:
                if isinstance(event, Arrival):
                    self._append(event)
                else:
                    self._change(event.relation)
            for name, watermark in step.watermarks.items():
                self._tables[name].append([], StreamPosition(watermark, {}), {})
            if step.crash:
                self._step(number, step.watermarks, step.parts, forget=step.forget, lost=True)
                downstream._kept.clear()
            self._step(number, step.watermarks, step.parts, forget=step.forget, lost=False)
        return self._answers

    def _append(self, arrival: Arrival) -> None:
        kinds = STREAMS[arrival.stream]
        table = pl.DataFrame(
            {
                "fjord_start_us": [stamp for stamp, _ in arrival.rows],
                "fjord_mote": ["m"] * len(arrival.rows),
                "fjord_default_rate": [True] * len(arrival.rows),
                **{name: [row[place] for _, row in arrival.rows] for place, name in enumerate(kinds)},
            },
            schema_overrides={
                "fjord_start_us": pl.Int64,
                "fjord_default_rate": pl.Boolean,
                **{name: POLARS_TYPES[kind] for name, kind in kinds.items()},
            },
        ).to_arrow()
        stored = self._tables[arrival.stream]
        before = stored.position().watermark_us
        stored.append([table.cast(arrow_schema(SCHEMAS[arrival.stream]))], StreamPosition(before, {}), {})

    def _change(self, relation: str) -> None:
        version, versions = next(self._coming[relation]), self._versions[relation]
        if version.rows is None and versions.latest():
            versions.commit_failure(f"{relation} {FAILURE}", version.begins)
            return
        schema = {name: POLARS_TYPES[kind] for name, kind in ALL_RELATIONS[relation].items()}
        rows = pl.DataFrame([*(version.rows or ())], schema=schema, orient="row")
        versions.prepare(rows)
        versions.commit(rows, version.begins)

    def _step(self, number: int, watermarks: Mapping[str, int], parts: int, *, forget: bool, lost: bool) -> None:
        files = [
            (name, file.path)
            for name, table in self._tables.items()
            for version in range(self._read[name] + 1, table.version + 1)
            for file in table.log.read(version).files
        ]
        relations = {STATIC[name].identity: versions.latest() for name, versions in self._versions.items()}
        folders = (str(self._plans.folder), str(self._folder / "streams"))
        envelopes: dict[int, list[Envelope]] = {}
        for origin in range(parts):
            task = UpstreamTask(
                *folders, number + 1, number, BUCKETS, origin, tuple(files[origin::parts]), dict(watermarks),
                str(self._folder / "relations"), relations,
            )  # fmt: skip
            for batch in run_upstream(task):
                for row in batch.to_pylist():
                    envelopes.setdefault(row["bucket"], []).append(Envelope(row["edge"], row["origin"], row["payload"]))
        if forget:
            downstream._kept.clear()
            stateless._hosted.cache_clear()
        without_state, _ = answered(slices(task, self._tables, self._passed_us, parts))
        before = copy.deepcopy(self._stores)
        host = BucketHost(str(self._plans.folder), BUCKETS, "run", str(self._folder / "relations"))
        answers = [
            unpack_rows(output.payload)
            for bucket in range(BUCKETS)
            for output in host.process(bucket, envelopes.get(bucket, []), self._stores[bucket])
        ]
        if lost:
            self._stores = before
            return
        self._read = {name: table.version for name, table in self._tables.items()}
        self._passed_us |= watermarks
        for rows in (*answers, without_state):
            for query, start, end, kind, row in rows.iter_rows():
                if kind == "error":
                    self._answers.errors.setdefault(query, []).append((number, msgspec.json.decode(row)))
                elif kind != COUNTERS:
                    values = tuple(msgspec.json.decode(row).values())
                    self._answers.rows.setdefault(query, []).append((start, end, *values))
