"""Bodies of requests in JSON: an object that has a key twice is refused, wherever it stands.

By itself, the last of the two values counts, while other programs take the first: what a proxy or a log in front of the
API has seen is not what the cluster does.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

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


def api_router() -> APIRouter:
    """Return a router whose routes refuse bodies with double keys."""
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

        async def read_and_answer(request: Request) -> Response:
            return await answer(_Request(request.scope, request.receive))

        return read_and_answer
