"""A fragment that is stopped in a micro-batch: its queries get an error, and go on later; others lose nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.fjord.exchange import Sent
from cluster.fjord.saved_state import HEADING
from cluster.fjord.upstream_dataflow import UpstreamDataflow
from cluster.local import engine
from cluster.local.engine import LocalEngine
from cluster.physical.nodes import Host
from cluster.plan.epoch import Plan
from cluster.spark import upstream
from tests.cluster.spark.hosted_run import Run, queries

KINDS = "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 40 MICROSECONDS SLIDE 10 MICROSECONDS) GROUP BY sensor"
PAIRS = (
    "SELECT a.sensor, b.speed FROM traffic AS a WINDOW(RANGE 5 MICROSECONDS),"
    " traffic AS b WINDOW(RANGE 5 MICROSECONDS) WHERE a.sensor = b.sensor AND a.speed < b.speed"
)
FAST = "SELECT sensor, speed FROM traffic WHERE speed > 3"
REASON = "it took too much"


class Stopping:
    """A host of buckets that stops fragments as it is asked to."""

    def __init__(self, engine: LocalEngine) -> None:
        self._host: Any = engine._host
        self.stopped: Mapping[str, str] = {}
        engine._host = self  # type: ignore[assignment] # it stands in

    def process(self, *arguments: Any) -> Any:
        return self._host.process(*arguments, stopped=self.stopped)


def feed(run: Run, step: int) -> None:
    begin = 10 * step
    run.append([(begin + at, "ab"[at % 2], at) for at in range(10)], begin + 10)


@pytest.mark.parametrize("forgets", [False, True], ids=["same worker", "another worker"])
def test_a_fragment_that_is_stopped_in_its_buckets_goes_on_and_others_lose_nothing(
    tmp_path: Path, *, forgets: bool
) -> None:
    plan = Plan(1, queries(kinds=KINDS, pairs=PAIRS))
    stopped, other = Run(tmp_path / "stopped", plan), Run(tmp_path / "other", plan)
    stopping = Stopping(stopped.engine)
    ((fragment, _), *_) = [
        (each.identity, each)
        for each in stopped.engine._fragments[Host.STATEFUL]
        if each.subscribers[0].query == "kinds"
    ]
    for step in range(1, 9):
        feed(stopped, step)
        feed(other, step)
        stopping.stopped = {fragment: REASON} if step == 4 else {}
        if forgets:
            stopped.engine._kept.clear()
        stopped.step()
        other.step()
    assert stopped.rows["pairs"] == other.rows["pairs"]
    assert set(stopped.errors) == {"kinds"}
    assert set(stopped.errors["kinds"]) == {REASON}
    lost = {(start, row["sensor"]): row["n"] for start, _, row in other.rows["kinds"]}
    for start, _, row in stopped.rows["kinds"]:
        at = lost[start, row["sensor"]]
        inside = 40 <= start < 90  # a window that holds tuples of the micro-batch that was left out
        assert row["n"] == (at - 5 if inside and row["n"] != at else at)
    assert {each for each in lost if each[0] < 39 or each[0] > 89} <= {
        (start, row["sensor"]) for start, _, row in stopped.rows["kinds"]
    }, "what was kept before is still there, and all is answered again afterwards"


def test_what_is_stopped_next_to_a_scan_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(1, queries(fast=FAST, kinds=KINDS))
    run, other = Run(tmp_path / "stopped", plan), Run(tmp_path / "other", plan)
    (fragment,) = (each.identity for each in run.engine._fragments[Host.STATELESS])
    made: list[UpstreamDataflow] = []

    def dataflow(*arguments: Any) -> UpstreamDataflow:
        found = UpstreamDataflow(*arguments, {fragment: REASON} if stopping else {})
        if stopping:
            made.append(found)
        return found

    monkeypatch.setattr(engine, "UpstreamDataflow", dataflow)
    for step in range(1, 7):
        for each in (run, other):
            feed(each, step)
            stopping = each is run and step == 3
            each.step()
    ran = [one for each in made for one in each.counters.values() if one.owner == fragment and one.transitions]
    assert made
    assert ran == []
    assert run.errors == {"fast": [REASON]}
    assert run.rows["kinds"] == other.rows["kinds"]
    assert run.rows["fast"] == [row for row in other.rows["fast"] if not 30 <= row[0] < 40]


def test_a_fragment_whose_state_is_too_large_answers_nothing_and_keeps_what_it_had(tmp_path: Path) -> None:
    plan = Plan(1, queries(kinds=KINDS, pairs=PAIRS))
    run, other = Run(tmp_path / "bounded", plan), Run(tmp_path / "other", plan)
    fragments = {each.subscribers[0].query: each.identity for each in run.engine._fragments[Host.STATEFUL]}
    host = run.engine._host
    for step in range(1, 9):
        for each in (run, other):
            feed(each, step)
        if step == 4:
            kept = [dict(store) for store in run.engine.stores]
            host._most_value_bytes = 1
        else:
            host._most_value_bytes = 0
        run.step()
        other.step()
        if step == 4:
            assert set(host.too_large) <= set(fragments.values())
            assert host.too_large
            for store, before in zip(run.engine.stores, kept, strict=True):
                assert all(store[name] == value for name, value in before.items() if name != HEADING)
    assert set(run.errors) == {"kinds", "pairs"}
    assert all("in one operator and bucket, and the limit is 1 bytes" in each for each in run.errors["kinds"])
    seen = [(start, row["sensor"]) for start, _, row in run.rows["kinds"]]
    assert len(seen) == len(set(seen)), "nothing is answered twice"
    assert {start for start, _ in seen if start > 89} == {
        start for start, _, row in other.rows["kinds"] if start > 89
    }, "and it goes on"


def test_a_fragment_that_sends_too_much_to_the_buckets_is_named_with_the_size() -> None:
    sent = Sent((), {"x": 1, "y": 1}, {}, {}, {"x": "large@1", "x2": "large@1", "y": "small@2"}, {}, {})
    envelopes = [(0, "x", bytes(60)), (1, "x2", bytes(60)), (0, "y", bytes(100))]
    found = upstream._too_large(sent, envelopes, 100)
    assert list(found) == ["large@1"]
    assert "take 120 bytes, and the limit is 100 bytes" in found["large@1"]
    assert upstream._too_large(sent, envelopes, 0) == {}
