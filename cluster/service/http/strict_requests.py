"""What is twice in a request is refused: a key of an object in a JSON body, wherever it stands, and a parameter.

By itself, the last of the two values counts, while other programs take the first: what a proxy or a log in front of the
API has seen is not what the cluster does.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from protocols.text.closeness import did_you_mean

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
