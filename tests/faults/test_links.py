"""A link forwards, and fails on command."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.faults.links import Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECONDS = 30.0


@pytest.fixture
def received() -> bytearray:
    """What the server has received."""
    return bytearray()


@pytest.fixture
async def link(received: bytearray) -> AsyncIterator[Link]:
    """A link to a server that sends back everything twice."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            while piece := await reader.read(1024):
                received.extend(piece)
                writer.write(piece * 2)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        with Link(server.sockets[0].getsockname()[1]) as made:
            yield made


async def echoed(reader: asyncio.StreamReader, count: int) -> bytes:
    return await asyncio.wait_for(reader.readexactly(count), SECONDS)


async def begun(link: Link) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and find that it works."""
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(b"a")
    await echoed(reader, 2)
    return reader, writer


async def test_it_forwards_both_ways(link: Link) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(b"ab")
    assert await echoed(reader, 4) == b"abab"
    writer.close()


async def test_cut_it_resets_and_refuses_until_it_is_mended(link: Link) -> None:
    reader, writer = await begun(link)
    await asyncio.to_thread(link.cut)
    with pytest.raises(OSError, match="reset"):
        await echoed(reader, 1)
    writer.close()
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", link.port)
    await asyncio.to_thread(link.mend)
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(b"b")
    assert await echoed(reader, 2) == b"bb"
    writer.close()


async def test_held_it_lets_nothing_through_and_then_everything(link: Link, received: bytearray) -> None:
    reader, writer = await begun(link)
    await asyncio.to_thread(link.hold)
    writer.write(b"b")
    async with asyncio.timeout(SECONDS):
        while not link.held:  # noqa: ASYNC110 - it comes in another thread
            await asyncio.sleep(0.001)
    assert received == b"a"
    await asyncio.to_thread(link.mend)
    assert await echoed(reader, 2) == b"bb"
    writer.close()


async def test_delayed_it_lets_everything_through_in_order(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    await asyncio.to_thread(link.delay, 0.05)
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noting(seconds: float) -> None:
        waits.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", noting)
    writer.write(b"a")
    assert await echoed(reader, 2) == b"aa"
    assert len([each for each in waits if 0 < each <= 0.05]) >= 2, "there and back"
    writer.close()


async def test_without_a_server_connections_end(link: Link) -> None:
    async def talk(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await echoed(reader, 1)
        finally:
            writer.close()

    with Link(1) as nowhere, pytest.raises(ConnectionResetError):  # which may come while it is still connecting
        await talk(nowhere.port)
