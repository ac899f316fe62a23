"""Bounds the bodies of requests: without a bound, a body could fill the memory before its token is checked."""

from __future__ import annotations

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


class RequestTooLargeError(ClusterError):
    """A request's body is larger than any statement needs."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"the request is larger than {most_bytes:,} bytes", hint="send a shorter one")
        self.most_bytes = most_bytes


class BoundedBodies:
    """ASGI middleware: reads a request's body, and rejects one that is too large without reading the rest.

    Parameters
    ----------
    app
        The application behind it.
    most_bytes
        The most that a body may have.
    most_bytes_at
        The most at some paths.
    refusal
        Returns what responds to requests of more bytes.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        most_bytes: int,
        refusal: Callable[[int], ASGIApp],
        most_bytes_at: Mapping[str, int] | None = None,
    ) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._most_bytes_at = most_bytes_at or {}
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read: list[Message] = []
        read_bytes = 0
        most_bytes = self._most_bytes_at.get(scope["path"], self._most_bytes)
        while True:
            message = await receive()
            read.append(message)
            read_bytes += len(message.get("body", b""))
            if read_bytes > most_bytes:
                await self._refusal(most_bytes)(scope, receive, send)
                return
            if not message.get("more_body", False):
                break
        replayed = iter(read)

        async def replay() -> Message:
            return next(replayed, None) or await receive()

        await self._app(scope, replay, send)
