"""Rows that were not computed: every answer that differs by that lies within an error of its query, given before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from cluster.fjord.batch import NEVER
from cluster.fjord.exchange import MicroBatchControl, merged_control
from cluster.fjord.stream_scan import RowsInMemory
from cluster.fjord.upstream_dataflow import UpstreamDataflow
from cluster.local.engine import Arrival, LocalEngine, MemoryTables, RelationRows
from cluster.physical.nodes import Host
from cluster.plan.epoch import Plan, PlannedQuery
from tests.cluster.local.host_cases import ARRIVING, STATIC, frame, planned, relation_frame

Rows = list[tuple[int, int, str]]
REASON = "it took too long"


class LosingEngine(LocalEngine):
    """An engine of which fragments can be stopped, next to the scans or in the buckets."""

    upstream: Mapping[str, str] = {}
    behind: Mapping[str, str] = {}

    def _dataflow(self, *arguments: Any) -> UpstreamDataflow:
        found = super()._dataflow(*arguments)
        for owner, reason in self.upstream.items():
            found._dataflow.stop(owner, reason)
        return found


ALWAYS_TAKEN = {"average", "intervals-that-overlap", "pattern", "sessions-counted"}


@cache
def queries(part: int) -> tuple[PlannedQuery, ...]:
    """Each fifth of the cases, and some that reach far."""
    return tuple(each for at, each in enumerate(planned()) if at % 5 == part or each.name in ALWAYS_TAKEN)


def engine_of(part: int, clock: list[float]) -> LosingEngine:
    tables = {each.identity: [RelationRows(relation_frame(name))] for name, each in STATIC.items()}
    engine = LosingEngine(
        Plan(1, queries(part)), buckets=2, tables=lambda: MemoryTables(tables), clock=lambda: clock[0]
    )
    process = engine._host.process
    engine._host.process = lambda *arguments: process(*arguments, stopped=engine.behind)  # type: ignore[method-assign]
    return engine


def run(
    part: int, lost: set[int], where: str = "behind", *, forgetful: bool = False
) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Return the answers, and the errors, of cases if all fragments are stopped in some micro-batches."""
    clock = [0.0]
    engine = engine_of(part, clock)
    answers: dict[str, Rows] = {}
    errors: dict[str, Rows] = {}
    every = {each.identity: REASON for host in Host for each in engine._fragments[host]}
    for number, (batch, watermark_us) in enumerate(ARRIVING):
        clock[0] += 1.0
        if forgetful:
            engine.forget()
        stopped = every if number in lost else {}
        engine.upstream, engine.behind = ({}, stopped) if where == "behind" else (stopped, {})
        pieces = {
            name: Arrival(tuple(RowsInMemory(frame(name, rows)) for rows in (came[:4], came[4:]) if rows), watermark_us)
            for name, came in batch.items()
        }
        for query, start, end, kind, row in engine.run(pieces, parts=2).rows.iter_rows():
            (errors if kind == "error" else answers).setdefault(query, []).append((start, end, row))
    return answers, errors


def differing(one: Rows, other: Rows) -> Iterator[tuple[int, int]]:
    """Yield intervals in which two answers have different rows; reals may differ in their last digits."""
    changes: dict[int, Counter[str]] = {}
    for sign, rows in ((1, one), (-1, other)):
        for start, end, row in rows:
            changes.setdefault(start, Counter())[text_of(row)] += sign
            changes.setdefault(end, Counter())[text_of(row)] -= sign
    more: Counter[str] = Counter()
    for since, until in pairwise([*sorted(changes), NEVER]):
        for row, count in changes[since].items():
            more[row] += count
            if not more[row]:
                del more[row]
        if more:
            yield since, until


@cache
def text_of(row: str) -> str:
    values = msgspec.json.decode(row)
    return repr({name: round(each, 6) if isinstance(each, float) else each for name, each in values.items()})


def stateless(part: int) -> set[str]:
    fragments = engine_of(part, [0.0])._fragments[Host.STATELESS]
    return {each.query for fragment in fragments for each in fragment.subscribers}


@pytest.mark.parametrize(("part", "where", "lost", "forgetful"), [
    (0, "upstream", {0, 1, 2}, False), (1, "upstream", {2}, True), (2, "behind", {0}, True),
    (3, "behind", {0, 1, 2}, False), (4, "behind", {3}, True),
])  # fmt: skip
def test_answers_that_lack_rows_are_within_an_error(part: int, where: str, lost: set[int], forgetful: bool) -> None:
    exact, none = run(part, set())
    assert not none
    answers, errors = run(part, lost, where, forgetful=forgetful)
    wrong = {}
    for query, rows in exact.items():
        named = errors.get(query, [])
        outside = [
            (since, until)
            for since, until in differing(rows, answers.get(query, []))
            if not any(start <= since and until <= end for start, end, _ in named)
        ]
        if outside and not (forgetful and query in stateless(part)):  # what is not named yet goes with their processes
            wrong[query] = outside, [(start, end) for start, end, _ in named]
    assert not wrong
    assert len(errors) > len(exact) / 2
    assert all(row == f'"{REASON}"' for rows in errors.values() for _, _, row in rows)


def test_what_is_lost_in_parts_of_a_micro_batch_is_united() -> None:
    parts = [MicroBatchControl(1, 1, {}, lost_us=each) for each in ({}, {"q": (5, 9), "r": (1, 1)}, {"q": (3, 4)})]
    assert merged_control(parts).lost_us == {"q": (3, 9), "r": (1, 1)}


def test_what_lacks_rows_is_named_no_further_than_it_reaches() -> None:
    """A window of 20 us that slides by 10 us; its panes end up to 10 us behind their tuples."""
    _, errors = run(0, {1})
    stamps = [at for at, _ in ARRIVING[1][0]["traffic"]]
    ((start, end, _),) = errors["average"]
    assert min(stamps) - 10 <= start
    assert end <= max(stamps) + 10 + 20 + 10
