"""Proxies can decode what is published, and no query's demand spoils another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pytest
from msgspec.structs import replace

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Node
from cluster.physical.lowering import lower
from cluster.physical.nodes import Subscriber
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.service.publishing.published_demands import DemandError, PublishedDemands, TooManyDemandsError
from protocols.wire import topics
from protocols.wire.demands import MAX_DEMAND_BYTES, QueryDemand, StreamDemand, decode_demand, encode_demands
from protocols.wire.frames import VERSION, encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.service.conftest import TRAFFIC

if TYPE_CHECKING:
    from tests.cluster.service.conftest import Service

SMALL = "SELECT sensor, speed FROM traffic"
NOTHING = StreamDemand(VERSION, "cluster", "traffic", 1, ())
ROADS = StreamSchema("traffic", (*TRAFFIC.fields, Field("road", FieldType.TEXT, fixed=True)))


def running_query(name: str, node: Node, epoch: int = 1) -> Subscriber:
    (fragment,) = lower(Plan(epoch, (PlannedQuery(name, epoch, node),))).fragments
    return fragment.subscribers[0]


def plan(sql: str) -> Node:
    return rewrite(translate(sql, Catalog.of([ROADS])).node).node


def listing(number: int) -> str:
    """Return a query about 300 sensors by their names."""
    names = ", ".join(f"'sensor-{number:04}-{place:03}'" for place in range(300))
    return f"{SMALL} WHERE sensor IN ({names})"


def _with(period_us: int) -> Node:
    """Return a plan that an earlier version registered, before periods had a bound."""
    node = plan(SMALL)
    return replace(node, input=replace(node.input, sample_period_us=period_us))  # type: ignore[attr-defined]


async def test_hundreds_of_values_and_long_texts_disable_nothing(service: Service) -> None:
    await service.queries.add(SMALL, "before")
    await service.queries.add(f"{SMALL} WHERE speed IN ({', '.join(map(str, range(300)))})", "values")
    await service.queries.add(f"{SMALL} WHERE sensor IN ('{'x' * 2_000}', 'm1')", "text")
    await service.queries.add(SMALL, "after")
    found = decode_demand(service.link.published[-1].payload)
    assert [each.query for each in found.demands] == ["before", "values", "text", "after"]
    await service.queries.drop("values")
    found = decode_demand(service.link.published[-1].payload)
    assert [each.query for each in found.demands] == ["before", "text", "after"]


async def test_a_query_whose_demand_no_proxy_could_decode_is_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.queries.add(SMALL, "before")
    epoch, published = service.registry.plan.epoch, len(service.link.published)

    def demand(query: str, node: Node) -> dict[str, tuple[QueryDemand, ...]]:
        return {"traffic": (QueryDemand(query, ("speed",), 2**50),)} if node != plan(SMALL) else {}

    with monkeypatch.context() as patch:
        patch.setattr("cluster.physical.rules.sensor_demands.demands_of", demand)
        with pytest.raises(DemandError, match=r"no proxy could read the demand.*31622400000000") as caught:
            await service.queries.add(SMALL, "bad")
    assert caught.value.hint
    assert (service.registry.plan.epoch, len(service.link.published)) == (epoch, published)
    await service.queries.add(SMALL, "after")
    assert [each.query for each in decode_demand(service.link.published[-1].payload).demands] == ["before", "after"]


async def test_the_newest_query_is_refused_where_there_is_no_room(service: Service) -> None:
    await service.queries.add(SMALL, "q1")
    used = service.queries.demands.pieces("traffic").size_bytes
    service.queries.demands._max_bytes = used + 165
    await service.queries.add("SELECT speed FROM traffic", "q2")
    before = service.link.published[-1].payload
    with pytest.raises(TooManyDemandsError, match="no room for another demand on stream 'traffic'") as caught:
        await service.queries.add(f"{SMALL} WHERE speed > 1", "q3" * 30)
    assert "drop queries" in str(caught.value.hint)
    await service.queries.publish_all_demands()
    assert service.link.published[-1].payload == before
    await service.queries.drop("q1")
    await service.queries.add("SELECT speed FROM traffic", "q4")


async def test_a_registered_query_whose_demand_cannot_be_published_is_shown(service: Service) -> None:
    query, _ = await service.queries.add(SMALL, "old")
    service.registry.drop("old", {})
    service.registry.add("old", SMALL, _with(2**50), {"traffic": 0})
    await service.queries.add(SMALL, "good")
    found = decode_demand(service.link.published[-1].payload)
    assert [each.query for each in found.demands] == ["good"]
    assert "no proxy could read" in service.queries.demands.left_out["traffic"]["old"]
    await service.queries.drop("old")
    assert service.queries.demands.left_out["traffic"] == {}
    assert service.link.published[-1].topic == topics.demand("traffic")
    assert query.name == "old"


class Assembled(NamedTuple):
    """The demand on a stream, its encoding as one message, and by query why its demand is left out."""

    demand: StreamDemand
    payload: bytes
    left_out: Mapping[str, str]


def assembled(demands: PublishedDemands, known: StreamDemand, queries: Sequence[Subscriber]) -> Assembled:
    """Return the demand of queries, the oldest first, as proxies can decode it as a whole."""
    demands.follow(tuple(queries))
    entries = demands.pieces("traffic").ordered()
    demand = replace(known, demands=tuple(each.demand for each in entries))
    return Assembled(demand, encode_demands(known, [each.payload for each in entries]), demands.left_out["traffic"])


def test_a_thousand_queries_about_hundreds_of_sensors_each_fit() -> None:
    demands = PublishedDemands(MAX_DEMAND_BYTES)
    plans = [plan(listing(number)) for number in range(4)]
    running = [running_query(f"q{number}", plans[number % 4], number) for number in range(1_000)]
    found = assembled(demands, NOTHING, running)
    assert found.left_out == {}
    assert len(found.payload) <= MAX_DEMAND_BYTES
    read = decode_demand(found.payload)
    assert read == found.demand
    assert [each.query for each in read.demands] == [each.query for each in running]
    # The first queries demand exactly what they need, the last more; none less.
    assert len(read.demands[0].sensors) == 256
    assert len(read.demands[-1].sensors) < 256
    for number in (0, 500, 999):
        sensors = read.demands[number].sensors
        names = [f"sensor-{number % 4:04}-{place:03}" for place in range(300)]
        assert not sensors or all(any(each.holds(name) for each in sensors) for name in names)


def test_another_query_does_not_change_the_demands_before_it() -> None:
    node = plan(listing(0))
    running = [running_query(f"q{number}", node, number) for number in range(12)]
    demands = PublishedDemands(max_bytes=1_800_000)
    all_of_them = assembled(demands, NOTHING, running).demand.demands
    for count in range(12):
        assert assembled(demands, NOTHING, running[:count]).demand.demands == all_of_them[:count]
    assert assembled(PublishedDemands(max_bytes=1_800_000), NOTHING, running).demand.demands == all_of_them


@pytest.mark.parametrize("before", [0, 2])
def test_many_queries_come_slice_by_slice_and_others_meanwhile(before: int) -> None:
    node = plan(listing(0))
    running = tuple(running_query(f"q{number}", node, number) for number in range(12))
    whole = assembled(PublishedDemands(), NOTHING, running)
    demands = PublishedDemands()
    assert demands.follow(running[:before], most=5)
    assert not demands.follow(running[: before + 6], most=5)
    assert len(demands.pieces("traffic")) == before + 5
    assert demands.follow(running[1 : before + 6]), "one that goes, among those that have come"
    assert demands.follow(running[: before + 6], most=5)
    turns = 1
    while not demands.follow(running, most=5):
        turns += 1
    assert turns == 2 - before // 2
    assert assembled(demands, NOTHING, running) == whole


def test_the_assembled_message_equals_the_whole_demand_encoded() -> None:
    declared = StreamDemand(VERSION, "cluster", "traffic", 3, (), ROADS, "p")
    running = [running_query("a", plan(SMALL)), running_query("b", plan(f"{SMALL} WHERE road = 'A1'"), 2)]
    found = assembled(PublishedDemands(), declared, running)
    assert found.payload == encode(found.demand)
    assert decode_demand(found.payload) == found.demand
    assert (found.demand.declared, found.demand.only) == (ROADS, "p")
