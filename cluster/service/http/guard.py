"""What stands before the API: requests are admitted before their bodies are read, and refusals end politely.

::

    socket - handshake.py, connection.py - answer_pieces.py - Guard - BoundedBodies - the API
             head in time                   read in time      token   body in time
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from cluster.service.access.admission import Admission, NotAdmittedError, Refusal, RequestHead
from cluster.service.access.roles import Role, UnknownRequestError
from cluster.service.catalog.planning import asked_by
from cluster.service.catalog.planning_turns import Asker
from cluster.service.http.connections import recognise
from cluster.service.http.error_responses import RequestError, error_response
from cluster.service.http.query_routes import TOGETHER
from cluster.service.http.request_bodies import (
    MOST_BYTES,
    MOST_BYTES_TOGETHER,
    ASGIApp,
    BoundedBodies,
    Message,
    Receive,
    RefusedBodyError,
    RequestTooLargeError,
    Scope,
    Send,
    in_pieces,
)
from protocols.errors import FjordError
from protocols.event_log import get_logger

log = get_logger(__name__)

BODY_SECONDS: Final = 30.0
"""Time for all of a body to arrive."""
LINGER_SECONDS: Final = 2.0
"""How long the rest of a body is thrown away after a refusal. Without that, a client that is still sending could be cut
off before it has read the reason."""
_AROUND: Final = len(b": \r\n")
"""Bytes of a header besides its name and its value."""


def guarded(app: ASGIApp, admission: Admission, *, body_seconds: float = BODY_SECONDS) -> ASGIApp:
    """Return an API that lets in only what it may.

    Parameters
    ----------
    app
        The API.
    admission
        Decides which requests are let in.
    body_seconds
        Time for all of a body to arrive.
    """
    guard = Guard(admission)
    bodies = BoundedBodies(
        app,
        most_bytes=MOST_BYTES,
        most_bytes_at={TOGETHER: MOST_BYTES_TOGETHER},
        seconds=body_seconds,
        refuse=guard.refuse_body,
    )
    return in_pieces(guard.before(bodies))


class Guard:
    """Asks an admission about every request, and answers those that are refused.

    Parameters
    ----------
    admission
        Decides which requests are let in.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def before(self, app: ASGIApp) -> ASGIApp:
        """Return an API that this guard stands before."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":  # the server is set to speak nothing else
                return
            try:
                caller = self._admission.admit(_head_of(scope))
            except NotAdmittedError as error:
                await self._refuse(error.refusal, error, scope, receive, send)
            except UnknownRequestError as error:
                await self._answer_unknown(error, scope, receive, send)
            else:
                if caller is None:
                    await app(scope, receive, closing(send))
                    return
                if not recognise(scope, caller):
                    await self._refuse(Refusal.SHARE, too_many_connections(), scope, receive, send)
                    return
                with asked_by(Asker(caller.name, caller.role is Role.ADMIN)):
                    await app(scope, receive, send)

        return answer

    async def refuse_body(self, error: RefusedBodyError, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose body is not accepted."""
        refusal = Refusal.SIZE if isinstance(error, RequestTooLargeError) else Refusal.SLOW
        await self._refuse(refusal, error, scope, receive, send)

    async def _refuse(self, refusal: Refusal, error: FjordError, scope: Scope, receive: Receive, send: Send) -> None:
        self._admission.count(refusal)
        log.info("request refused", reason=refusal.value, client=(scope.get("client") or ("unknown",))[0])
        headers = {"Connection": "close"}
        if refusal is Refusal.TOKEN:
            headers["WWW-Authenticate"] = "Bearer"
        await error_response(error, headers=headers)(scope, receive, lingering(receive, send))

    async def _answer_unknown(self, error: UnknownRequestError, scope: Scope, receive: Receive, send: Send) -> None:
        hint = "GET /docs shows all paths and methods"
        headers = {"Connection": "close"}
        if error.methods:
            found = RequestError(405, f"{scope['method']}: Method Not Allowed", hint=hint)
            headers["Allow"] = ", ".join(sorted(error.methods))
        else:
            found = RequestError(404, f"{scope['method']}: Not Found", hint=hint)
        await error_response(found, headers=headers)(scope, receive, lingering(receive, send))


def too_many_connections() -> NotAdmittedError:
    """Return the error of a request whose token has most of all connections, none of which can be closed for it."""
    return NotAdmittedError(
        Refusal.SHARE,
        429,
        "there are too many connections, and this token has most of them",
        hint="wait for the answers to earlier requests, or send several through one connection",
    )


def closing(send: Send) -> Send:
    """Return a `send` that ends the connection with its response: those without a token are answered once."""

    async def close(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return close


def lingering(receive: Receive, send: Send, *, seconds: float = LINGER_SECONDS) -> Send:
    """Return a `send` that, before it ends a response, throws away what still comes of the request for some seconds."""

    async def linger(message: Message) -> None:
        if message["type"] != "http.response.body" or message.get("more_body", False):
            await send(message)
            return
        await send({**message, "more_body": True})  # all of the response is on its way
        end = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                while time.monotonic() < end and (await receive()).get("more_body", False):
                    pass
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return linger


class AdmissionMetrics(Collector):
    """Shows what was refused.

    Parameters
    ----------
    admission
        Counts it.
    registry
        The registry that it is added to.
    """

    def __init__(self, admission: Admission, registry: CollectorRegistry) -> None:
        self._refused: Mapping[Refusal, int] = admission.refused
        registry.register(self)

    def collect(self) -> list[CounterMetricFamily]:
        """Return the counters at present, with a label for each of the few reasons."""
        refused = CounterMetricFamily(
            "fjord_api_refused_total", "Requests refused before they reached the API", labels=["reason"]
        )
        for each in Refusal:
            refused.add_metric([each.value], self._refused.get(each, 0))
        return [refused]


def _head_of(scope: Scope) -> RequestHead:
    headers: list[tuple[bytes, bytes]] = scope["headers"]

    def all_of(name: bytes) -> tuple[str, ...]:
        return tuple(value.decode("latin-1") for key, value in headers if key.lower() == name)

    return RequestHead(
        method=scope["method"],
        path=scope["path"],
        hosts=all_of(b"host"),
        origins=all_of(b"origin"),
        authorizations=all_of(b"authorization"),
        fetch_sites=all_of(b"sec-fetch-site"),
        address=(scope.get("server") or (None,))[0],
        scheme=scope["scheme"],
        two_lengths=bool(all_of(b"content-length") and all_of(b"transfer-encoding")),
        size=_size_of(scope),
    )


def _size_of(scope: Scope) -> int:
    line = len(scope["method"]) + len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
    return line + sum(len(name) + len(value) + _AROUND for name, value in scope["headers"])
