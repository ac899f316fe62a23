"""Which connections to the API give way where there are too many: those without a token, and of the greediest token.

Over real sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster.service.access.admission import Admission, Refusal
from cluster.service.access.roles import Role
from cluster.service.access.tokens import Caller, Tokens, new_token
from cluster.service.http.connections import RECOGNISE, network_of
from tests.cluster.service.conftest import guarded_api
from tests.cluster.service.test_api_guard import PATIENCE, TOKEN, Server, head, response, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.service.conftest import Service

MOST = 6
SHOWN = {"Authorization": "Bearer " + TOKEN}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(server: Server, address: str = "127.0.0.1") -> Streams:
    return await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))


async def status(streams: Streams, path: str = "/v1/queries", **headers: str) -> int:
    reader, writer = streams
    writer.write(head("GET", path, **headers))
    return (await response(reader))[0]


async def is_closed(streams: Streams) -> bool:
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionError):
            return await streams[0].read() == b""
    return True


async def is_open(streams: Streams) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            with contextlib.suppress(ConnectionError):
                await streams[0].read(1)
            return False
    return True


async def close(*opened: Streams) -> None:
    for _, writer in opened:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def closing(*opened: Streams) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await close(*opened)


@pytest.mark.parametrize("begins", [b"", b"GET /v1/queries HTTP/1.1\r\n"])
async def test_a_token_is_let_in_while_a_stranger_holds_all_connections(service: Service, begins: bytes) -> None:
    async with served(service, most_connections=MOST) as server:
        held = [await connect(server) for _ in range(MOST)]
        for _, writer in held:
            writer.write(begins)
        await asyncio.sleep(0.1)
        own = await connect(server)
        async with closing(*held, own):
            assert await status(own, **SHOWN) == 200
            assert await is_closed(held[0])
            assert server.refused == {Refusal.CONNECTIONS: 1}


async def test_a_connection_with_a_token_does_not_give_way(service: Service) -> None:
    async with served(service, most_connections=MOST) as server:
        own = await connect(server)
        assert await status(own, **SHOWN) == 200
        flood = [await connect(server) for _ in range(3 * MOST)]
        async with closing(*flood, own):
            assert await status(own, **SHOWN) == 200
            assert server.refused == {Refusal.CONNECTIONS: 2 * MOST + 1}


async def test_a_token_takes_places_from_itself_the_longest_idle_first(service: Service) -> None:
    async with served(service, most_connections=8) as server:
        known = [await connect(server) for _ in range(6)]
        for each in known:
            assert await status(each, **SHOWN) == 200
        assert await status(known[0], **SHOWN) == 200
        more = await connect(server)
        async with closing(*known, more):
            assert await status(more, **SHOWN) == 200
            assert await is_closed(known[1]), "the first one has had another request since"
            for each in (known[0], *known[2:], more):
                assert await status(each, **SHOWN) == 200
            assert server.refused == {Refusal.SHARE: 1}


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[Tokens, dict[Role, dict[str, str]]]:
    drawn = {role: new_token(role.value, role) for role in Role}
    file = tmp_path / "tokens.toml"
    file.write_text("\n".join(entry.toml for _, entry in drawn.values()))
    return Tokens(file=file), {role: {"Authorization": f"Bearer {token}"} for role, (token, _) in drawn.items()}


async def test_a_token_that_holds_all_it_may_shuts_out_no_other_one(
    service: Service, tokens: tuple[Tokens, dict[Role, dict[str, str]]]
) -> None:
    known, shown = tokens
    async with served(service, known, most_connections=8) as server:
        greedy = []
        for _ in range(8):
            greedy.append(await connect(server, "127.0.0.2"))
            assert await status(greedy[-1], **shown[Role.READ]) == 200
        silent = [await connect(server, "127.0.0.2") for _ in range(6)]  # all of the places that are left, and more
        own = [await connect(server), await connect(server)]
        async with closing(*greedy, *silent, *own):
            for each, role in zip(own, (Role.ADMIN, Role.QUERY), strict=True):
                assert await status(each, **shown[role]) == 200
            assert [await is_closed(each) for each in greedy[:4]] == [True] * 4
            for _ in range(8):
                greedy.append(await connect(server, "127.0.0.2"))
                assert await status(greedy[-1], **shown[Role.READ]) == 200
            async with closing(*greedy):
                for each, role in zip(own, (Role.ADMIN, Role.QUERY), strict=True):
                    assert await status(each, **shown[role]) == 200, "the greedy one takes places from itself"


async def test_slow_clients_of_one_token_shut_out_no_other_one(
    service: Service, tokens: tuple[Tokens, dict[Role, dict[str, str]]]
) -> None:
    known, shown = tokens
    async with served(service, known, most_connections=8) as server:
        slow = [await connect(server) for _ in range(6)]
        for _, writer in slow:
            writer.write(head("POST", "/v1/queries", Content_Length="1000", **shown[Role.QUERY]))
            await asyncio.sleep(0.02)
        own = await connect(server)
        async with closing(*slow, own):
            assert await status(own, **shown[Role.ADMIN]) == 200
            assert await is_closed(slow[0])
            assert [await is_open(each) for each in slow[1:]] == [True] * 5
            assert server.refused == {Refusal.SHARE: 1}


async def test_a_request_that_has_no_place_is_refused_with_the_reason(service: Service) -> None:
    admission, sent = Admission(Tokens(TOKEN)), list[MutableMapping[str, Any]]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    shown = [(b"host", b"localhost"), (b"authorization", SHOWN["Authorization"].encode())]
    scope = {"type": "http", "scheme": "http", "method": "GET", "path": "/v1/queries", "headers": shown}
    callers: list[Caller] = []
    scope["state"] = {RECOGNISE: callers.append}  # which returns nothing
    await guarded_api(service.parts(), admission)(scope, receive, send)
    assert [each["status"] for each in sent if "status" in each] == [429]
    assert b"this token has most of them" in b"".join(each.get("body", b"") for each in sent)
    assert callers == [Caller("FJORD_API_TOKEN", Role.ADMIN)]
    assert admission.refused == {Refusal.SHARE: 1}


@pytest.mark.parametrize("shown", [{}, {"Authorization": "Bearer wrong"}])
async def test_a_wrong_token_makes_no_client_known(service: Service, shown: dict[str, str]) -> None:
    async with served(service, most_connections=MOST) as server:
        # The answers are not sent to their end: bodies that were announced are thrown away for a while.
        held = [await connect(server) for _ in range(MOST)]
        for _, writer in held:
            writer.write(head(Content_Length="1000", **shown))
        for reader, _ in held:
            assert (await response(reader))[0] == 401
        own = await connect(server)
        async with closing(*held, own):
            assert await status(own, **SHOWN) == 200


async def test_pages_without_a_token_make_nobody_known(service: Service) -> None:
    async with served(service, most_connections=MOST) as server:
        held = [await connect(server) for _ in range(MOST)]
        for _, writer in held:
            writer.write(head("GET", "/openapi.json") + b"GET ")
        own = await connect(server)
        async with closing(*held, own):
            assert await status(own, **SHOWN) == 200


async def test_a_flood_takes_its_places_from_itself(service: Service) -> None:
    async with served(service, most_connections=MOST) as server:
        slow = [await connect(server, "127.0.0.2") for _ in range(2)]  # older than all others, and without a token yet
        flood = [await connect(server, "127.0.0.3") for _ in range(5 * MOST)]
        async with closing(*slow, *flood):
            assert [await is_open(each) for each in slow] == [True, True]
            assert [await status(each, **SHOWN) for each in slow] == [200, 200]


async def test_places_are_free_again(service: Service) -> None:
    async with served(service, most_connections=MOST) as server:
        for _ in range(3 * MOST):
            streams = await connect(server)
            assert await status(streams, **SHOWN) == 200
            await close(streams)
            await asyncio.sleep(0.02)
        for _ in range(3 * MOST):
            streams = await connect(server)
            await close(streams)
            await asyncio.sleep(0.02)
        assert server.refused == {}


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("192.0.2.7", "192.0.2.8", False),
        ("2001:db8::7", "2001:db8::ffff:8", True),  # a client of IPv6 has all of these
        ("2001:db8::7", "2001:db8:0:1::7", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        (None, "192.0.2.7", False),
    ],
)
def test_addresses_of_one_client_count_together(one: str | None, other: str, together: bool) -> None:
    assert (network_of(one) == network_of(other)) is together
