"""Queries that take too much again and again are set aside: they run no more, and say why until they are dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cluster.errors import UnwritableError
from cluster.fjord.at_work import Activity
from cluster.fjord.overruns import STRIKES, WINDOW_SECONDS, Overrun, OverrunKind, Worked
from cluster.service.http.metrics import ClusterMetrics
from cluster.service.registry.query_names import QueryExistsError, UnknownQueryError
from cluster.service.registry.running_queries import RegisteredQuery
from cluster.service.running.engine import checkpoint_of, notes_in
from cluster.service.running.overrun_watch import OverrunWatch
from cluster.storage.results_table import ResultsTable
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import encode
from tests.cluster.service.conftest import TRAFFIC, Service, application

FAST = "SELECT sensor FROM traffic WHERE speed > {}"
MEAN = "SELECT AVG(speed) AS speed FROM traffic WINDOW(RANGE 1 MINUTE)"
WHY = "it took longer than 20 s in operator Join, the limit of a query in a micro-batch"


def fragment_of(service: Service, name: str) -> str:
    found = service.registry.physical.by_query[service.registry.query(name).identity]
    return found.identity


async def test_the_newest_query_of_a_fragment_is_set_aside(service: Service) -> None:
    await service.queries.add(FAST.format(3), "older")
    await service.queries.add(FAST.format(5), "newer")
    await service.queries.add(MEAN, "mean")
    fragment = fragment_of(service, "older")
    assert fragment == fragment_of(service, "newer")
    assert await service.queries.set_aside(fragment, WHY) == "newer"
    assert [each.name for each in service.registry.queries()] == ["older", "mean"]
    assert {each.query for each in service.registry.physical.subscribers.values()} == {"older", "mean"}
    assert await service.queries.set_aside(fragment, WHY) == "older"
    assert await service.queries.set_aside(fragment, WHY) is None, "there is none any more"


async def test_of_queries_that_share_operators_the_one_that_answers_most_is_set_aside(tmp_path: Path) -> None:
    service = Service(tmp_path)
    await service.handle(topics.stream_offer("p", "traffic"), encode(StreamOffer(1, "p", TRAFFIC)))
    queries = service.started(rows_answered={"attacker": 30_000_000, "victim": 10}.__getitem__)
    await queries.add(FAST.format(3), "attacker")
    await queries.add(FAST.format(1000), "victim")
    assert await queries.set_aside(fragment_of(service, "victim"), WHY) == "attacker"
    service.registry.close()


async def test_of_queries_that_share_panes_the_one_with_most_aggregates_is_set_aside(service: Service) -> None:
    panes = "FROM traffic WINDOW(RANGE {} SECONDS SLIDE 10 SECONDS) GROUP BY sensor"
    many = ", ".join(f"COUNT(DISTINCT speed + {number}) AS n{number}" for number in range(9))
    await service.queries.add(f"SELECT sensor, {many} {panes.format(600)}", "attacker")
    await service.queries.add(f"SELECT sensor, MAX(speed) AS m {panes.format(10)}", "victim")
    fragment = fragment_of(service, "victim")
    assert fragment == fragment_of(service, "attacker")
    assert await service.queries.set_aside(fragment, WHY) == "attacker"


async def test_it_keeps_its_name_over_restarts_until_it_is_dropped(service: Service, tmp_path: Path) -> None:
    await service.queries.add(MEAN, "mean")
    await service.queries.set_aside(fragment_of(service, "mean"), WHY)
    with pytest.raises(QueryExistsError):
        await service.queries.add(FAST.format(1), "mean")
    service.registry.close()
    again = Service(tmp_path)
    (kept,) = again.registry.aside.all()
    assert (kept.name, kept.sql, kept.reads, kept.reason) == ("mean", MEAN, frozenset({"traffic"}), WHY)
    assert again.registry.queries() == []
    await again.queries.drop("mean")
    with pytest.raises(UnknownQueryError):
        await again.queries.drop("mean")
    again.registry.close()


async def test_its_demand_ends(service: Service) -> None:
    await service.queries.add(MEAN, "mean")
    before = len(service.link.published)
    await service.queries.set_aside(fragment_of(service, "mean"), WHY)
    (message,) = service.link.published[before:]
    assert b"mean" not in message.payload


async def test_it_is_shown_with_the_reason(service: Service) -> None:
    await service.queries.add(FAST.format(3), "fast")
    await service.queries.add(MEAN, "mean")
    await service.queries.set_aside(fragment_of(service, "mean"), WHY)
    parts = service.parts()
    async with application(parts) as api:
        listed = (await api.get("/v1/queries")).json()
        assert [(each["name"], each["state"].split(" ")[0]) for each in listed] == [
            ("fast", "running"),
            ("mean", "set"),
        ]
        shown = (await api.get("/v1/queries/mean")).json()
        assert shown == listed[1]
        assert WHY in shown["state"]
        assert "Drop it, and add it again in a form that takes less" in shown["state"]
        assert (shown["epoch"], shown["emit"], shown["lag"]) == (None, None, None)
        assert (await api.delete("/v1/queries/mean")).status_code == 204
        assert (await api.get("/v1/queries/mean")).status_code == 404
    text = generate_latest(ClusterMetrics(parts, CollectorRegistry()).registry).decode()
    assert "fjord_queries_set_aside 0.0" in text
    assert 'fjord_overruns_total{kind="memory"} 0.0' in text


class Watched:
    """A watch over notes, and what it sets aside."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.notes = notes_in(folder)
        self.notes.make()
        self.results = ResultsTable(str(folder / "results"), "e")
        self.aside: list[tuple[str, str]] = []
        self.fails = False
        self.commits = 0
        self.watch = OverrunWatch(self.notes, self.results, self.set_aside, wall=lambda: 1_700_000_000.0, **settings)

    async def set_aside(self, fragment: str, reason: str) -> str | None:
        if self.fails:
            raise UnwritableError("the registry", OSError("full"))
        self.aside.append((fragment, reason))
        return None if fragment == "gone@1" else fragment.partition("@")[0]

    def overrun(self, micro_batch: str, fragment: str = "bomb@3", kind: OverrunKind = OverrunKind.MEMORY) -> None:
        self.notes.note(Overrun(kind, Activity(micro_batch, fragment, "Join", (fragment,)), "1.0 GiB"))

    async def look(self) -> None:
        await self.watch.look(self.committed)

    def committed(self) -> None:
        self.commits += 1


async def test_overruns_are_counted_and_the_third_sets_aside_with_an_error_row(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    await watched.look()
    for number in range(STRIKES):
        assert watched.aside == []
        watched.overrun(str(number))
        await watched.look()
        await watched.look()
    assert watched.watch.counts == {OverrunKind.MEMORY: STRIKES}
    ((fragment, reason),) = watched.aside
    assert (fragment, reason) == ("bomb@3", "it took more memory than 1.0 GiB in operator Join, the limit of a worker")
    assert watched.commits == 1
    (row,) = ResultsTable(str(tmp_path / "results"), "e").rows_after("bomb", 0, 10).to_dicts()
    assert row["kind"] == "error"
    assert msgspec.json.decode(row["row"]) == f"the query is set aside, as {reason}"


async def test_overruns_of_before_a_restart_do_not_count_again(tmp_path: Path) -> None:
    before = Watched(tmp_path)
    for number in range(2 * STRIKES):
        before.overrun(str(number))
    again = Watched(tmp_path)
    await again.look()
    again.overrun("0")
    await again.look()
    assert (again.aside, again.watch.counts.total()) == ([], 1), "another part of a micro-batch that is known"
    for number in range(STRIKES):
        again.overrun(f"new {number}")
    await again.look()
    assert [each for each, _ in again.aside] == ["bomb@3"]


async def test_a_query_that_takes_more_than_its_share_is_set_aside(tmp_path: Path) -> None:
    now = [0.0]
    watched = Watched(tmp_path, share=0.75, lag_seconds=lambda: 9.0, fragments=lambda: 2, clock=lambda: now[0])
    while not watched.aside and now[0] < 2 * WINDOW_SECONDS:
        watched.notes.note_work(Worked(str(now[0]), 1, ("greedy@2",), 4.5))
        now[0] += 5.0
        await watched.look()
    assert watched.aside == [("greedy@2", "it was computed for 58 of 60 s, in which queries were 9 s behind or more")]
    assert watched.notes.take_work() == [], "read once"
    assert watched.commits == 1


async def test_a_disk_that_is_full_delays_it(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    await watched.look()
    watched.fails = True
    for number in range(STRIKES):
        watched.overrun(str(number))
    await watched.look()
    assert (watched.aside, watched.commits) == ([], 0)
    watched.fails = False
    await watched.look()
    await watched.look()
    assert ([each for each, _ in watched.aside], watched.commits) == (["bomb@3"], 1)


async def test_of_a_query_that_has_been_dropped_meanwhile_nothing_is_said(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    await watched.look()
    for number in range(STRIKES):
        watched.overrun(str(number), "gone@1")
    await watched.look()
    assert (len(watched.aside), watched.commits) == (1, 0)


@pytest.mark.parametrize("crashes", [0, 1, 2])
async def test_a_micro_batch_that_fails_again_leaves_out_what_has_been_dropped(service: Service, crashes: int) -> None:
    await service.queries.add(FAST.format(3), "fast")
    dropped, _ = await service.queries.add(MEAN, "mean")
    engine = service.parts().engine
    offsets = checkpoint_of(service.registry.folder, service.registry) / "stateful" / "offsets"
    offsets.mkdir(parents=True)
    offset = {"epoch": service.registry.epoch, "versions": {}, "relations": {}}
    (offsets / "0").write_text("\n".join(["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(offset)]))
    await service.queries.drop("mean")
    notes = notes_in(service.registry.folder)
    notes.make()
    for _ in range(crashes):
        notes.note(Overrun(OverrunKind.CRASH, Activity("m", "x@1", None, ("x@1",))))
    assert isinstance(dropped, RegisteredQuery)
    assert engine._gone() == ((dropped.identity,) if crashes == 2 else ())
    engine._failures = 2
    assert engine._gone() == (dropped.identity,)


async def test_a_plan_goes_without_fragments_that_answer_only_dropped_queries(service: Service) -> None:
    names = {"older": FAST.format(3), "newer": FAST.format(5), "mean": MEAN}
    made = {name: (await service.queries.add(sql, name))[0] for name, sql in names.items()}
    plan = service.registry.physical
    identities = {name: service.registry.query(name).identity for name in made}
    assert plan.without(frozenset()) is plan
    left = plan.without(frozenset({identities["older"], identities["mean"]}))
    assert set(left.subscribers) == {identities["older"], identities["newer"]}, "one of them is still wanted"
