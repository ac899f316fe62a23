"""Planning beside the event loop: other requests are served meanwhile, and refused statements change nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import pytest

from cluster.language.errors import FjordSqlError
from cluster.operators.walks import written_out
from cluster.planning_budget import PlanningLimitError, spend
from cluster.service.access.roles import Role
from cluster.service.access.tokens import AccessToken, Tokens, digest_of
from cluster.service.catalog import planning
from cluster.service.catalog.planning import AT_ONCE, FEW, Planning, PlanningBusyError, asked_by
from cluster.service.catalog.planning_turns import KEPT_FOR_ADMINS, MOST_OF_ONE, MOST_WAITING, Asker
from cluster.service.queries.query_service import QueryService
from cluster.service.registry.registry import Registry
from tests.cluster.service.conftest import Service, application
from tests.cluster.service.test_api import client

GOOD = "SELECT sensor FROM traffic"
DERIVED = "CREATE STREAM slow AS SELECT sensor, lane FROM traffic WHERE speed < 20"
LIMIT = 1e-9
"""Seconds that suffice for no plan."""


@dataclass
class Held:
    """Work that does not end until it is released."""

    begun: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> str:
        self.begun.set()
        assert self.let_go.wait(60)
        return threading.current_thread().name


async def until(event: threading.Event) -> None:
    """Wait without blocking the loop."""
    assert await asyncio.to_thread(event.wait, 60)


async def test_the_loop_goes_on_while_a_statement_is_planned() -> None:
    place, first, second = Planning(), Held(), Held()
    one, other = asyncio.create_task(place.run(first)), asyncio.create_task(place.run(second))
    await until(first.begun)
    assert not second.begun.is_set()  # one after the other
    first.let_go.set()
    assert await one != threading.current_thread().name
    await until(second.begun)
    second.let_go.set()
    await other


@pytest.mark.parametrize(("count", "slices"), [(FEW, 0), (FEW + 1, 1), (2 * AT_ONCE, 2), (2 * AT_ONCE + 1, 3)])
async def test_what_is_done_for_many_queries_is_done_beside_the_loop_in_slices(
    count: int, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, own, ran = Planning(), threading.get_ident(), 0
    run = place.run

    async def counted(work: Any, *, internal: bool) -> Any:
        nonlocal ran
        ran += 1
        return await run(work, internal=internal)

    monkeypatch.setattr(place, "run", counted)
    found = await place.each(lambda value: (value, threading.get_ident() == own), range(count))
    assert found == [(value, slices == 0) for value in range(count)]
    assert ran == slices


async def test_a_statement_is_refused_when_too_many_wait_to_be_planned() -> None:
    place, held = Planning(), Held()
    held.let_go.set()
    waiting = [asyncio.create_task(place.run(held)) for _ in range(MOST_OF_ONE)]
    await asyncio.sleep(0)
    with pytest.raises(PlanningBusyError, match="wait to be planned"):
        await place.run(held)
    await place.run(held, internal=True)
    await asyncio.gather(*waiting)
    await place.run(held)


async def send(place: Planning, asker: Asker, work: Any) -> asyncio.Task[Any]:
    """Let a caller's statement wait to be planned."""
    with asked_by(asker):
        sent = asyncio.create_task(place.run(work))
    await asyncio.sleep(0)
    return sent


async def test_callers_take_turns_and_administrators_wait_for_one_statement() -> None:
    place, held, order = Planning(), Held(), list[str]()
    many, one, admin = Asker("many", admin=False), Asker("one", admin=False), Asker("ops")
    sent = [await send(place, many, held)]
    sent += [await send(place, many, partial(order.append, f"many {each}")) for each in (1, 2, 3)]
    sent += [await send(place, one, partial(order.append, "one"))]
    sent += [await send(place, admin, partial(order.append, f"admin {each}")) for each in (1, 2)]
    held.let_go.set()
    await asyncio.gather(*sent)
    assert order == ["admin 1", "many 1", "admin 2", "one", "many 2", "many 3"]


async def test_callers_that_send_many_statements_leave_places_for_administrators() -> None:
    place, held = Planning(), Held()
    callers = [Asker(f"t{each}", admin=False) for each in range(MOST_WAITING // MOST_OF_ONE)]
    sent = [await send(place, caller, held) for caller in callers for _ in range(MOST_OF_ONE)]
    with pytest.raises(PlanningBusyError, match=f"0 statements of yours wait to be planned, of {MOST_WAITING} in all"):
        await (await send(place, Asker("late", admin=False), held))
    admins = [await send(place, Asker("ops"), held) for _ in range(KEPT_FOR_ADMINS)]
    held.let_go.set()
    await asyncio.gather(*sent, *admins)


async def test_the_turn_of_a_caller_that_went_away_is_that_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    place, held, order = Planning(), Held(), list[str]()
    first = await send(place, Asker(), held)
    waits, given, last = [
        await send(place, Asker(name, admin=False), partial(order.append, name)) for name in ("waits", "given", "last")
    ]
    pass_on = place._turns._pass_on

    def then_cancel() -> None:
        pass_on()
        given.cancel()  # it has the turn, and has not begun

    monkeypatch.setattr(place._turns, "_pass_on", then_cancel)
    waits.cancel()
    held.let_go.set()
    await asyncio.wait([first, waits, given, last])
    assert order == ["last"]
    assert await place.run(lambda: "goes on") == "goes on"


async def test_statements_of_requests_are_those_of_their_tokens(service: Service) -> None:
    held, file = Held(), service.registry.folder / "tokens.toml"
    file.write_text(AccessToken("q", Role.QUERY, digest_of("q")).toml)
    file.chmod(0o600)
    api = application(service.parts(), tokens=Tokens("a", file))
    explain = partial(api.post, "/v1/explain", json={"sql": GOOD})
    busy = await send(service.queries._planning, Asker(), held)
    await until(held.begun)
    async with api:
        asked = [asyncio.create_task(explain(headers={"Authorization": "Bearer q"})) for _ in range(MOST_OF_ONE + 1)]
        (refused,), _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert refused.result().status_code == 429
        admin = asyncio.create_task(explain(headers={"Authorization": "Bearer a"}))
        held.let_go.set()
        assert (await admin).status_code == 200
        assert not all(each.done() for each in asked)
        await asyncio.gather(busy, *asked)


async def test_work_stops_when_its_caller_is_cancelled() -> None:
    place, begun, ended = Planning(), threading.Event(), threading.Event()

    def endless() -> None:
        try:
            while True:
                begun.set()
                spend()
        finally:
            ended.set()

    task = asyncio.create_task(place.run(endless))
    await until(begun)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(ended)
    assert await place.run(lambda: "the next") == "the next"


def hasty(service: Service) -> QueryService:
    return service.started(planning_seconds=LIMIT)


async def test_a_statement_that_takes_too_long_changes_nothing(service: Service) -> None:
    queries, epoch = hasty(service), service.registry.plan.epoch
    for refused in (
        lambda: queries.add(GOOD, "q"),
        lambda: queries.explain(GOOD),
        lambda: queries.demands_for(GOOD, "q"),
        lambda: queries.streams.execute(DERIVED),
        lambda: queries.relations.execute("CREATE RELATION r FROM 'r.csv' REFRESH EVERY 30 SECONDS"),
    ):
        with pytest.raises(PlanningLimitError, match="longer than the 1e-09 s"):
            await refused()
    assert service.registry.plan.epoch == epoch
    assert service.registry.queries() == []
    assert service.registry.streams.statements() == {}
    assert queries.streams.derived == []
    assert queries.store.find("r") is None
    assert service.link.published == []


@pytest.fixture
async def hasty_api(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    service.queries = hasty(service)
    async with client(service) as found:
        yield found


@pytest.mark.parametrize("route", ["/v1/queries", "/v1/explain", "/v1/streams", "/v1/explain/energy"])
async def test_the_error_names_the_limit(hasty_api: httpx.AsyncClient, route: str) -> None:
    answer = await hasty_api.post(route, json={"sql": DERIVED if route == "/v1/streams" else GOOD})
    assert answer.status_code == 400
    assert answer.json()["error"] == "PlanningLimitError"
    assert "--planning-seconds" in answer.json()["hint"]
    assert (await hasty_api.get("/v1/queries")).json() == []


async def test_requests_are_answered_while_a_statement_is_planned(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    translate = planning.translate

    def slow(sql: str, catalog: Any, **options: Any) -> Any:
        held()
        return translate(sql, catalog, **options)

    await service.queries.add(GOOD, "old")
    monkeypatch.setattr(planning, "translate", slow)
    async with client(service) as api:
        adding = asyncio.create_task(api.post("/v1/queries", json={"sql": GOOD, "name": "new"}))
        await until(held.begun)
        assert [query["name"] for query in (await api.get("/v1/queries")).json()] == ["old"]
        assert (await api.delete("/v1/queries/old")).status_code == 204
        held.let_go.set()
        assert (await adding).status_code == 201


async def test_a_query_is_planned_again_if_its_stream_was_dropped_meanwhile(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    translate = planning.translate

    def slow(sql: str, catalog: Any, **options: Any) -> Any:
        held()
        return translate(sql, catalog, **options)

    await service.queries.streams.execute(DERIVED)
    monkeypatch.setattr(planning, "translate", slow)
    adding = asyncio.create_task(service.queries.add("SELECT sensor FROM slow"))
    await until(held.begun)
    await service.queries.streams.drop("slow")
    held.let_go.set()
    with pytest.raises(FjordSqlError, match="no stream 'slow'"):
        await adding
    assert service.registry.queries() == []


async def test_a_plan_of_shared_parts_is_registered_and_read_again(service: Service) -> None:
    window = "WINDOW(RANGE 1 SECONDS)"
    lanes = f"SELECT lane FROM traffic {window} WHERE speed > 60"
    conditions = " AND ".join(f"(speed > {each} OR lane IN ({lanes}))" for each in range(30))
    added, _ = await service.queries.add(f"SELECT sensor FROM traffic {window} WHERE {conditions}", "many")
    (query,) = service.registry.queries()
    assert query.name == added.name
    assert written_out(query.node) > 2**30
    registry = Registry(service.registry.folder / "registry.sqlite", service.plans)
    assert registry.plan == service.registry.plan
    assert registry.queries() == [query]
    assert service.plans.path(registry.plan.epoch).stat().st_size < 200_000
