"""Runs histories on the local engine: several streams, relations that change, queries that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from cluster.fjord.answers import ERROR
from cluster.fjord.batch import START
from cluster.fjord.relation_tables import RelationTables
from cluster.fjord.scalars import POLARS_TYPES
from cluster.fjord.stream_scan import RowsInMemory
from cluster.local import engine
from cluster.operators import Node
from cluster.physical.rules import folded_queries
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.storage.relation_versions import RelationVersions
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from tests.cluster.oracle.relation_world import ALL_RELATIONS, STATIC, STREAMS, Arrival, History, Step, versions_of

BUCKETS = 3
LAG_US = 2
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
    """What the hosts answered: rows with their intervals and errors, by query; errors with the step."""

    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    errors: dict[str, list[tuple[int, str]]] = field(default_factory=dict)


def run_history(folder: Path, history: History, queries: list[Asked]) -> Answers:
    """Run a history step by step."""
    with cutting_after(LAG_US):
        return _Hosts(folder, history, queries).run()


@contextmanager
def cutting_after(lag_us: int) -> Iterator[None]:
    """Cut rows that wait once they lag so far behind: histories are shorter than the second of running plans."""
    plain = folded_queries.nodes_of
    folded_queries.nodes_of = partial(plain, lag_us=lag_us)
    folded_queries._nodes.cache_clear()
    try:
        yield
    finally:
        folded_queries.nodes_of = plain
        folded_queries._nodes.cache_clear()


class _Hosts:
    def __init__(self, folder: Path, history: History, queries: list[Asked]) -> None:
        self._history = history
        self._queries = queries
        self._arrived: dict[str, list[RowsInMemory]] = {name: [] for name in STREAMS}
        self._versions = {
            name: RelationVersions(folder / "relations" / relation.identity) for name, relation in STATIC.items()
        }
        self._coming = {name: iter(versions) for name, versions in versions_of(history).items()}
        self._answers = Answers()
        tables = partial(RelationTables, str(folder / "relations"), {}, buckets=BUCKETS)
        self._engine = engine.LocalEngine(Plan(0), buckets=BUCKETS, tables=tables)

    def run(self) -> Answers:
        for number, step in enumerate(self._history.steps):
            running = [each.planned for each in self._queries if each.first <= number <= each.last]
            plan = Plan(number + 1, tuple(running))
            for event in step.events:
                if isinstance(event, Arrival):
                    self._append(event)
                else:
                    self._change(event.relation)
            if step.crash:
                self._step(number, plan, step, lost=True)
                self._engine.forget()
            self._step(number, plan, step, lost=False)
        return self._answers

    def _append(self, arrival: Arrival) -> None:
        kinds = STREAMS[arrival.stream]
        rows = pl.DataFrame(
            [(stamp, True, *row) for stamp, row in arrival.rows],
            schema={START: pl.Int64, DEFAULT_RATE_COLUMN: pl.Boolean}
            | {name: POLARS_TYPES[kind] for name, kind in kinds.items()},
            orient="row",
        )
        self._arrived[arrival.stream].append(RowsInMemory(rows))

    def _change(self, relation: str) -> None:
        version, versions = next(self._coming[relation]), self._versions[relation]
        if version.rows is None and versions.latest():
            versions.commit_failure(f"{relation} {FAILURE}", version.begins)
            return
        schema = {name: POLARS_TYPES[kind] for name, kind in ALL_RELATIONS[relation].items()}
        rows = pl.DataFrame([*(version.rows or ())], schema=schema, orient="row")
        versions.prepare(rows)
        versions.commit(rows, version.begins)

    def _step(self, number: int, plan: Plan, step: Step, *, lost: bool) -> None:
        relations = {STATIC[name].identity: versions.latest() for name, versions in self._versions.items()}
        if step.forget:
            self._engine.forget()
        before = self._engine.checkpoint()
        arrivals = {
            name: engine.Arrival(tuple(rows), step.watermarks.get(name)) for name, rows in self._arrived.items()
        }
        answered = self._engine.run(arrivals, plan=plan, parts=step.parts, relations=relations)
        if lost:
            self._engine.restore(before)
            return
        self._arrived = {name: [] for name in STREAMS}
        for query, start, end, kind, row in answered.rows.iter_rows():
            if kind == ERROR:
                self._answers.errors.setdefault(query, []).append((number, msgspec.json.decode(row)))
            else:
                values = tuple(msgspec.json.decode(row).values())
                self._answers.rows.setdefault(query, []).append((start, end, *values))
