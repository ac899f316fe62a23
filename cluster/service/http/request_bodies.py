"""Requests are bounded and strict, and answers leave in pieces: in size, time, and what is there twice.

**Answers leave in pieces: of each, the connection sees whether its client takes it in time.**

A body that is written at once would wait as a whole, and so a client on a slow line would seem to be one that does not
read.

**What is twice in a request is refused: a key of an object in a JSON body, wherever it stands, and a parameter.**

By itself, the last of the two values counts, while other programs take the first: what a proxy or a log in front of the
API has seen is not what the cluster does.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from cluster.errors import ClusterError
from protocols.text.closeness import did_you_mean

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


PIECE_BYTES: Final = 64 * 1024


def in_pieces(app: ASGIApp) -> ASGIApp:
    """Return an application whose answers are sent in pieces of :data:`PIECE_BYTES`."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            for piece in pieces_of(message, PIECE_BYTES):
                await send(piece)

        await app(scope, receive, send_pieces)

    return answer


def pieces_of(message: Message, size: int) -> Iterator[Message]:
    """Yield a message of an answer in several, of which none has more bytes of the body than `size`.

    Examples
    --------
    >>> [(each["body"], each["more_body"]) for each in pieces_of({"body": b"abc", "more_body": False}, 2)]
    [(b'ab', True), (b'c', False)]
    """
    body = message.get("body", b"")
    if len(body) <= size:
        yield message
        return
    for start in range(0, len(body), size):
        more = message.get("more_body", False) or start + size < len(body)
        yield {**message, "body": body[start : start + size], "more_body": more}


SHORT_BYTES: Final = 64 * 1024
"""A longer body is read beside the event loop: the longest that is accepted takes two seconds."""
MOST_SHOWN: Final = 100
"""Characters of a key that a message quotes."""


class DoubleKeyError(HTTPException):
    """An object in a body has a key twice.

    Parameters
    ----------
    key
        The key, without escapes.
    """

    def __init__(self, key: str) -> None:
        shown = repr(key[:MOST_SHOWN]) + (", ..." if len(key) > MOST_SHOWN else "")
        super().__init__(400, f"an object in the body has the key {shown} twice")
        self.key = key
        self.hint = "leave one of the two out"


class ParameterError(HTTPException):
    """A parameter in the address of a request that is there twice, or that its route does not have."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(400, message)
        self.hint = hint


def api_router() -> APIRouter:
    """Return a router whose routes refuse what is twice in a request."""
    return APIRouter(route_class=_Route)


def parse_body(body: bytes) -> Any:
    """Return the value that a body holds.

    Raises
    ------
    DoubleKeyError
        If an object in it has a key twice.
    ValueError, RecursionError
        If it is no JSON, or too deep.

    Examples
    --------
    >>> parse_body(b'{"sql": "SELECT 1", "parameters": {"x": 1}}')
    {'sql': 'SELECT 1', 'parameters': {'x': 1}}
    """
    return json.loads(body, object_pairs_hook=_object_of)


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DoubleKeyError(next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1))
    return found


def check_parameters(given: Sequence[tuple[str, str]], known: Sequence[str]) -> None:
    """Check the parameters in an address; a route that has none reads none, and they do no harm.

    Raises
    ------
    ParameterError
        If one is twice there, or unknown.
    """
    counts = Counter(name for name, _ in given)
    for name, count in counts.items():
        shown = repr(name[:MOST_SHOWN])
        if count > 1:
            raise ParameterError(f"the parameter {shown} is in the address twice", "leave one of the two out")
        if known and name not in known:
            hint = did_you_mean(name, known) or f"it takes {', '.join(known)}"
            raise ParameterError(f"there is no parameter {shown} here", hint)


class _Request(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            if len(body) <= SHORT_BYTES:
                self._json = parse_body(body)
            else:
                self._json = await asyncio.to_thread(parse_body, body)
        return self._json


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        known = [each.alias for each in self.dependant.query_params]

        async def read_and_answer(request: Request) -> Response:
            check_parameters(request.query_params.multi_items(), known)
            return await answer(_Request(request.scope, request.receive))

        return read_and_answer
