"""Bytes that are no requests, or can be read in two ways, at the API's port; the next client is answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from cluster.service.access.admission import Refusal
from protocols.security.tls import TlsFiles
from tests.cluster.service.conftest import Service
from tests.cluster.service.test_api_guard import PATIENCE, TOKEN, Server, head, served

KEY = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
HOST = b"Host: localhost\r\n"
END = b"\r\n"
POST = b"POST /v1/explain HTTP/1.1\r\n" + HOST + KEY + b"Content-Type: application/json\r\n"
GET = b"GET /v1/queries HTTP/1.1\r\n" + HOST + KEY
BODY = b'{"sql":"SELECT speed FROM traffic"}'
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
SMUGGLED = b"DELETE /v1/queries/q HTTP/1.1\r\n" + HOST + KEY + END


def at(path: bytes, method: bytes = b"GET", version: bytes = b"HTTP/1.1", host: bytes = HOST) -> bytes:
    """A request without a body, with the token."""
    return b"%s %s %s\r\n%s%s\r\n" % (method, path, version, host, KEY)


def sized(size: bytes, name: bytes = b"Content-Length") -> bytes:
    """A request whose body has a size of so many bytes, as it says."""
    return POST + name + b": " + size + b"\r\n\r\n" + BODY


def chunked(written: bytes) -> bytes:
    """A request with chunks."""
    return POST + CHUNKED + END + written


RAW: dict[str, tuple[bytes, str]] = {
    # What a server before this one could read in another way: one body, or two requests.
    "one length": (sized(b"35"), "200"),
    "a length twice": (POST + b"Content-Length: 35\r\nContent-Length: 35\r\n\r\n" + BODY, "200"),
    "two lengths": (POST + b"Content-Length: 35\r\nContent-Length: 0\r\n\r\n" + SMUGGLED, "400"),
    "two lengths in one": (sized(b"35, 0"), "400"),
    "a negative length": (sized(b"-1"), "400"),
    "a length with a sign": (sized(b"+35"), "400"),
    "a length in hexadecimal": (sized(b"0x23"), "400"),
    "a length of another script": (sized("٣٥".encode()), "400"),
    "a length of forty digits": (sized(b"9" * 40), "400"),
    "a space behind the name of the length": (sized(b"35", b"Content-Length "), "400"),
    "chunks": (chunked(CHUNKS), "200"),
    "length and chunks": (POST + b"Content-Length: 35\r\n" + CHUNKED + END + CHUNKS, "400"),
    "chunks and length": (POST + CHUNKED + b"Content-Length: 4\r\n\r\n" + CHUNKS + SMUGGLED, "400"),
    "chunks twice": (POST + CHUNKED + CHUNKED + END + CHUNKS, "400"),
    "another coding": (POST + b"Transfer-Encoding: identity\r\n\r\n" + BODY, "400"),
    "two codings": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS, "400"),
    "a coding of another name": (POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS, "400"),
    "a coding behind an odd space": (POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS, "400"),
    "a space behind the name of the coding": (POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS, "400"),
    # Folded lines are one, as RFC 9112 allows; what is behind the body is no body, but another request.
    "a coding on a line of its own": (POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS, "200"),
    "a chunk of more than can be": (chunked(b"f" * 30 + b"\r\n" + BODY), "400"),
    "a negative chunk": (chunked(b"-1\r\n" + BODY), "400"),
    "a chunk in another form": (chunked(b"0x23\r\n" + BODY), "400"),
    "a chunk that is longer than it says": (chunked(b"22\r\n" + BODY + b"\r\n0\r\n\r\n"), "400"),
    "a chunk with an extension": (chunked(b"23;a=b\r\n" + BODY + b"\r\n0\r\n\r\n"), "200"),
    "headers behind the chunks": (chunked(b"23\r\n" + BODY + b"\r\n0\r\nAuthorization: x\r\n\r\n"), "200"),
    # Addresses
    "a whole address": (at(b"http://localhost/v1/queries"), "404"),
    "a whole address elsewhere": (at(b"http://evil.example/v1/queries"), "404"),
    "a path without a slash": (at(b"v1/queries"), "404"),
    "dots": (at(b"/v1/../v1/queries"), "404"),
    "no path": (at(b""), "400"),
    "a fragment": (at(b"/v1/queries#x"), "404"),
    "half an escape": (at(b"/v1/queries/%"), "404"),
    "no escape": (at(b"/v1/queries/%zz"), "404"),
    "an escape of no text": (at(b"/v1/queries/%ff%fe"), "404"),
    "an escaped NUL": (at(b"/v1/queries/%00"), "404"),
    "an escaped line": (at(b"/v1/queries/%0d%0aX:%20y"), "404"),
    "a NUL in the path": (at(b"/v1/queries/\0"), "400"),
    "a byte beyond ASCII in the path": (at(b"/v1/queries/\xff"), "400"),
    "a long path": (at(b"/" + b"a" * 200_000), "400"),
    # Methods
    "TRACE": (at(b"/v1/queries", b"TRACE"), "405"),
    "CONNECT": (at(b"localhost:443", b"CONNECT"), "404"),
    "OPTIONS": (at(b"*", b"OPTIONS"), "404"),
    "a method in small letters": (at(b"/v1/queries", b"get"), "405"),
    "a method with a NUL": (at(b"/v1/queries", b"G\0T"), "400"),
    "another method in a header": (at(b"/v1/queries/q", host=HOST + b"X-HTTP-Method-Override: DELETE\r\n"), "404"),
    # Headers
    "a NUL in a header": (GET + b"X: a\0b\r\n\r\n", "400"),
    "a CR in a header": (GET + b"X: a\rb\r\n\r\n", "400"),
    "a header without a name": (GET + b": a\r\n\r\n", "400"),
    "a header without a colon": (GET + b"nonsense\r\n\r\n", "400"),
    "a name beyond ASCII": (GET + b"X\xff: a\r\n\r\n", "400"),
    "a folded line before all others": (b"GET /v1/queries HTTP/1.1\r\n " + HOST + KEY + END, "400"),
    "many headers": (GET + b"".join(b"X%d: y\r\n" % each for each in range(50_000)) + END, "400"),
    "many headers with nothing in them": (GET + b"a:\r\n" * 16_400 + END, "400"),
    # Hosts
    "two hosts": (at(b"/v1/queries", host=HOST + HOST), "400"),
    "no host": (at(b"/v1/queries", host=b""), "400"),
    "a host behind a name": (at(b"/v1/queries", host=b"Host: evil@localhost\r\n"), "421"),
    "a name before a host": (at(b"/v1/queries", host=b"Host: localhost@evil\r\n"), "421"),
    "a host with a path": (at(b"/v1/queries", host=b"Host: localhost/evil\r\n"), "421"),
    "a port that cannot be": (at(b"/v1/queries", host=b"Host: localhost:99999999\r\n"), "421"),
    "hosts in a list": (at(b"/v1/queries", host=b"Host: localhost, evil\r\n"), "421"),
    "an address as a number": (at(b"/v1/queries", host=b"Host: 2130706433\r\n"), "421"),
    "a host of a server before": (
        at(b"/v1/queries", host=b"Host: evil\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n"),
        "421",
    ),
    # Other protocols
    "HTTP/0.9": (b"GET /v1/queries\r\n\r\n", "400"),
    "HTTP/1.0": (at(b"/v1/queries", version=b"HTTP/1.0"), "200"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", "421"),
    "HTTP/2 as an upgrade": (GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", "200"),
    "a websocket": (
        GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhl\r\n"
        b"Sec-WebSocket-Version: 13\r\n\r\n",
        "200",
    ),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), "400"),
    "MQTT": (b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x03abc", "400"),
    "all bytes": (bytes(range(256)) * 300, "400"),
    # Promises
    "a body that is waited for": (POST + b"Expect: 100-continue\r\nContent-Length: 35\r\n\r\n" + BODY, "100 200"),
    "another expectation": (POST + b"Expect: 999\r\nContent-Length: 35\r\n\r\n" + BODY, "200"),
}
"""What is sent, and with which status it is answered."""


async def outcome(server: Server, sent: bytes) -> str:
    """Send bytes on a connection of their own; return the statuses up to the first answer, or `closed`."""
    reader, writer = await server.connect()
    statuses: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write(sent)
            while not statuses or statuses[-1].startswith("1"):
                statuses.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode())
    except (asyncio.IncompleteReadError, ConnectionError):
        statuses.append("closed")
    finally:
        writer.transport.abort()
    return " ".join(statuses)


@pytest.fixture(params=["plain", "TLS"])
async def server(request: pytest.FixtureRequest, service: Service, tls: TlsFiles) -> AsyncIterator[Server]:
    async with served(service, tls=tls if request.param == "TLS" else None) as found:
        yield found


async def test_raw_requests_get_their_answer_and_the_next_client_its_own(server: Server) -> None:
    found = {}
    for name, (sent, _) in RAW.items():
        found[name] = await outcome(server, sent)
        assert await outcome(server, GET + END) == "200", name
    assert found == {name: status for name, (_, status) in RAW.items()}


async def test_what_is_no_request_is_counted(server: Server) -> None:
    for name in ("TLS", "a NUL in a header", "a negative chunk"):
        assert await outcome(server, RAW[name][0]) == "400"
    assert server.refused == {Refusal.FORM: 3}


async def test_no_request_hides_in_another_one(server: Server, service: Service) -> None:
    """Whatever is taken for the end of a body, what follows it is not executed."""
    added = b'{"sql":"SELECT speed FROM traffic","name":"q"}'
    assert await outcome(server, head(Content_Length=str(len(added)), Authorization="Bearer " + TOKEN) + added) == "201"
    for name in ("two lengths", "chunks and length"):
        await outcome(server, RAW[name][0])
    assert [each.name for each in service.registry.queries()] == ["q"]


async def test_a_thousand_requests_at_once_are_answered_in_order(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(b"".join(at(b"/v1/queries/%d" % each) for each in range(1000)))
    async with asyncio.timeout(3 * PATIENCE):
        for each in range(1000):
            answer_head = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await reader.readexactly(int(answer_head.split(b"content-length: ")[1].split()[0]))
            assert b"there is no query '%d'" % each in body
            if each % 100 == 0:
                assert await outcome(server, GET + END) == "200"
    writer.close()


async def test_bodies_that_do_not_arrive_hold_no_thread(service: Service) -> None:
    begun = [sized(b"1000"), chunked(b"f" * 16 + b"\r\n"), chunked(b"23\n" + BODY)]
    async with served(service, body_seconds=0.5) as server:
        await outcome(server, GET + END)
        threads = threading.active_count()
        waiting = [asyncio.create_task(outcome(server, begun[each % 3])) for each in range(60)]
        while server.refused.get(Refusal.SLOW, 0) < 60:
            assert threading.active_count() <= threads
            assert await outcome(server, GET + END) == "200"
        assert set(await asyncio.gather(*waiting)) == {"408"}


async def test_hundreds_of_handshakes_that_do_not_end_take_the_places_of_each_other(
    service: Service, tls: TlsFiles
) -> None:
    async with served(service, tls=tls) as server:
        known, answered = await server.connect()
        answered.write(GET + END)
        await known.readuntil(b"\r\n\r\n")
        plain = Server(server.port, server.admission)
        begun = []
        for each in range(400):
            begun.append((await plain.connect())[1])
            with suppress(ConnectionError):
                begun[-1].write(b"\x16\x03\x01\x02\x00\x01"[: each % 7])
            if each % 100 == 99:
                assert await outcome(server, GET + END) == "200"
        assert server.refused.keys() == {Refusal.CONNECTIONS}
        assert server.refused[Refusal.CONNECTIONS] >= 400 - 256
        answered.write(GET + END)  # the connection that has shown a token is still there
        async with asyncio.timeout(PATIENCE):
            await known.readuntil(b"\r\n\r\n")
        for writer in (answered, *begun):
            writer.transport.abort()
