"""Queries migrate: what they wait for, what is registered, and that a restart finds the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cluster.errors import UnwritableError
from cluster.fjord.acceptance import RowLimits
from cluster.fjord.batch import instant_text
from cluster.ingest.proxy_reports import TOLERANCE_US
from cluster.operators import Filter, Node, Project, TimeWindow
from cluster.operators.columns import Scalar
from cluster.physical.lowering import lower
from cluster.physical.migration import MigrationRefusedError
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Handover
from cluster.plan.scalar_texts import read_scalar
from cluster.service.queries.migrations import ROOM_EVERY, Answered, has_ended
from cluster.service.registry.query_names import UnknownQueryError
from cluster.service.registry.registry import Registry
from cluster.service.registry.running_queries import NextPlan
from cluster.storage.stream_tables import StreamPosition
from protocols.wire.streams import FieldType
from tests.cluster.service.conftest import application, traffic_rows

if TYPE_CHECKING:
    from tests.cluster.service.conftest import Service

PAIRS = (
    "SELECT a.speed FROM traffic WINDOW(RANGE 10 SECONDS) AS a, traffic WINDOW(RANGE 10 SECONDS) AS b "
    "WHERE a.lane = b.lane"
)
ALL: Scalar = read_scalar("1 = 1", FieldType.BOOLEAN)


def other_plan(node: Node) -> Node:
    """Return a plan of the same rows, with one more operator."""
    return Filter(node, ALL)


class Engine:
    """How far Spark has come."""

    def __init__(self) -> None:
        self.answered: Answered | None = None

    def __call__(self, host: Host, streams: frozenset[str]) -> Answered | None:
        assert streams == {"traffic"}
        assert host is Host.STATEFUL
        return self.answered


def store(service: Service, stamps: list[int], watermark_us: int) -> None:
    """Store rows, as the ingest does."""
    writer = service.ingest.writers["traffic"]
    writer.table.append([traffic_rows(stamps)], StreamPosition(watermark_us, {}), {})
    writer.admission.note_stamp(writer.table.latest_stamp())


def store_seconds(service: Service) -> None:
    """Store some seconds of a stream, so that it has a rate."""
    for second in range(1, 5):
        store(service, [second * 1_000_000 + place for place in range(50)], (second + 1) * 1_000_000)


async def test_stamps_ahead_of_the_clock_are_waited_for(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = service.started(answered=Engine())
    query, _ = await queries.add(PAIRS, "pairs")
    store(service, [4_000_000, 9_000_000], 5_000_000)
    monkeypatch.setattr(service.ingest, "now_us", lambda: 8_000_000 - TOLERANCE_US)
    found = await queries.migrate("pairs", other_plan(query.node))
    assert (
        found.waits_for == "the clock to come to 1970-01-01T00:00:09.000000Z, up to which stream traffic is ahead of it"
    )
    clock = iter([9_500_000 - TOLERANCE_US])
    monkeypatch.setattr(service.ingest, "now_us", lambda: next(clock, -TOLERANCE_US))  # it is put back
    await queries._migrations.step()
    (found,) = queries.migrations()
    assert found.at_us is not None
    assert found.at_us > 19_000_000


async def test_a_query_migrates_and_the_plan_before_ends_once_its_answers_are_out(service: Service) -> None:
    engine = Engine()
    queries = service.started(answered=engine)
    query, _ = await queries.add(PAIRS, "pairs")
    store(service, [4_000_000, 9_000_000], 5_000_000)
    found = await queries.migrate("pairs", other_plan(query.node), "to try it")
    begun = service.registry.epoch
    assert (found.waits_for, found.from_epoch, found.to_epoch, found.cut) == ("", begun - 1, begun, False)
    assert found.at_us is not None
    assert 19_000_000 < found.at_us < 19_001_000, "the latest stamp and the window"
    plan = service.plans.read(begun)
    assert list(plan.subscribers) == [f"pairs@{begun - 1}", f"pairs@{begun}"]
    assert plan.positions == {"traffic": 1}
    old, new = plan.subscribers.values()
    assert old.until == new.since == Handover(found.at_us, found.at_us)
    assert plan == lower(service.registry.plan)
    for reached in (None, Answered(begun - 1, frozenset(), {"traffic": 10**12}), Answered(begun, frozenset(), {})):
        engine.answered = reached
        await queries._migrations.step()
        assert service.registry.epoch == begun
    engine.answered = Answered(begun, frozenset(), {"traffic": found.at_us - 1})
    await queries._migrations.step()
    assert service.registry.epoch == begun
    engine.answered = Answered(begun, frozenset(), {"traffic": found.at_us})
    await queries._migrations.step()
    after = service.registry.query("pairs")
    assert (after.since_epoch, after.node, after.next) == (begun, other_plan(query.node), None)
    assert list(service.plans.read(begun + 1).subscribers) == [f"pairs@{begun}"]
    assert queries.migrations() == []
    steps = [each.words for each in service.registry.plan_history(3)]
    assert steps == ["pairs added", "pairs migrating (to try it)", "pairs migrated"]


async def test_a_restart_in_the_middle_goes_on_with_the_same(service: Service, tmp_path: Path) -> None:
    engine = Engine()
    queries = service.started(answered=engine)
    query, _ = await queries.add(PAIRS, "pairs")
    await queries.add(PAIRS, "others")
    store(service, [9_000_000], 5_000_000)
    await queries.migrate("pairs", other_plan(query.node), "to try it")
    before = service.registry
    begun = before.epoch

    def restarted() -> Registry:
        service.registry.close()
        service.registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
        return service.registry

    for lost in (False, True):  # a crash between the registry's commit and the plan file
        plan, physical, known = service.registry.plan, service.registry.physical, service.registry.queries()
        if lost:
            service.plans.path(service.registry.epoch).unlink()
        registry = restarted()
        assert (registry.plan, registry.physical, registry.queries()) == (plan, physical, known)
        assert PlanFiles(tmp_path / "plans").read(registry.epoch) == physical
    queries = service.started(answered=engine)
    (state,) = queries.migrations()
    assert (state.query, state.to_epoch, state.why) == ("pairs", begun, "to try it")
    engine.answered = Answered(begun, frozenset(), {"traffic": 10**12})
    await queries._migrations.step()
    finished = service.registry.query("pairs")
    registry = restarted()
    assert registry.query("pairs") == finished
    assert [each.name for each in registry.queries()] == ["pairs", "others"]
    # The handover stays in the plan: rows from before it may still be on their way.
    assert registry.physical.subscribers[f"pairs@{begun}"].since == finished.since
    assert registry.physical == lower(registry.plan)


async def test_a_migration_that_cannot_be_stored_changes_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = service.started(answered=Engine())
    query, _ = await queries.add(PAIRS, "pairs")
    epoch = service.registry.epoch

    def full(*_: object) -> None:
        raise UnwritableError("the registry", OSError("disk full"))

    with monkeypatch.context() as patch:
        patch.setattr("cluster.service.registry.registry.update_query", full)
        with pytest.raises(UnwritableError):
            await queries.migrate("pairs", other_plan(query.node))
    assert (service.registry.epoch, service.registry.query("pairs")) == (epoch, query)
    assert not service.ingest.writers["traffic"].storing.locked()
    await queries.migrate("pairs", other_plan(query.node))
    assert service.registry.epoch == epoch + 1


async def test_nothing_is_stored_between_the_last_stamp_and_the_plan(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = service.started(answered=Engine())
    query, _ = await queries.add(PAIRS, "pairs")
    locked = []
    migrate = service.registry.migrate

    def seen(*arguments: Any, **more: Any) -> object:
        locked.append(service.ingest.writers["traffic"].storing.locked())
        return migrate(*arguments, **more)

    monkeypatch.setattr(service.registry, "migrate", seen)
    await queries.migrate("pairs", other_plan(query.node))
    assert locked == [True]


async def test_a_migration_waits_for_another_one_for_room_and_for_history(service: Service) -> None:
    engine = Engine()
    queries = service.started(answered=engine)
    pairs, _ = await queries.add(PAIRS, "pairs")
    await queries.migrate("pairs", other_plan(pairs.node))
    again = await queries.migrate("pairs", other_plan(other_plan(pairs.node)))
    assert again.waits_for == "another migration of the query to end"
    states = [(each.query, bool(each.waits_for)) for each in queries.migrations()]
    assert states == [("pairs", False), ("pairs", True)]
    engine.answered = Answered(service.registry.epoch, frozenset(), {"traffic": 10**15})
    await queries._migrations.step()
    (running,) = queries.migrations()
    assert (running.waits_for, running.to_epoch) == ("", service.registry.epoch)

    past, _ = await queries.add(f"{PAIRS.replace('traffic', 'traffic SINCE 1 HOUR AGO')}", "past")
    engine.answered = Answered(past.since_epoch, frozenset({past.since_epoch}), {})
    state = await queries.migrate("past", other_plan(past.node))
    assert state.waits_for == "the query to have read its history"
    engine.answered = Answered(past.since_epoch, frozenset(), {})
    await queries._migrations.step()
    (_, begun) = queries.migrations()
    assert (begun.query, begun.waits_for) == ("past", "")


async def test_a_migration_that_does_not_fit_waits(service: Service) -> None:
    store_seconds(service)
    queries = service.started(answered=Engine())
    pairs, _ = await queries.add(PAIRS, "pairs")
    small = service.started(answered=Engine(), max_state_bytes=1)
    state = await small.migrate("pairs", other_plan(pairs.node))
    assert "limit" in state.waits_for
    assert small.migrations() == [state]
    small.limits._max_state_bytes = 10**12
    for _ in range(ROOM_EVERY):
        await small._migrations.step()
    assert [each.waits_for for each in small.migrations()] == [""]


async def test_what_brings_state_down_that_is_above_the_limit_does_not_wait_for_room(service: Service) -> None:
    store_seconds(service)
    queries = service.started(answered=Engine())
    pairs, _ = await queries.add(PAIRS, "pairs")
    later = service.started(answered=Engine(), max_state_bytes=1)
    longer = _with(pairs.node, lambda each: replace(each, size_us=12_000_000))
    assert "limit" in (await later.migrate("pairs", longer)).waits_for, "which keeps more than now"
    shorter = _with(pairs.node, lambda each: replace(each, size_us=5_000_000))
    assert not (await later.migrate("pairs", shorter)).waits_for


async def test_what_makes_fewer_rows_does_not_wait_while_more_than_allowed_are_made(service: Service) -> None:
    store_seconds(service)
    queries = service.started(answered=Engine())
    pairs, _ = await queries.add(PAIRS.partition(" WHERE")[0], "pairs")
    later = service.started(answered=Engine(), row_limits=RowLimits(per_second=1))
    longer = _with(pairs.node, lambda each: replace(each, size_us=12_000_000))
    assert "rows per second" in (await later.migrate("pairs", longer)).waits_for, "which makes more than now"
    shorter = _with(pairs.node, lambda each: replace(each, size_us=5_000_000))
    assert not (await later.migrate("pairs", shorter)).waits_for


async def test_a_query_that_migrates_may_go_back_but_not_twice(service: Service) -> None:
    queries = service.started(answered=(engine := Engine()))
    pairs, _ = await queries.add(PAIRS, "pairs")
    other = other_plan(pairs.node)
    await queries.migrate("pairs", other)
    with pytest.raises(MigrationRefusedError, match="'pairs' is going on with this plan already"):
        await queries.migrate("pairs", other)
    assert (await queries.migrate("pairs", pairs.node)).waits_for == "another migration of the query to end"
    engine.answered = Answered(service.registry.epoch, frozenset(), {"traffic": 10**15})
    await queries._migrations.step()
    assert service.registry.query("pairs").next_node == pairs.node


async def test_what_was_asked_for_gives_way_to_what_is_asked_for_only(service: Service) -> None:
    queries = service.started(answered=Engine())
    pairs, _ = await queries.add(PAIRS, "pairs")
    plans = [pairs.node]
    for _ in range(3):
        plans.append(other_plan(plans[-1]))
    await queries.migrate("pairs", plans[1])
    await queries.migrate("pairs", plans[2], "plan 2 was asked for", asked_for=True)
    with pytest.raises(MigrationRefusedError, match="'pairs' is to go on with another one: plan 2 was asked for"):
        await queries.migrate("pairs", plans[3], "it saves")
    assert queries._migrations.waiting("pairs") == (plans[2], "another migration of the query to end")
    await queries.migrate("pairs", plans[3], "plan 3 was asked for", asked_for=True)
    assert queries._migrations.waiting("pairs") == (plans[3], "another migration of the query to end")


async def test_dropping_a_query_in_the_middle_drops_both_plans(service: Service) -> None:
    queries = service.started(answered=Engine())
    query, _ = await queries.add(PAIRS, "pairs")
    await queries.migrate("pairs", other_plan(query.node))
    await queries.migrate("pairs", other_plan(other_plan(query.node)))
    await queries.drop("pairs")
    assert service.registry.plan.queries == ()
    assert service.registry.physical.fragments == ()
    assert queries.migrations() == []
    assert service.registry.plan_history(1)[0].words == "pairs dropped"
    with closing(sqlite3.connect(service.registry.folder / "registry.sqlite")) as database:
        assert database.execute("SELECT COUNT(*) FROM migrations").fetchone() == (0,)


async def test_plans_that_cannot_follow_are_refused_with_the_reason(service: Service) -> None:
    queries = service.started(answered=Engine())
    query, _ = await queries.add(PAIRS, "pairs")
    epoch = service.registry.epoch
    with pytest.raises(MigrationRefusedError, match="has this plan already"):
        await queries.migrate("pairs", query.node)
    with pytest.raises(UnknownQueryError):
        await queries.migrate("missing", query.node)
    assert isinstance(query.node, Project)
    with pytest.raises(MigrationRefusedError, match="other columns"):
        await queries.migrate("pairs", query.node.input)
    slower = _with(query.node, lambda each: Filter(each, read_scalar("lane = 7", FieldType.BOOLEAN)))
    with pytest.raises(MigrationRefusedError, match="other samples of sensors"):
        await queries.migrate("pairs", slower)
    assert service.registry.epoch == epoch


def _with(node: Node, above: Any) -> Node:
    """Return a plan with something above each of its windows."""
    if isinstance(node, TimeWindow):
        return above(node)
    return node.with_inputs(tuple(_with(each, above) for each in node.inputs))


async def test_the_api_lists_migrations(service: Service) -> None:
    service.queries = service.started(answered=Engine())
    query, _ = await service.queries.add(PAIRS, "pairs")
    store(service, [9_000_000], 5_000_000)
    await service.queries.migrate("pairs", other_plan(query.node), "to try it")
    (state,) = service.queries.migrations()
    assert state.at_us is not None
    async with application(service.parts()) as client:
        (found,) = (await client.get("/v1/migrations")).json()
        text = (await client.get("/v1/plan")).text
    assert (found["query"], found["state"], found["why"]) == ("pairs", "migrating", "to try it")
    assert found["at"] == instant_text(state.at_us)
    assert f"answers until {instant_text(state.at_us)}: pairs, as planned in epoch {state.from_epoch}" in text
    assert f"answers from {instant_text(state.at_us)}: pairs, as planned in epoch {state.to_epoch}" in text


def test_what_is_unknown_ends_nothing() -> None:
    following = NextPlan(5, Handover(7, 9), 0)
    streams = frozenset({"a", "b"})
    assert not has_ended(following, streams, None)
    assert not has_ended(following, streams, Answered(5, frozenset(), {"a": 9}))
    assert not has_ended(following, streams, Answered(4, frozenset(), {"a": 9, "b": 9}))
    assert has_ended(following, streams, Answered(5, frozenset(), {"a": 9, "b": 10}))
