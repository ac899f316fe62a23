"""Demands are published as they change: one piece and the head, whatever else runs; proxies that lack pieces get them.

cluster   add q5      piece 17, head      -> broker      17 and the head; the other pieces are there already
proxy     request 17                      -> cluster     17 and the head once more
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from cluster.service.publishing import published_demands
from cluster.service.publishing.demand_publication import MOST_STREAMS, DemandRequests
from protocols.mqtt.link import LinkError, Message
from protocols.wire import topics
from protocols.wire.demands import DemandRequest, piece_of
from protocols.wire.frames import VERSION, encode
from proxy.fleet.demand_assembly import Assembled, DemandAssembly

if TYPE_CHECKING:
    from tests.cluster.service.conftest import Service

SMALL = "SELECT sensor, speed FROM traffic WHERE speed < {}"


@pytest.fixture(autouse=True)
def _pieces_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_demands, "WHOLE_BYTES", 0)


@pytest.fixture
async def four(service: Service) -> Service:
    """Return a service with four queries, of which no message has been looked at."""
    service.registry._max_queries = 100
    for number in range(4):
        await service.queries.add(SMALL.format(number), f"q{number}")
    return service


def read(assembly: DemandAssembly, messages: list[Message]) -> Assembled | None:
    found = None
    for message in messages:
        assert message.retain
        topic = topics.parse(message.topic)
        if topic.kind == "demand":
            found = assembly.receive_head(message.payload, 0) or found
        else:
            found = assembly.receive_piece(int(topic.names[1]), message.payload) or found
    return found


def names(found: Assembled | None) -> list[str]:
    assert found is not None
    return [each.query for each in found.demand.demands]


def request(numbers: tuple[int, ...], stream: str = "traffic") -> Message:
    return Message(topics.demand_request("p", stream), encode(DemandRequest(VERSION, "p", stream, numbers)))


async def test_a_change_is_one_piece_and_the_head(four: Service) -> None:
    assembly = DemandAssembly("traffic")
    assert names(read(assembly, four.link.published)) == ["q0", "q1", "q2", "q3"]
    four.link.published.clear()
    await four.queries.add(SMALL.format(7), "new")
    wanted = [topics.demand_piece("traffic", piece_of("new")), topics.demand("traffic")]
    assert [each.topic for each in four.link.published] == wanted
    assert names(read(assembly, four.link.published)) == ["q0", "q1", "q2", "q3", "new"]
    four.link.published.clear()
    await four.queries.drop("q1")
    assert four.link.published[0] == Message(topics.demand_piece("traffic", piece_of("q1")), b"", retain=True)
    assert names(read(assembly, four.link.published)) == ["q0", "q2", "q3", "new"]


async def test_all_pieces_are_published_again_on_each_connect(four: Service) -> None:
    four.link.published.clear()
    await four.queries.publish_all_demands()
    assert names(read(DemandAssembly("traffic"), four.link.published)) == ["q0", "q1", "q2", "q3"]
    assert len(four.link.published) == 5
    # So does a cluster that was restarted.
    four.link.published.clear()
    await four.started().publish_all_demands()
    assert names(read(DemandAssembly("traffic"), four.link.published)) == ["q0", "q1", "q2", "q3"]


async def test_what_was_not_published_is_published_with_the_next(four: Service) -> None:
    assembly = DemandAssembly("traffic")
    read(assembly, four.link.published)
    four.link.published.clear()
    four.link.away = True
    await four.queries.add(SMALL.format(8), "unpublished")
    four.link.away = False
    await four.queries.add(SMALL.format(9), "next")
    assert names(read(assembly, four.link.published))[-2:] == ["unpublished", "next"]


async def test_a_head_is_never_older_than_its_pieces(four: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """While all pieces are published again, slowly, another query begins."""
    going, published = asyncio.Event(), four.link.published
    published.clear()

    async def publish(message: Message) -> None:
        published.append(message)
        if not going.is_set() and len(published) == 2:
            going.set()
            await asyncio.sleep(0)

    monkeypatch.setattr(four.link, "publish", publish)
    again = asyncio.create_task(four.queries.publish_all_demands())
    await going.wait()
    await four.queries.add(SMALL.format(5), "meanwhile")
    await again
    heads = [each for each in published if each.topic == topics.demand("traffic")]
    assembly = DemandAssembly("traffic")
    assert names(read(assembly, published))[-1] == "meanwhile"
    last = DemandAssembly("traffic")
    retained = {each.topic: each for each in published}
    assert names(read(last, list(retained.values()))) == ["q0", "q1", "q2", "q3", "meanwhile"]
    assert len(heads) == 2


async def test_requested_pieces_are_published_once_however_many_ask(four: Service) -> None:
    four.link.published.clear()
    number = piece_of("q2")
    topic = topics.parse(topics.demand_request("p", "traffic"))
    for _ in range(3):
        four.queries.demand_requests.handle(request((number, 3)), topic)
    # Nothing is known of this stream, so nothing is published.
    four.queries.demand_requests.handle(request((1,), "other"), topics.parse(topics.demand_request("p", "other")))
    assert four.queries.demand_requests
    await four.queries._publication.answer()
    assert [each.topic for each in four.link.published] == [
        topics.demand_piece("traffic", number),
        topics.demand("traffic"),
    ]
    assert not four.queries.demand_requests
    assert not four.queries.demands.known("other")


def test_bad_requests_are_rejected_and_counted() -> None:
    requests = DemandRequests()
    topic = topics.parse(topics.demand_request("p", "traffic"))
    requests.handle(Message(topics.demand_request("p", "traffic"), b"\xc1"), topic)
    requests.handle(request((1,), "other"), topic)
    requests.handle(request((1,)), topics.parse(topics.demand("traffic")))
    assert not requests
    for number in range(MOST_STREAMS + 1):
        each = f"s{number}"
        requests.handle(request((1,), each), topics.parse(topics.demand_request("p", each)))
    assert requests.rejected == {"garbled": 1, "identity": 1, "full": 1}
    assert len(requests.take()) == MOST_STREAMS


async def test_the_registry_is_written_beside_the_event_loop(four: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, int] = {}

    def seen(name: str, work: Any) -> Any:
        def run(*arguments: Any, **named: Any) -> Any:
            threads[name] = threading.get_ident()
            return work(*arguments, **named)

        return run

    monkeypatch.setattr(four.registry, "add", seen("add", four.registry.add))
    monkeypatch.setattr(four.registry, "drop", seen("drop", four.registry.drop))
    await four.queries.add(SMALL.format(6), "q6")
    await four.queries.drop("q6")
    assert threads.keys() == {"add", "drop"}
    assert threading.get_ident() not in threads.values()


async def test_a_cancelled_request_leaves_no_half_of_a_query(four: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on, add = threading.Event(), threading.Event(), four.registry.add

    def slow(*arguments: Any, **named: Any) -> Any:
        entered.set()
        assert go_on.wait(60)
        return add(*arguments, **named)

    monkeypatch.setattr(four.registry, "add", slow)
    adding = asyncio.create_task(four.queries.add(SMALL.format(6), "slow"))
    await asyncio.to_thread(entered.wait, 60)
    adding.cancel()
    following = asyncio.create_task(four.queries.drop("slow"))
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await adding
    await following
    assert [each.name for each in four.registry.queries()] == ["q0", "q1", "q2", "q3"]
    assert four.plans.read(four.registry.epoch) == four.registry.physical


async def test_many_queries_begin_with_one_epoch(four: Service) -> None:
    epoch = four.registry.epoch
    texts = [SMALL.format(20 + number) for number in range(3)]
    distinct = "SELECT DISTINCT lane FROM traffic WINDOW(RANGE 1 MINUTE)"
    assembly = DemandAssembly("traffic")
    read(assembly, four.link.published)
    four.link.published.clear()
    found = await four.queries.add_many([("d", distinct), *((f"m{n}", text) for n, text in enumerate(texts))])
    assert [(each.name, each.since_epoch - epoch) for each in found] == [("d", 2), ("m0", 1), ("m1", 1), ("m2", 1)]
    assert [each.name for each in four.registry.queries()] == ["q0", "q1", "q2", "q3", "m0", "m1", "m2", "d"]
    assert four.plans.read(epoch + 1).epoch == epoch + 1
    assert names(read(assembly, four.link.published)) == [each.name for each in four.registry.queries()]
    await four.queries.drop("m1")
    again = type(four.registry)(four.registry.folder / "registry.sqlite", four.plans)
    assert again.queries() == four.registry.queries()
    assert again.physical == four.registry.physical


async def test_rates_that_hardly_change_leave_estimates_as_they_are(
    four: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter([100.0, 105.0, 95.0, 111.0, 120.0, 99.0])
    monkeypatch.setattr(type(four.ingest.writers["traffic"].table), "tuples_per_second", lambda _: next(rates))
    seen = [four.queries.limits.rates(frozenset({"traffic"}))["traffic"] for _ in range(6)]
    assert seen == [100.0, 100.0, 100.0, 111.0, 111.0, 99.0]


async def test_a_broker_that_goes_away_in_between_is_not_believed(four: Service) -> None:
    """The piece was published, the head was not: the proxy stays with what it has, until the next connection."""
    assembly, published = DemandAssembly("traffic"), four.link.published
    read(assembly, published)
    published.clear()

    async def publish(message: Message) -> None:
        if message.topic == topics.demand("traffic"):
            raise LinkError("not connected to the broker")
        published.append(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(four.link, "publish", publish)
        await four.queries.add(SMALL.format(6), "q6")
    assert read(assembly, published) is None
    published.clear()
    await four.queries.publish_all_demands()
    assert names(read(assembly, published))[-1] == "q6"
