"""Operators that a worker keeps: over micro-batches, over epochs, and while other workers go on with their state."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from random import Random

import pytest

from cluster.fjord import hosted_fragment
from cluster.fjord.bucket_host import BucketHost, Kept
from cluster.fjord.operators.set_operations import Distinct
from cluster.fjord.saved_state import HEADING, read_heading
from cluster.physical.nodes import Host
from cluster.plan.epoch import Plan, PlannedQuery
from tests.cluster.spark.hosted_run import BUCKETS, Run, plan_node

MEANS = (
    "SELECT sensor, SUM(speed) AS total FROM traffic WINDOW(RANGE 20 MICROSECONDS SLIDE 10 MICROSECONDS)"
    " GROUP BY sensor"
)
KINDS = "SELECT DISTINCT speed FROM traffic WINDOW(RANGE 30 MICROSECONDS)"
PAIRS = (
    "SELECT a.sensor, b.speed FROM traffic AS a WINDOW(RANGE 5 MICROSECONDS),"
    " traffic AS b WINDOW(RANGE 5 MICROSECONDS) WHERE a.sensor = b.sensor AND a.speed < b.speed"
)


def planned(name: str, number: int, text: str) -> PlannedQuery:
    return PlannedQuery(name, number, plan_node(text))


class Workers:
    """A run whose micro-batches are done by one worker or the other; both keep what they have made."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.run = Run(folder, plan)
        self._engine = self.run.engine
        self._kept: tuple[Kept, ...] = (OrderedDict(), OrderedDict())
        self._hosts = [self._host(kept) for kept in self._kept]

    def _host(self, kept: Kept) -> BucketHost:
        engine = self._engine
        return BucketHost(lambda _: engine._fragments[Host.STATEFUL], BUCKETS, engine._tables, kept)

    def step(self, worker: int, *, epoch: int | None = None, keep: bool = True) -> None:
        self._engine._host = self._hosts[worker]
        self.run.step(epoch=epoch, keep=keep)

    def restart(self, worker: int) -> None:
        self._kept[worker].clear()


class Made:
    """Counts the fragments whose operators are made, by the query that they answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queries: list[str] = []
        make = hosted_fragment.add_behind

        def counted(dataflow, fragment, *rest):  # type: ignore[no-untyped-def] # handed on as they come
            self.queries.append("+".join(each.query for each in fragment.subscribers))
            return make(dataflow, fragment, *rest)

        monkeypatch.setattr(hosted_fragment, "add_behind", counted)


def test_an_epoch_makes_only_the_operators_that_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = planned("means", 1, MEANS), planned("kinds", 2, KINDS)
    more = planned("longer", 3, MEANS.replace("20 MICRO", "30 MICRO"))
    run = Run(tmp_path, Plan(1, (first,)))
    run.plans.write(Plan(2, (first, second)))
    run.plans.write(Plan(3, (first, second, more)))
    made = Made(monkeypatch)
    for epoch in (1, 2, 3):
        run.append([(at, "a", at % 3) for at in range(epoch * 20, epoch * 20 + 20)], epoch * 20 + 20)
        run.step(epoch=epoch)
        run.append([], epoch * 20 + 20)
        run.step()
    assert made.queries == [*["means"] * BUCKETS, "kinds", *["means+longer"] * BUCKETS], "in buckets that they have"
    totals = [(k - 1, sum(at % 3 for at in range(max(20, k - 20), k))) for k in range(30, 81, 10)]
    assert [(start, row["total"]) for start, _, row in run.rows["means"]] == totals
    assert [start for start, _, _ in run.rows["longer"]] == [69, 79], "from its epoch on"


def test_what_an_epoch_does_not_change_is_not_written(tmp_path: Path) -> None:
    first, second = planned("kinds", 1, KINDS), planned("means", 2, MEANS)
    run = Run(tmp_path, Plan(1, (first,)))
    run.plans.write(Plan(2, (first, second)))
    run.append([(at, "a", at % 3) for at in range(20)], 20)
    run.step()
    before = [dict(store) for store in run.engine.stores]
    assert any(len(store) > 1 for store in before)
    run.step(epoch=2)
    for store, old in zip(run.engine.stores, before, strict=True):
        assert all(store[name] is value for name, value in old.items() if name != HEADING)


@pytest.mark.parametrize("seed", range(6))
def test_any_worker_goes_on_from_where_the_last_one_was(tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    first, second = planned("means", 1, MEANS), planned("kinds", 2, KINDS)
    third, fourth = planned("pairs", 3, PAIRS), planned("longer", 4, MEANS.replace("20 MICRO", "40 MICRO"))
    plans = [
        Plan(1, (first,)), Plan(2, (first, second)), Plan(3, (first, second, third)),
        Plan(4, (first, second, third, fourth)), Plan(5, (first, third, fourth)), Plan(6, (second, third)),
    ]  # fmt: skip
    alone, workers = Run(tmp_path / "alone", plans[0]), Workers(tmp_path / "workers", plans[0])
    for plan in plans[1:]:
        alone.plans.write(plan)
        workers.run.plans.write(plan)
    at = 0
    for plan in plans:
        for number in range(4):
            epoch = None if number else plan.epoch
            rows = [(at + dice.randrange(10), dice.choice("abc"), dice.randrange(5)) for _ in range(dice.randrange(6))]
            at += 10
            for run in (alone, workers.run):
                run.append(sorted(rows), at)
            alone.step(epoch=epoch)
            if dice.random() < 0.2:
                workers.restart(dice.randrange(2))
            if dice.random() < 0.3:
                before = workers.run.engine.plan
                workers.step(dice.randrange(2), epoch=epoch, keep=False)
                assert workers.run.engine.plan == before
            workers.step(dice.randrange(2), epoch=epoch)
    assert alone.rows.keys() == {"means", "kinds", "pairs", "longer"}
    assert workers.run.rows == alone.rows
    assert [store.keys() for store in workers.run.engine.stores] == [store.keys() for store in alone.engine.stores]


def test_state_from_before_there_were_versions_is_continued(tmp_path: Path) -> None:
    first, second = planned("means", 1, MEANS), planned("kinds", 2, KINDS)
    runs = [Run(tmp_path / name, Plan(1, (first, second))) for name in ("old", "new")]
    for run in runs:
        run.plans.write(Plan(2, (first,)))
        run.append([(at, "abc"[at % 3], at % 4) for at in range(25)], 25)
        run.step()
    old, new = runs
    for store in old.engine.stores:
        store[HEADING] = bytes(range(16))
    old.engine.forget()
    for epoch, low in ((None, 25), (2, 50), (None, 75)):
        for run in runs:
            run.append([(at, "abc"[at % 3], at % 4) for at in range(low, low + 25)], low + 25)
            run.step(epoch=epoch)
    assert old.rows == new.rows
    assert [store.keys() for store in old.engine.stores] == [store.keys() for store in new.engine.stores]
    assert all(read_heading(store).versions for store in old.engine.stores)


def test_state_of_earlier_versions_is_kept_when_an_operator_fails_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, right = Run(tmp_path, Plan(1, (planned("kinds", 1, KINDS),))), Distinct.transition
    run.append([(at, "a", at % 3) for at in range(20)], 20)
    run.step()
    for store in run.engine.stores:
        store[HEADING] = bytes(range(16))
    run.engine.forget()
    with monkeypatch.context() as patch:
        patch.setattr(Distinct, "transition", lambda *_: 1 / 0)
        run.append([(25, "a", 1)], 26)
        run.step()
    assert "ZeroDivisionError" in run.errors["kinds"][0]
    assert Distinct.transition is right
    covered = len(run.rows["kinds"])
    run.append([(30, "a", 1)], 31)
    run.step()
    assert all(start >= 30 for start, _, _ in run.rows["kinds"][covered:]), "what is covered was not forgotten"
    assert run.rows["kinds"][covered:] != [(30, 60, {"speed": 1})], "a part of it is covered"


def test_a_bucket_whose_state_could_not_be_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, run = (Run(tmp_path / name, Plan(1, (planned("means", 1, MEANS),))) for name in ("alone", "run"))
    for each in (alone, run):
        each.append([(at, "abc"[at % 3], 1) for at in range(15)], 15)
        each.step()
        each.append([(at, "abc"[at % 3], 1) for at in range(15, 30)], 30)
    with monkeypatch.context() as patch:
        patch.setattr(hosted_fragment, "pack_state", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.engine.run(run._stored.new())
    run.engine._watermarks_us.clear()
    for each in (alone, run):
        each.step()
        each.append([], 100)
        each.step()
    assert run.rows == alone.rows
