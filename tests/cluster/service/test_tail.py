"""Following a query's topic: every row once, in order, although the broker or the API is away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from cluster.service.client import tail as tailing
from cluster.service.client.api_client import ApiUnreachableError, RefusedError
from cluster.service.client.tail import tail
from protocols.mqtt.link import BrokerAddress, Message, MqttLink
from protocols.wire import topics
from proxy.broker import LocalBroker

SECONDS = 30.0


class Api:
    """Has stored rows, and is unreachable from time to time."""

    def __init__(self, stored: Sequence[int], away: Callable[[int], bool] = lambda _: False) -> None:
        self.stored = stored
        self.runs = self.admits = True
        self.requests = 0
        self._away = away

    def query(self, name: str) -> dict[str, Any]:
        if self._away(0):
            raise ApiUnreachableError("no cluster answers")
        if not self.runs:
            raise RefusedError({"error": "UnknownQueryError", "message": f"there is no query {name!r}"}, 404)
        if not self.admits:
            raise RefusedError({"error": "NotAdmittedError", "message": "the API asks for a token"}, 401)
        return {"name": name}

    def results(self, name: str, *, after: int, limit: int = 1000) -> list[dict[str, Any]]:
        self.requests += 1
        if self._away(self.requests):
            raise ApiUnreachableError("no cluster answers")
        return [{"query": name, "sequence": number} for number in self.stored if number > after]


async def shown(broker: LocalBroker, api: Api, published: Sequence[int], *, after: int | None, count: int) -> list[int]:
    """Return the numbers that are shown until there are so many."""
    numbers: list[int] = []
    first = asyncio.Event()

    def show(payload: bytes) -> None:
        numbers.append(msgspec.json.decode(payload)["sequence"])
        first.set()

    link = MqttLink(broker, client_id="publisher")
    publishing = asyncio.create_task(link.run(lambda _: asyncio.sleep(0)))
    await link.connected.wait()
    following = asyncio.create_task(tail("q", api, broker, after=after, count=count, show=show))  # type: ignore[arg-type] # a partial fake
    try:
        async with asyncio.timeout(SECONDS):
            while not first.is_set() and not following.done():  # it may not have subscribed yet
                await link.publish(message(published[0]))
                await asyncio.sleep(0.01)
            for number in published[1:]:
                await link.publish(message(number))
            await following
    finally:
        publishing.cancel()
        following.cancel()
    return numbers


def message(number: int) -> Message:
    return Message(topics.results("q"), msgspec.json.encode({"query": "q", "sequence": number}))


async def test_a_gap_is_filled_from_stored_results(broker: LocalBroker) -> None:
    assert await shown(broker, Api(range(1, 6)), [2, 5], after=None, count=4) == [2, 3, 4, 5]


async def test_a_gap_is_filled_although_the_api_is_away_for_a_while(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "PAUSE_SECONDS", 0.01)
    api = Api(range(1, 6), lambda requests: 0 < requests < 4)
    assert await shown(broker, api, [2, 5], after=None, count=4) == [2, 3, 4, 5]
    assert api.requests > 3


async def test_an_unreachable_api_is_an_error_at_once(broker: LocalBroker) -> None:
    with pytest.raises(ApiUnreachableError):
        await shown(broker, Api([], lambda _: True), [2], after=1, count=1)


@pytest.mark.parametrize("after", [None, 0])
async def test_an_unknown_name_is_an_error_before_the_broker_is_contacted(after: int | None) -> None:
    api = Api([])
    api.runs = False
    no_broker = BrokerAddress("127.0.0.1", 1)
    with pytest.raises(RefusedError, match="there is no query 'nosuch'"):
        async with asyncio.timeout(SECONDS):
            await tail("nosuch", api, no_broker, after=after, count=None, show=print)  # type: ignore[arg-type] # a partial fake


async def test_an_api_that_is_away_is_an_error_before_the_broker_is_contacted() -> None:
    with pytest.raises(ApiUnreachableError):
        async with asyncio.timeout(SECONDS):
            await tail(
                "q",
                Api([], lambda _: True),
                BrokerAddress("127.0.0.1", 1),
                after=None,
                count=None,
                show=print,  # type: ignore[arg-type] # a partial fake
            )


async def test_stored_results_of_a_dropped_query_are_shown(broker: LocalBroker) -> None:
    api = Api(range(1, 4))
    api.runs = False
    assert await shown(broker, api, [3], after=0, count=3) == [1, 2, 3]


async def test_without_a_token_rows_are_those_that_the_broker_delivers(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(tailing.log, "warning", lambda event, **values: logged.append((event, values)))
    api = Api(range(1, 6))
    api.admits = False
    assert await shown(broker, api, [2, 5], after=None, count=2) == [2, 5]
    assert api.requests == 0
    assert [event for event, _ in logged] == ["only what the broker delivers is shown", "rows were missed"]
    assert logged[1][1] == {"query": "q", "after": 2, "before": 5}


async def test_stored_rows_need_a_token() -> None:
    api = Api(range(1, 6))
    api.admits = False
    api.results = refused  # type: ignore[method-assign]
    with pytest.raises(RefusedError, match="asks for a token"):
        async with asyncio.timeout(SECONDS):
            await tail("q", api, BrokerAddress("127.0.0.1", 1), after=0, count=None, show=print)  # type: ignore[arg-type] # a partial fake


def refused(*_: Any, **__: Any) -> list[dict[str, Any]]:
    raise RefusedError({"message": "the API asks for a token"}, 401)
