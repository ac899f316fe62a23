"""Bounds the bodies of requests: without bounds of size and time, they could fill the memory or hold connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from cluster.errors import ClusterError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES = 2 * 1024 * 1024
"""The longest statement that is accepted, with every character escaped."""
MOST_BYTES_TOGETHER = 16 * 1024 * 1024
"""The longest text of several statements: some ten thousand."""


class RefusedBodyError(ClusterError):
    """A request's body that is not accepted."""


class RequestTooLargeError(RefusedBodyError):
    """A request's body is larger than any statement needs."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"the request is larger than {most_bytes:,} bytes", hint="send a shorter one")
        self.most_bytes = most_bytes


class RequestTooSlowError(RefusedBodyError):
    """A request's body does not arrive in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the request did not arrive within {seconds:g} seconds", hint="send it faster, or a shorter one"
        )
        self.seconds = seconds


class BoundedBodies:
    """ASGI middleware: reads a request's body, and rejects one that is too large or too slow without reading the rest.

    Parameters
    ----------
    app
        The application behind it.
    most_bytes
        The most that a body may have.
    most_bytes_at
        The most at some paths.
    seconds
        Time for all of it to arrive.
    refuse
        Answers requests that are rejected.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        most_bytes: int,
        seconds: float,
        refuse: Callable[[RefusedBodyError, Scope, Receive, Send], Awaitable[None]],
        most_bytes_at: Mapping[str, int] | None = None,
    ) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._most_bytes_at = most_bytes_at or {}
        self._seconds = seconds
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            async with asyncio.timeout(self._seconds):
                read = await self._read(receive, self._most_bytes_at.get(scope["path"], self._most_bytes))
        except TimeoutError:
            await self._refuse(RequestTooSlowError(self._seconds), scope, receive, send)
            return
        except RequestTooLargeError as error:
            await self._refuse(error, scope, receive, send)
            return
        replayed = iter(read)

        async def replay() -> Message:
            return next(replayed, None) or await receive()

        await self._app(scope, replay, send)

    @staticmethod
    async def _read(receive: Receive, most_bytes: int) -> list[Message]:
        read: list[Message] = []
        read_bytes = 0
        while True:
            message = await receive()
            read.append(message)
            read_bytes += len(message.get("body", b""))
            if read_bytes > most_bytes:
                raise RequestTooLargeError(most_bytes)
            if not message.get("more_body", False):
                return read
