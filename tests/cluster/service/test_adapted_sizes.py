"""Queries with ranges in a cluster: what they get, what others leave them, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster.fjord.upper_estimates import StateLimitError, state_bytes
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.sized import quality_of
from cluster.service.catalog.planning import PlanningContext
from cluster.service.queries.migrations import Answered
from cluster.service.queries.plan_options import PlannedText
from cluster.service.queries.size_decisions import NoRoomError
from cluster.service.registry.registry import Registry
from cluster.storage.stream_tables import StreamPosition
from protocols.text.quantities import parse_byte_size
from tests.cluster.service.conftest import application, traffic_rows

if TYPE_CHECKING:
    from cluster.service.queries.query_service import QueryService
    from tests.cluster.service.conftest import Service

PAIRS = "SELECT a.speed FROM traffic WINDOW(RANGE {0}) AS a JOIN traffic WINDOW(RANGE {0}) AS b ON a.lane = b.lane"
HOURS = "MIN 1 HOUR, MAX 12 HOURS"
SECOND = 1_000_000


class Engine:
    """How far Spark has come: everywhere."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.passed_us = 0

    def __call__(self, host: Host, streams: frozenset[str]) -> Answered | None:
        return Answered(self._service.registry.epoch, frozenset(), dict.fromkeys(streams, self.passed_us))


def store(service: Service, seconds: int) -> None:
    """Store a tuple a second, in two commits."""
    writer = service.ingest.writers["traffic"]
    for begin, end in ((0, 1), (1, seconds)):
        rows = traffic_rows([at * SECOND for at in range(begin, end)])
        writer.table.append([rows], StreamPosition(end * SECOND, {}), {})
    writer.admission.note_stamp(writer.table.latest_stamp())


def state_of(service: Service, *texts: str) -> float:
    """Return how much state queries keep together, at most."""
    context = service.queries._context()
    queries = [PlannedQuery(f"q{place}", place, context.planned(text)[1]) for place, text in enumerate(texts)]
    return state_bytes(lower(Plan(1, tuple(queries))), service.queries.limits.rates(frozenset({"traffic"})))


def quality(service: Service, name: str) -> str | None:
    return quality_of(service.registry.query(name).node)


async def settled(queries: QueryService) -> None:
    async with queries._lock:
        await queries._migrations.step()
        await queries.sizes.step()


@pytest.fixture
def hour(service: Service) -> float:
    """The state of an hour of the query."""
    store(service, 11)
    assert service.queries.limits.rates(frozenset({"traffic"})) == {"traffic": 1.0}
    return state_of(service, PAIRS.format("2 HOURS")) - state_of(service, PAIRS.format("1 HOUR"))


async def test_a_query_runs_in_what_a_budget_leaves_and_is_widened_when_others_leave(
    service: Service, hour: float
) -> None:
    other = PAIRS.format("6 HOURS").replace("speed", "speed + 1 AS more")
    budget = (state_of(service, other) + 5.5 * hour) / 0.8
    engine = Engine(service)
    queries = service.started(max_state_bytes=int(budget), answered=engine)
    queries.sizes._settled_seconds = 0.0
    await queries.add(other, "other")
    await queries.add(PAIRS.format(HOURS), "ranged")
    assert quality(service, "ranged") == "window 5h"
    await settled(queries)
    assert queries.migrations() == []
    await queries.drop("other")
    await settled(queries)
    (state,) = queries.migrations()
    assert (state.query, state.waits_for, state.cut) == ("ranged", "", True)
    # Both windows fit until the longer one is full: five hours and nine of fourteen.
    assert quality_of(service.registry.query("ranged").next_node) == "window 9h"
    assert state.at_us is not None
    engine.passed_us = state.at_us + 1
    await settled(queries)
    assert quality(service, "ranged") == "window 9h"
    async with application(service.parts(queries=queries)) as client:
        found = (await client.get("/v1/queries/ranged")).json()["sizes"]
    assert [each["quality"] for each in found] == ["window 5h", "window 9h"]
    assert found[0]["from"] is None
    assert found[1]["from"].startswith("1970-01-01T09:00:1")


async def test_to_add_a_query_without_ranges_does_not_look_at_all_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = service.started()
    await queries.add("SELECT speed FROM traffic", "all")
    looked: list[str] = []
    monkeypatch.setattr(type(service.registry), "queries", lambda _: looked.append("queries") or [])
    await queries.add("SELECT speed FROM traffic WHERE speed < 10", "slow")
    async with queries._lock:
        await queries.sizes.step()
    assert not looked, "8 ms among 10,000, on the loop that ingests"


async def test_sizes_grow_only_once_nothing_comes_or_goes_any_more(service: Service, hour: float) -> None:
    other, now = PAIRS.format("6 HOURS").replace("speed", "speed + 1 AS more"), 0.0
    queries = service.started(max_state_bytes=int((state_of(service, other) + 5.5 * hour) / 0.8))
    queries.sizes._clock = lambda: now
    await queries.add(other, "other")
    await queries.add(PAIRS.format(HOURS), "ranged")
    await queries.drop("other")
    now = 29.0
    await settled(queries)
    assert queries.migrations() == []
    now = 30.0
    await settled(queries)
    assert [each.query for each in queries.migrations()] == ["ranged"]


async def test_a_query_is_refused_that_does_not_fit_at_its_least(service: Service, hour: float) -> None:
    queries = service.started(max_state_bytes=int(0.9 * hour))
    with pytest.raises(NoRoomError) as caught:
        await queries.add(PAIRS.format(HOURS), "ranged")
    assert "even with the shortest windows" in caught.value.message
    assert len(service.registry) == 0
    _, _, enough = (caught.value.hint or "").partition("start the cluster with --max-state ")
    queries = service.started(max_state_bytes=parse_byte_size(enough.removesuffix(" at least")))
    await queries.add(PAIRS.format(HOURS), "ranged")
    assert quality(service, "ranged") == "window 1h"


async def test_a_query_without_ranges_fits_as_before(service: Service, hour: float) -> None:
    queries = service.started(max_state_bytes=int(6.1 * hour))
    await queries.add(PAIRS.format("6 HOURS"), "fits")
    with pytest.raises(StateLimitError):
        await queries.add(PAIRS.format("1 HOUR").replace("speed", "speed + 1 AS more"), "more")


async def test_a_query_shrinks_for_another_one(service: Service, hour: float) -> None:
    budget = state_of(service, PAIRS.format("12 HOURS")) / 0.8 + 1.5 * hour
    queries = service.started(max_state_bytes=int(budget))
    await queries.add(PAIRS.format(HOURS), "first")
    assert quality(service, "first") == "window 12h"
    await queries.add(PAIRS.format(HOURS).replace("speed", "speed + 1 AS more"), "second")
    (state,) = queries.migrations()
    assert state.query == "first"
    names = {"first": service.registry.query("first").next_node, "second": service.registry.query("second").node}
    assert {name: quality_of(node) for name, node in names.items() if node} == {
        "first": "window 2h",
        "second": "window 2h",
    }


async def test_time_is_a_budget_too(service: Service, hour: float) -> None:
    busy = service.started(max_busy=0.002)
    with pytest.raises(NoRoomError, match=r"of a processor with this query") as caught:
        await busy.add(PAIRS.format(HOURS), "ranged")
    assert "--max-busy" in (caught.value.hint or "")
    busy = service.started(max_busy=10.0)
    await busy.add(PAIRS.format(HOURS), "ranged")
    assert quality(service, "ranged") == "window 12h"


async def test_several_are_added_together(service: Service, hour: float) -> None:
    budget = 2 * state_of(service, PAIRS.format("5 HOURS")) / 0.8 + hour / 2
    queries = service.started(max_state_bytes=int(budget))
    texts = [PAIRS.format(HOURS), PAIRS.format(HOURS).replace("speed", "speed + 1 AS more")]
    await queries.add_many([(f"q{place}", text) for place, text in enumerate(texts)])
    assert [quality(service, name) for name in ("q0", "q1")] == ["window 5h", "window 5h"]


async def test_the_api_refuses_what_has_no_room(service: Service, hour: float) -> None:
    queries = service.started(max_state_bytes=int(0.9 * hour))
    async with application(service.parts(queries=queries)) as client:
        alone = await client.post("/v1/queries", json={"sql": PAIRS.format(HOURS)})
        together = await client.post("/v1/queries/together", json={"sql": f"{PAIRS.format(HOURS)};"})
    for refused in (alone, together):
        assert refused.status_code == 429
        assert "even with the shortest windows" in refused.text
        assert "--max-state" in refused.text


async def test_queries_without_state_have_their_best(service: Service, hour: float) -> None:
    queries = service.started(max_state_bytes=1)
    await queries.add(f"SELECT speed FROM traffic WINDOW(RANGE {HOURS})", "stateless")
    assert quality(service, "stateless") == "window 12h"


async def test_what_takes_too_long_goes_on_with_the_next_step(service: Service, hour: float) -> None:
    budget = state_of(service, PAIRS.format("5 HOURS")) / 0.8 + hour / 2
    queries = service.started(max_state_bytes=int(budget))
    await queries.add(PAIRS.format(HOURS), "ranged")
    queries = service.started(max_state_bytes=100 * int(budget))
    queries.sizes._settled_seconds = 0.0
    queries._planning._seconds = 0.0
    await settled(queries)
    assert queries.migrations() == []
    queries._planning._seconds = 10.0
    await settled(queries)
    assert quality_of(service.registry.query("ranged").next_node) == "window 12h"


async def test_sizes_outlive_a_restart(service: Service, hour: float) -> None:
    budget = state_of(service, PAIRS.format("5 HOURS")) / 0.8 + hour / 2
    queries = service.started(max_state_bytes=int(budget))
    query: Any
    query, _ = await queries.add(PAIRS.format(HOURS), "ranged")
    await queries.add("SELECT speed FROM traffic WHERE speed < 10", "slow")
    service.registry.close()
    service.registry = Registry(service.registry.folder / "registry.sqlite", service.plans)
    assert service.registry.sized() == [service.registry.query("ranged")]
    queries = service.started(max_state_bytes=int(budget))
    await settled(queries)
    assert quality(service, "ranged") == "window 5h"
    assert queries.sizes.history(query) == [{"from": None, "quality": "window 5h"}]
    await queries.drop("ranged")
    assert service.registry.sizes.of("ranged", query.created_us) == []


async def test_one_more_query_plans_no_other_anew(
    service: Service, hour: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = service.started(max_state_bytes=int(1000 * hour))
    for number in range(3):
        await queries.add(PAIRS.format(HOURS).replace("speed", f"speed + {number} AS more"), f"q{number}")
    queries = service.started(max_state_bytes=int(1000 * hour))
    translated: list[str] = []
    monkeypatch.setattr(PlanningContext, "ranged", lambda _, sql: translated.append(sql))
    await queries.add(PAIRS.format(HOURS), "one_more")
    await queries.add(PAIRS.format("2 HOURS"), "without_ranges")
    assert translated == []
    assert quality(service, "one_more") == "window 12h"


async def test_what_fits_at_its_best_at_once_is_what_would_be_decided(
    service: Service, hour: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries that share panes take less together than they would alone: decisions count them alone."""
    text = (
        "SELECT lane, MAX(speed) AS m FROM traffic WINDOW(RANGE MIN {0} HOURS, MAX 12 HOURS SLIDE 1 HOUR) GROUP BY lane"
    )
    queries = service.started(max_state_bytes=10**9)
    for least in (1, 2, 3):
        await queries.add(text.format(least), f"q{least}")
    alone = state_of(service, text.format(4))
    query, node = queries._context().planned(text.format(4))
    asked = [PlannedText("q4", text.format(4), query, node)]
    found: dict[bool, list[str | None]] = {True: [], False: []}
    for part in range(4, 24):
        sizes = service.started(max_state_bytes=int(alone * part / 4)).sizes
        for quick, qualities in found.items():
            if not quick:
                monkeypatch.setattr(sizes, "_fits_at_best", lambda *_: False)
            try:
                _, (placed,) = sizes._placed(asked, sizes._size_costs(frozenset()))
            except NoRoomError:
                qualities.append(None)
            else:
                qualities.append(quality_of(placed.node))
    assert found[True] == found[False]
    assert {None, "window 12h"} < {*found[True]}
