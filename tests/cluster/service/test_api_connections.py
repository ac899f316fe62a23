"""What one client costs the API: handshakes that do not end, and answers that are not read. Over real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from cluster.service.access.admission import Refusal
from cluster.service.http.connections import ApiServer, ConnectionBounds, api_config, listen
from cluster.service.http.request_bodies import in_pieces
from protocols.security.tls import TlsFiles, client_context

PATIENCE = 10.0
SHORT = 0.4
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
MEBIBYTE = 1024 * 1024


class Server:
    """An API that answers every request with so many bytes."""

    def __init__(self, size: int, tls: TlsFiles | None) -> None:
        self.port = 0
        self.refused: Counter[Refusal] = Counter()
        self.answered = 0
        self._size = size
        self._tls = tls

    async def api(self, scope: Any, receive: Any, send: Any) -> None:
        length = str(self._size).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": b"a" * self._size})
        self.answered += 1

    def count(self, refusal: Refusal) -> None:
        self.refused[refusal] += 1

    async def silent(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, and nothing else."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = None if self._tls is None else client_context(TlsFiles(self._tls.authority))
        name = None if self._tls is None else "localhost"
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name)

    async def until(self, refusal: Refusal, count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.refused[refusal] < count:  # noqa: ASYNC110 - it counts, and has no event
                await asyncio.sleep(0.01)


@asynccontextmanager
async def served(
    size: int = 2, tls: TlsFiles | None = None, *, send_buffer: int | None = None, **settings: Any
) -> AsyncIterator[Server]:
    found = Server(size, tls)
    # As the API: a certificate of clients is not asked for.
    own = None if tls is None else TlsFiles(None, tls.certificate, tls.key)
    server = ApiServer(api_config(in_pieces(found.api), ConnectionBounds(found.count, **settings), tls=own))
    listening = listen("127.0.0.1", 0)
    if send_buffer is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)
        found.port = listening.getsockname()[1]
        yield found
    finally:
        server.should_exit = True
        async with asyncio.timeout(PATIENCE):
            await serving
        assert not server.server_state.connections


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("HTTP/1.1 200 ")
        length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
        return await reader.readexactly(length)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionError):
            return await reader.read() == b""
    return True


@pytest.mark.parametrize("begins", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_a_handshake_that_does_not_end_is_not_waited_for(tls: TlsFiles, begins: bytes) -> None:
    async with served(tls=tls, head_seconds=SHORT) as server:
        reader, writer = await server.silent()
        writer.write(begins)
        assert await is_closed(reader)
        writer.close()
        assert server.refused == {Refusal.SLOW: 1}


async def test_a_client_that_trickles_its_handshake_has_no_more_time(tls: TlsFiles) -> None:
    async with served(tls=tls, head_seconds=SHORT) as server:
        reader, writer = await server.silent()
        writer.write(b"\x16\x03\x01\x02\x00\x01")

        async def trickle() -> None:
            with suppress(OSError):
                while True:
                    writer.write(b"\x00")
                    await writer.drain()
                    await asyncio.sleep(SHORT / 10)

        trickling = asyncio.create_task(trickle())
        assert await is_closed(reader)
        trickling.cancel()
        writer.close()
        assert server.refused == {Refusal.SLOW: 1}


async def test_connections_in_their_handshake_are_connections(tls: TlsFiles) -> None:
    async with served(tls=tls, most_connections=3) as server:
        begun = [await server.silent() for _ in range(2)]
        reader, writer = await server.connect()  # the third
        begun += [await server.silent()]  # in the place of the first
        assert await is_closed(begun[0][0])
        assert server.refused == {Refusal.CONNECTIONS: 1}
        writer.write(REQUEST)
        assert await answer(reader) == b"aa"
        for _, each in begun:
            each.close()
        await asyncio.sleep(0.1)
        more = [await server.connect() for _ in range(2)]
        writer.write(REQUEST)
        assert await answer(reader) == b"aa"
        for _, each in [*more, (reader, writer)]:
            each.close()


async def test_handshakes_that_do_not_end_shut_out_nobody(tls: TlsFiles) -> None:
    async with served(tls=tls, most_connections=2, head_seconds=SHORT) as server:
        begun = [await server.silent() for _ in range(10)]
        reader, writer = await server.connect()
        writer.write(REQUEST)
        assert await answer(reader) == b"aa"
        assert server.refused == {Refusal.CONNECTIONS: 9}
        await server.until(Refusal.SLOW)  # those that gave way are not waited for, too
        assert server.refused == {Refusal.CONNECTIONS: 9, Refusal.SLOW: 1}
        for _, each in [*begun, (reader, writer)]:
            each.close()


async def test_handshakes_that_give_way_leave_no_buffers_behind(tls: TlsFiles) -> None:
    """Each has 256 KiB: those that began on connections that had given way were kept for a minute, 8 GB of them."""
    gc.collect()
    gc.disable()
    try:
        async with served(tls=tls, most_connections=2) as server:
            begun = [each for _ in range(4) for each in await asyncio.gather(*(server.silent() for _ in range(25)))]
            await server.until(Refusal.CONNECTIONS, 98)
            async with asyncio.timeout(PATIENCE):
                # What the event loop has for a connection with TLS.
                while sum(type(each).__name__ == "SSLProtocol" for each in gc.get_objects()) > 2:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.05)
            for _, each in begun:
                each.close()
    finally:
        gc.enable()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n" * 5, b""])
async def test_what_fails_in_its_handshake_holds_nothing(tls: TlsFiles, sent: bytes) -> None:
    async with served(tls=tls, most_connections=1) as server:
        for _ in range(5):
            reader, writer = await server.silent()
            writer.write(sent)
            if not sent:
                writer.write_eof()
            async with asyncio.timeout(PATIENCE):
                with suppress(ConnectionError):
                    await reader.read()  # an alert
            writer.close()
            await asyncio.sleep(0.05)
        reader, writer = await server.connect()
        writer.write(REQUEST)
        assert await answer(reader) == b"aa"
        writer.close()
        assert server.refused == {}


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(tls: TlsFiles) -> None:
    context = client_context(TlsFiles(tls.authority))
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(arriving, leaving, server_hostname="localhost")
    async with served(tls=tls) as server:
        reader, writer = await server.silent()
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(leaving.read())
                arriving.write(await reader.read(65_536))
        client.write(REQUEST)
        writer.write(leaving.read())  # what ends the handshake, and the request
        read = b""
        async with asyncio.timeout(PATIENCE):
            while not read.endswith(b"aa"):
                arriving.write(await reader.read(65_536))
                with suppress(ssl.SSLWantReadError):
                    while True:
                        read += client.read(65_536)
        writer.close()


async def test_a_server_stops_while_handshakes_wait(tls: TlsFiles) -> None:
    async with served(tls=tls) as server:
        reader, writer = await server.silent()
        await asyncio.sleep(0.1)
    assert await is_closed(reader)
    writer.close()
    assert server.refused == {}


def deaf(port: int, requests: int) -> socket.socket:
    """A client that sends requests, takes few bytes, and reads none."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.setblocking(False)
    with suppress(BlockingIOError):
        client.send(REQUEST * requests)
    return client


@pytest.mark.parametrize(("size", "requests"), [(64_000, 200), (16 * MEBIBYTE, 1)])
async def test_an_answer_that_is_not_read_is_not_kept(size: int, requests: int) -> None:
    async with served(size, answer_seconds=SHORT) as server:
        clients = [deaf(server.port, requests) for _ in range(3)]
        await server.until(Refusal.SLOW, 3)
        for each in clients:
            each.close()
        assert server.refused == {Refusal.SLOW: 3}
        assert server.answered < 3 * requests or requests == 1


async def test_the_last_bytes_of_an_answer_have_no_more_time_than_others() -> None:
    # All of it is written, so that the web server would close the connection, which then waits for what is left.
    async with served(60_000, send_buffer=4096, answer_seconds=SHORT) as server:
        client = deaf(server.port, 1)
        await server.until(Refusal.SLOW)
        client.close()
        assert server.answered == 1


@pytest.mark.parametrize("secured", [False, True])
async def test_a_client_that_reads_slowly_gets_its_answer(tls: TlsFiles, secured: bool) -> None:
    size = 16 * MEBIBYTE
    async with served(size, tls if secured else None, answer_seconds=SHORT) as server:
        reader, writer = await server.connect()
        writer.write(REQUEST)
        reads = read = 0
        await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(30 * PATIENCE):
            while read < size:
                read += len(await reader.read(256 * 1024))
                reads += 1
                await asyncio.sleep(SHORT / 20)
        assert reads > 40, "so it took twice the time for each 64 KiB at least"
        writer.close()
        assert server.refused == {}


async def test_an_answer_that_is_not_read_is_not_kept_with_tls(tls: TlsFiles) -> None:
    async with served(16 * MEBIBYTE, tls, answer_seconds=SHORT, most_connections=1) as server:
        reader, writer = await server.connect()
        writer.transport.pause_reading()
        writer.write(REQUEST)
        await server.until(Refusal.SLOW)
        writer.transport.abort()
        del reader
        await asyncio.sleep(0.1)
        reader, writer = await server.connect()
        writer.write(REQUEST)
        assert len(await answer(reader)) == 16 * MEBIBYTE
        writer.close()
