"""Requests are admitted before their bodies are read: over real sockets, byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from cluster.service.access.admission import MOST_HEAD_BYTES, Admission, Refusal
from cluster.service.access.tokens import Tokens
from cluster.service.client.api_client import ApiClient, RefusedError
from cluster.service.http.connections import ApiServer, ConnectionBounds, api_config, listen
from cluster.service.http.guard import LINGER_SECONDS, guarded
from cluster.service.http.request_bodies import MOST_BYTES, PIECE_BYTES
from protocols.security.tls import TlsFiles, client_context
from tests.cluster.service.conftest import Service, guarded_api

TOKEN = "the-right-token"
GOOD = {"sql": "SELECT sensor FROM traffic"}
PATIENCE = 10.0


class Server:
    """An API that is served on a port of this machine."""

    def __init__(self, port: int, admission: Admission, tls: TlsFiles | None = None) -> None:
        self.port = port
        self.admission = admission
        self._context = None if tls is None else client_context(TlsFiles(tls.authority))

    @property
    def refused(self) -> dict[Refusal, int]:
        return dict(self.admission.refused)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = None if self._context is None else "localhost"
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self._context, server_hostname=name)

    async def send(self, *pieces: bytes) -> tuple[int, dict[str, Any]]:
        """Send bytes in one connection; return status and body of the first response, without sending any more."""
        reader, writer = await self.connect()
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await response(reader)
        finally:
            writer.close()


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    async with asyncio.timeout(PATIENCE):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.lower().splitlines() if line.startswith("content-length")
        )
        return int(head.split()[1]), json.loads(await reader.readexactly(length))


@asynccontextmanager
async def served(
    service: Service, token: str | Tokens | None = TOKEN, *, tls: TlsFiles | None = None, **settings: Any
) -> AsyncIterator[Server]:
    admission = Admission(token if isinstance(token, Tokens) else Tokens(token))
    bounds = {name: settings.pop(name) for name in ("head_seconds", "most_connections") if name in settings}
    api = guarded_api(service.parts(), admission, **settings)
    own = None if tls is None else TlsFiles(None, tls.certificate, tls.key)
    server = ApiServer(api_config(api, ConnectionBounds(admission.count, **bounds), tls=own))
    listening = listen("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)
        yield Server(listening.getsockname()[1], admission, tls)
    finally:
        server.should_exit = True
        await serving


@pytest.fixture
async def server(service: Service) -> AsyncIterator[Server]:
    async with served(service) as found:
        yield found


def head(method: str = "POST", path: str = "/v1/queries", **headers: str) -> bytes:
    lines = {"Host": "127.0.0.1", "Content-Type": "application/json", **headers}
    written = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{written}\r\n".encode()


@pytest.mark.parametrize("token", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic " + TOKEN}])
@pytest.mark.parametrize("length", ["1000000000000", "2000"])
async def test_a_wrong_token_is_refused_before_a_byte_of_the_body_is_sent(
    server: Server, token: dict[str, str], length: str
) -> None:
    status, body = await server.send(head(Content_Length=length, **token))
    assert (status, body["hint"]) == (401, "set FJORD_API_TOKEN")
    assert server.refused == {Refusal.TOKEN: 1}


async def test_a_body_in_chunks_is_not_waited_for_either(server: Server) -> None:
    status, _ = await server.send(head(Transfer_Encoding="chunked"))
    assert status == 401


async def test_a_body_with_two_lengths_is_refused(server: Server) -> None:
    both = head(Transfer_Encoding="chunked", Content_Length="4", Authorization="Bearer " + TOKEN)
    status, body = await server.send(both + b"0\r\n\r\n")
    assert (status, body["hint"]) == (400, "send one of the two")
    assert server.refused == {Refusal.SIZE: 1}


async def test_a_client_that_asks_first_sends_no_body(server: Server) -> None:
    status, _ = await server.send(head(Content_Length="1000", Expect="100-continue"))
    assert status == 401, "and not 100"
    status, _ = await server.send(
        head(Content_Length="1000", Expect="100-continue", Authorization="Bearer " + TOKEN, Host="rebound.example")
    )
    assert status == 421


async def test_the_reason_reaches_a_client_that_is_still_sending(server: Server) -> None:
    # Without lingering, the connection would be reset under a body that fills the buffers of the sockets.
    def post() -> None:
        with ApiClient(f"http://127.0.0.1:{server.port}", token="wrong") as client:
            client.add(" " * 8_000_000)

    with pytest.raises(RefusedError, match="does not know this token"):
        await asyncio.to_thread(post)


async def test_a_connection_is_not_reset_at_once_under_a_body_that_is_still_sent(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(head(Content_Length="100000"))
    assert (await response(reader))[0] == 401
    for _ in range(10):
        writer.write(b" " * 1000)
        await writer.drain()
        await asyncio.sleep(0.02)
        assert not reader.at_eof()
    writer.write(b" " * 90_000)
    async with asyncio.timeout(PATIENCE):
        assert await reader.read() == b"", "it ends as soon as the body does"
    writer.close()


async def test_an_endless_body_of_a_stranger_ends(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(head(Content_Length="1000000000000"))
    assert (await response(reader))[0] == 401

    async def flood() -> None:
        with suppress(OSError):
            while True:
                writer.write(b" " * 65536)
                await writer.drain()
                await asyncio.sleep(0.01)

    async with asyncio.timeout(LINGER_SECONDS + PATIENCE):
        await flood()
    writer.close()


async def test_the_right_token_is_let_in(server: Server) -> None:
    body = json.dumps(GOOD).encode()
    authorised = head(Content_Length=str(len(body)), Authorization="bearer " + TOKEN)
    status, added = await server.send(authorised, body)
    assert (status, added["name"]) == (201, "q1")
    assert server.refused == {}


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
async def test_a_connection_of_a_stranger_ends_with_its_first_answer(server: Server, path: str) -> None:
    reader, writer = await server.connect()
    writer.write(head("GET", path) * 3)
    async with asyncio.timeout(PATIENCE / 3):  # well before a connection that is idle ends
        assert (await reader.read()).count(b"HTTP/1.1 200 ") == 1
    writer.close()
    reader, writer = await server.connect()
    for _ in range(2):
        writer.write(head("GET", "/openapi.json", Authorization="Bearer " + TOKEN))
        assert (await response(reader))[0] == 200
    writer.close()


async def test_two_tokens_are_none(server: Server) -> None:
    second = f"\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    both = head("GET", Authorization="Bearer " + TOKEN).replace(b"\r\n\r\n", second)
    assert (await server.send(both))[0] == 401


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_other_names_are_refused_with_and_without_tokens(service: Service, token: str | None) -> None:
    async with served(service, token) as server:
        authorised = {"Authorization": "Bearer " + TOKEN}
        for host in ("rebound.example", "rebound.example:8642", "localhost.rebound.example", "127.0.0.1.nip.io", ""):
            status, body = await server.send(head(Content_Length="1000", **{**authorised, "Host": host}))
            assert status == 421
            assert "--api-allowed-host" in body["hint"]
        assert server.refused == {Refusal.HOST: 5}
        for host in ("localhost", f"localhost:{server.port}", f"127.0.0.1:{server.port}", "[::1]", "LOCALHOST."):
            status, _ = await server.send(head("GET", Content_Length="0", **{**authorised, "Host": host}))
            assert status == 200


async def test_a_request_without_a_host_is_refused(service: Service) -> None:
    async with served(service, None) as server:
        assert (await server.send(b"GET /v1/queries HTTP/1.0\r\n\r\n"))[0] == 421


@pytest.mark.parametrize(
    "origin",
    [
        *("https://evil.example", "null", "http://127.0.0.1.evil.example", "file://"),
        *("http://127.0.0.1:3000", "https://127.0.0.1", "http://localhost"),
    ],
)
async def test_pages_of_other_sites_are_refused(service: Service, origin: str) -> None:
    # A page sends this without asking first: it has no content type. The host is right.
    async with served(service, None) as server:
        body = json.dumps(GOOD).encode()
        simple = head(Content_Length=str(len(body)), Origin=origin).replace(b"Content-Type: application/json\r\n", b"")
        assert (await server.send(simple, body))[0] == 403
        assert server.refused == {Refusal.ORIGIN: 1}
        own = head("GET", Origin=f"http://localhost:{server.port}", Host=f"localhost:{server.port}")
        assert (await server.send(own))[0] == 200


async def test_a_body_that_does_not_arrive_is_not_waited_for(service: Service) -> None:
    async with served(service, None, body_seconds=0.3) as server:
        status, body = await server.send(head(Content_Length="1000"), b'{"sql"')
        assert (status, body["error"]) == (408, "RequestTooSlowError")
        reader, writer = await server.connect()
        writer.write(head(Content_Length="1000"))

        async def trickle() -> None:
            with suppress(OSError):
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        assert (await response(reader))[0] == 408
        trickling.cancel()
        writer.close()
        assert server.refused == {Refusal.SLOW: 2}


@pytest.mark.parametrize("begins", [b"", b"GET /v1/queries HTTP/1.1\r\nHost: loc"])
async def test_a_head_that_does_not_arrive_is_not_waited_for(service: Service, begins: bytes) -> None:
    async with served(service, None, head_seconds=0.3) as server:
        reader, writer = await server.connect()
        writer.write(begins)

        async def trickle() -> None:
            with suppress(OSError):
                while begins:
                    writer.write(b"a")
                    await writer.drain()
                    await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        trickling.cancel()
        writer.close()
        assert server.refused == {Refusal.SLOW: 1}


async def test_the_head_of_a_later_request_has_the_same_time(service: Service) -> None:
    async with served(service, None, head_seconds=0.3) as server:
        reader, writer = await server.connect()
        writer.write(head("GET"))
        assert (await response(reader))[0] == 200
        for _ in range(3):  # longer than one head may take, but these are two
            await asyncio.sleep(0.15)
            writer.write(head("GET"))
            assert (await response(reader))[0] == 200
        assert server.refused == {}
        writer.write(b"GET /v1")
        for _ in range(20):
            await asyncio.sleep(0.05)
            writer.write(b"a")
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        assert server.refused == {Refusal.SLOW: 1}


async def test_a_head_that_is_too_large_is_refused(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(b"GET /v1/sensors?where=" + b"x" * (MOST_HEAD_BYTES + 1))
    async with asyncio.timeout(PATIENCE):
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()


async def test_a_complete_head_that_is_too_large_is_refused_before_its_token_is_looked_at(server: Server) -> None:
    """The web server bounds only what it waits for: 70 KB that came at once were let through."""
    headers = "".join(f"X-Filler-{place}: {'x' * 700}\r\n" for place in range(100))
    status, body = await server.send(f"GET /v1/queries HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    assert (status, server.refused) == (400, {Refusal.SIZE: 1})
    assert "longer than 65,536 bytes" in body["message"]


async def test_the_longest_query_of_sensors_fits_into_a_head(service: Service) -> None:
    async with served(service, None) as server:
        status, body = await server.send(head("GET", "/v1/sensors?where=" + "%C3%A4" * 9_000))
        assert (status, body["error"]) == (400, "FjordSqlError")


async def test_there_are_only_so_many_connections(service: Service) -> None:
    async with served(service, None, most_connections=3) as server:
        opened = [await server.connect() for _ in range(4)]
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                assert await opened[0][0].read() == b""  # the oldest gives way
        assert server.refused == {Refusal.CONNECTIONS: 1}
        for _, each in opened:
            each.close()
        await asyncio.sleep(0.1)
        assert (await server.send(head("GET")))[0] == 200


async def test_a_large_body_is_refused_and_counted(server: Server) -> None:
    status, _ = await server.send(
        head(Content_Length=str(MOST_BYTES + 2), Authorization="Bearer " + TOKEN), b" " * (MOST_BYTES + 1)
    )
    assert status == 413
    assert server.refused == {Refusal.SIZE: 1}


async def test_refusals_are_metrics_and_in_the_status(server: Server) -> None:
    await server.send(head())
    reader, writer = await server.connect()
    writer.write(head("GET", "/metrics", Authorization="Bearer " + TOKEN, Connection="close"))
    text = (await reader.read()).decode()
    writer.close()
    assert 'fjord_api_refused_total{reason="token"} 1.0' in text
    assert {f'reason="{each}"' for each in Refusal} == {
        line.partition("{")[2].partition("}")[0]
        for line in text.splitlines()
        if line.startswith("fjord_api_refused_total{")
    }
    _, status = await server.send(head("GET", "/v1/status", Authorization="Bearer " + TOKEN))
    assert status["api"] == {"tokens": {"required": True, "known": 1, "trouble": None}, "refused": {"token": 1}}


async def test_long_answers_leave_in_pieces() -> None:
    sent: list[dict[str, Any]] = []

    async def long_answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(2 * PIECE_BYTES + 1)})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/v1/queries", "scheme": "http"}
    await guarded(long_answer, Admission())({**scope, "headers": [(b"host", b"127.0.0.1")]}, receive, send)
    assert [len(each["body"]) for each in sent if "body" in each] == [PIECE_BYTES, PIECE_BYTES, 1]
