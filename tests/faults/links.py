"""A link that can fail: forwards TCP connections to a server, and cuts, holds or delays them on command."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

from cluster.demo.parts import free_port

if TYPE_CHECKING:
    from collections.abc import Coroutine

CHUNK_BYTES = 64 * 1024
ROUNDS = 3
"""Rounds of the loop until a connection is closed or reset: a transport ends in the following round."""
CHUNKS_HELD = 64
"""The most pieces that wait in one direction of one connection; more have to wait at the sender."""
LONGEST_SECONDS = 30.0


class Link:
    """Forwards connections to a port of its own; runs in a thread of its own, as a context.

    Parameters
    ----------
    target_port
        The target, on this machine.
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self._target = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"link to {target_port}", daemon=True)
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._delay = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._connected_tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        """Connections made since it began."""
        self.held = 0
        """Pieces that have arrived and are not forwarded yet."""

    def __enter__(self) -> Self:
        self._thread.start()
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._do(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LONGEST_SECONDS)
        self._loop.close()

    def cut(self) -> None:
        """Reset all connections, and refuse new ones."""
        self._do(self._cut())

    def hold(self) -> None:
        """Forward nothing; connections stay open, new ones are accepted, and data wait."""
        self._do(self._set(is_open=False))

    def delay(self, seconds: float) -> None:
        """Forward everything with a delay."""
        self._do(self._set(delay=seconds))

    def mend(self) -> None:
        """Forward everything at once."""
        self._do(self._set())

    def _do(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(LONGEST_SECONDS)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            _reset(writer)

    async def _set(self, *, is_open: bool = True, delay: float = 0.0) -> None:
        self._delay = delay
        if is_open:
            self._open.set()
        else:
            self._open.clear()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _end_tasks(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer in self._writers:
            _reset(writer)
        for _ in range(ROUNDS):
            await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)  # already here, as a task may be cancelled before it begins
        connected = asyncio.create_task(self._connected(reader, writer))
        self._connected_tasks.add(connected)
        connected.add_done_callback(self._connected_tasks.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            self._writers.discard(writer)
            return
        ends = {writer, far_writer}
        self._writers |= ends
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._writers -= ends
            for end in ends:
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_HELD)
        writing = asyncio.create_task(self._write(waiting, writer))
        try:
            with contextlib.suppress(OSError):
                while chunk := await reader.read(CHUNK_BYTES):
                    await waiting.put((time.monotonic() + self._delay, chunk))
                await waiting.put((time.monotonic() + self._delay, b""))
                await writing
        finally:
            writing.cancel()

    async def _write(self, waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, chunk = await waiting.get()
            self.held += 1
            try:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self._open.wait()
            finally:
                self.held -= 1
            if not chunk:
                return
            writer.write(chunk)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection as a router does when a cable is unplugged: waiting data are lost."""
    found = writer.get_extra_info("socket")
    if found is not None:
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()
