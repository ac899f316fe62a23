"""Connections to the API: the socket, how many there may be, how long each waits, and which one gives way.

**Which connection with a token gives way where there are too many of them.**

A token takes places from itself: one of its connections gives way before any other token loses one. Idle connections
cost their client nothing. Of those that are at work, the youngest gives way: if it were the oldest, a client that sends
more than is answered would get no answer at all.

Where there are as many as there may be, the next one takes the place of one whose client has not shown a token. Without
that, one client that opens connections and sends nothing would shut out all others.

Clients with a token hold three quarters of the places at most, so that there are always some for those that come. Where
these are taken, the next client that shows a token takes the place of one of the token that holds most. So no client
without a token ends a connection of one that has shown one.

**A connection to the API, which waits for its client only so long.**

The web server bounds the size of a head and closes connections that are idle between two requests. It waits without end
for the first byte, for the rest of a head, and for a client that does not read its answer.

**The TLS handshake of a connection to the API, which is waited for only so long.**

By itself, asyncio shows a connection once its handshake has ended: before, it is neither counted nor bounded.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final, Protocol, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cluster.errors import ClusterError
from cluster.service.access.admission import MOST_HEAD_BYTES, Refusal
from cluster.service.access.roles import Role
from cluster.service.access.tokens import Caller
from protocols.event_log import SparingLog, get_logger
from protocols.security.tls import TlsFiles, server_context


class Doing(IntEnum):
    """What a connection is busy with; the less, the sooner it gives way."""

    NOTHING = 0
    """No request is under way."""
    CLIENT = 1
    """Its client has not sent all of a body, or does not take the answer as fast as it is made."""
    WORK = 2
    """The cluster works for it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A connection whose client has shown a token.

    Parameters
    ----------
    token
        The name of the token that it has shown last.
    is_admin
        Whether that has the role `admin`.
    doing
        What it is busy with.
    """

    token: str
    is_admin: bool
    doing: Doing


def place_that_yields(held: Sequence[Held]) -> int:
    """Return the place, in a list of connections, of the one that gives way. Pure.

    It is of the token that holds most: of several, of one that is not of the role `admin`, and then of the one that
    stands first.

    Parameters
    ----------
    held
        All connections with tokens, the one first whose last request began first; at least one.

    Examples
    --------
    >>> idle, busy = Held("many", False, Doing.NOTHING), Held("many", False, Doing.WORK)
    >>> place_that_yields([Held("one", True, Doing.NOTHING), busy, idle, idle])
    2
    """
    counts = Counter(each.token for each in held)
    admins = {each.token for each in held if each.is_admin}
    token = max(counts, key=lambda name: (counts[name], name not in admins))  # of equal ones, the first
    own = [(each.doing, place) for place, each in enumerate(held) if each.token == token]
    least = min(doing for doing, _ in own)
    places = [place for doing, place in own if doing is least]
    return places[-1] if least is Doing.WORK else places[0]


log = get_logger(__name__)

HEAD_SECONDS: Final = 10.0
"""Time for a TLS handshake, and for the head of each request, to arrive."""
ANSWER_SECONDS: Final = 10.0
"""Time for each piece of an answer to be taken by the client."""
MOST_CONNECTIONS: Final = 256
"""Each takes a file handle, and the cluster needs some for its tables."""
RECOGNISE: Final = "fjord.recognise"
"""Where the state of a request has what is called with its caller; it returns whether the request may be answered."""
CALLER: Final = "fjord.caller"
"""Where a request has the name of the token with which it came."""
NETWORK_BITS: Final = 64
"""A client of IPv6 has all addresses that begin with these bits."""


class Yielding(Protocol):
    """A connection that ends at once where it is asked to."""

    def give_way(self) -> None:
        """End, for another one."""


class Answering(Yielding, Protocol):
    """A connection with requests."""

    @property
    def doing(self) -> Doing:
        """What it is busy with."""


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """The bounds of all connections to an API, and which connections there are.

    Parameters
    ----------
    count
        Counts a connection that is closed.
    head_seconds, answer_seconds, most_connections
        As the constants of this module.
    unknown
        Connections whose client has not shown a token, with the network that they come from, the oldest first.
    known
        All others, with the token shown last; the one first whose last request began first.
    clock
        Seconds of a clock that never goes back.
    """

    count: Callable[[Refusal], None]
    head_seconds: float = HEAD_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    most_connections: int = MOST_CONNECTIONS
    unknown: dict[Yielding, str] = field(default_factory=dict)
    known: dict[Answering, Caller] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _sparing: SparingLog = field(default_factory=SparingLog)

    @property
    def most_known(self) -> int:
        """How many connections there may be whose client is known."""
        return max(1, self.most_connections * 3 // 4)

    def begin(self, connection: Yielding, address: str | None) -> bool:
        """Note a new connection; return False if there is no place for it.

        Parameters
        ----------
        connection
            Its client is not known yet.
        address
            That of its client; None if it is not known.
        """
        if len(self.unknown) + len(self.known) >= self.most_connections:
            self.count(Refusal.CONNECTIONS)
            if not self.unknown:
                return False
            # Of those that hold most places, so that one client takes them from itself.
            held = Counter(self.unknown.values())
            most = max(held.values())
            oldest = next(each for each, network in self.unknown.items() if held[network] == most)
            del self.unknown[oldest]
            oldest.give_way()
        self.unknown[connection] = network_of(address)
        return True

    def recognise(self, connection: Answering, caller: Caller) -> bool:
        """Note that the client of a connection is known; return False if that has to give way itself.

        Parameters
        ----------
        connection
            It has begun a request.
        caller
            Whose token it has shown.
        """
        if self.known.pop(connection, None) is None:
            if connection not in self.unknown:
                return True  # it has ended
            if len(self.known) >= self.most_known and not self._make_place(connection, caller):
                return False
            del self.unknown[connection]
        self.known[connection] = caller
        return True

    def _make_place(self, connection: Answering, caller: Caller) -> bool:
        held = [
            Held(each.name, each.role is Role.ADMIN, one.doing)
            for one, each in (*self.known.items(), (connection, caller))
        ]
        place = place_that_yields(held)
        token = held[place].token
        if times := self._sparing.due(token, self.clock()):
            of_token = sum(each.token == token for each in held)
            log.warning("a connection gives way to another one", token=token, connections=of_token, times=times)
        if place == len(self.known):
            return False
        yielding = list(self.known)[place]
        del self.known[yielding]
        self.count(Refusal.SHARE)
        yielding.give_way()
        return True

    def end(self, connection: Yielding) -> None:
        """Forget a connection."""
        self.unknown.pop(connection, None)
        self.known.pop(cast("Answering", connection), None)


def network_of(address: str | None) -> str:
    """Return what stands for all addresses of one client.

    Examples
    --------
    >>> network_of("192.0.2.7"), network_of("2001:db8::7"), network_of("::ffff:192.0.2.7"), network_of(None)
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7', '')
    """
    try:
        found = ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ip_network((found, NETWORK_BITS), strict=False))
    return str(found)


def address_of(transport: asyncio.BaseTransport) -> str | None:
    """Return the address of the client of a connection; None if it has gone already."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else None


def caller_of(scope: MutableMapping[str, Any]) -> str:
    """Return the name of the token of a request; empty if it has none."""
    return str(scope.get(CALLER, ""))


def recognise(scope: MutableMapping[str, Any], caller: Caller) -> bool:
    """Let a request be one of a known client, and its connection too, if it came by one.

    Returns
    -------
    bool
        Whether it is to be answered; if not, its token has too many connections.
    """
    scope[CALLER] = caller.name
    found = scope.get("state", {}).get(RECOGNISE)
    return found is None or bool(found(caller))


class Deadline:
    """A time until which something is waited for.

    Parameters
    ----------
    seconds
        How long, from each start.
    missed
        Called if it is not stopped before.
    """

    def __init__(self, seconds: float, missed: Callable[[], None]) -> None:
        self._seconds = seconds
        self._missed = missed
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to wait; where it is waited for already, the time stays."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end)

    def stop(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        self._missed()


class BoundedConnection(H11Protocol):
    """A connection that is closed if its client is too slow, or if it has to give way to another one."""

    bounds: ConnectionBounds
    """Of all connections to the same API; set before the connection is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._head = Deadline(self.bounds.head_seconds, self._head_missed)
        self._answer = Deadline(self.bounds.answer_seconds, self._give_up)
        # Writing is paused, and so known to wait, as soon as the system takes no more.
        self.transport.set_write_buffer_limits(high=1, low=0)
        self.app_state = {**self.app_state, RECOGNISE: self._recognise}
        if self.bounds.begin(self, address_of(transport)):
            self._head.start()
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._head.start()
        else:
            self._head.stop()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, and end."""
        self.bounds.count(Refusal.FORM)
        super().send_400_response(msg)

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._answer.start()

    def resume_writing(self) -> None:
        """Go on: the client has read all that there was."""
        self._answer.stop()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._head.stop()
        self._answer.stop()
        self.bounds.end(self)
        super().connection_lost(exc)

    def give_way(self) -> None:
        """End at once, for another one."""
        self._head.stop()
        self.transport.abort()

    @property
    def doing(self) -> Doing:
        """What the connection is busy with."""
        if self.cycle is None or self.cycle.response_complete:
            return Doing.NOTHING
        if self.cycle.more_body or self.flow.write_paused:
            return Doing.CLIENT
        return Doing.WORK

    def _recognise(self, caller: Caller) -> bool:
        return self.bounds.recognise(self, caller)

    def _head_missed(self) -> None:
        if not self.transport.is_closing():
            self._give_up()

    def _give_up(self) -> None:
        self.bounds.count(Refusal.SLOW)
        self.transport.abort()


class Handshake(asyncio.Protocol):
    """A connection before its handshake has ended; another one takes its place then.

    Parameters
    ----------
    connection
        The one that takes its place.
    context
        Certificate and key.
    """

    def __init__(self, connection: BoundedConnection, context: ssl.SSLContext) -> None:
        self._connection = connection
        self._context = context
        self._bounds = connection.bounds
        self._received = b""
        self._is_lost = False
        self._has_ended = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        raw = cast("asyncio.Transport", transport)
        self._raw = raw
        if not self._bounds.begin(self, address_of(raw)):
            raw.abort()
            return
        raw.pause_reading()
        # What is encrypted waits with the connection, where it is noticed, and not below it.
        raw.set_write_buffer_limits(high=1, low=0)
        self._task = self._connection.loop.create_task(self._run(raw))
        # The server waits for tasks when it stops, and cancels them.
        self._connection.tasks.add(self._task)
        self._task.add_done_callback(self._forget)

    def data_received(self, data: bytes) -> None:
        """Keep what comes together with the end of the handshake."""
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        """End; what was lost in the moment of the change is lost for the other connection."""
        self._is_lost = True
        if self._has_ended:
            self._connection.connection_lost(exc)

    def give_way(self) -> None:
        """End at once, for another one."""
        self._raw.abort()
        # A handshake that begins on a connection that has ended holds its buffers until its time is over.
        if self._task is not None:
            self._task.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connection.tasks.discard(task)
        self._task = None  # it holds this, too: both would stay until garbage is looked for

    async def _run(self, raw: asyncio.Transport) -> None:
        secured: asyncio.Transport | None = None
        try:
            async with asyncio.timeout(self._bounds.head_seconds):
                secured = await self._connection.loop.start_tls(
                    raw, self, self._context, server_side=True, ssl_shutdown_timeout=self._bounds.answer_seconds
                )
        except TimeoutError:
            self._bounds.count(Refusal.SLOW)
        except OSError:
            pass  # it speaks no TLS, shows no certificate that counts, or has gone
        finally:
            self._bounds.end(self)
            if secured is None:
                raw.abort()
        if secured is not None and not self._is_lost:
            self._hand_over(secured)

    def _hand_over(self, secured: asyncio.Transport) -> None:
        self._has_ended = True
        secured.set_protocol(self._connection)
        self._connection.connection_made(secured)
        if self._received:
            self._connection.data_received(self._received)


class ApiServer(uvicorn.Server):
    """A server that leaves signals to the command."""

    def install_signal_handlers(self) -> None:
        """Do nothing."""

    def capture_signals(self) -> Any:
        """Do nothing, under uvicorn's newer name."""
        return nullcontext()


def api_config(app: Any, bounds: ConnectionBounds, *, tls: TlsFiles | None = None) -> uvicorn.Config:
    """Return the settings of the web server.

    Parameters
    ----------
    app
        The API.
    bounds
        Of all connections to it.
    tls
        Its certificate and key, and the authority of clients' certificates; None for no TLS.

    Raises
    ------
    CertificateFileError
        If a file cannot be used.
    """
    return uvicorn.Config(
        app,
        http=_secured(bounds, server_context(tls)) if tls is not None else _bounded(bounds),
        ws="none",
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )


def _bounded(bounds: ConnectionBounds) -> type[BoundedConnection]:
    class Connection(BoundedConnection):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.bounds = bounds

    return Connection


def _secured(bounds: ConnectionBounds, context: ssl.SSLContext) -> type[Handshake]:
    connection = _bounded(bounds)

    class SecuredConnection(Handshake):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(connection(*arguments, **named), context)

    return SecuredConnection


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises
    ------
    ClusterError
        If the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ClusterError(
            f"the API cannot listen on {host}:{port}: {error.strerror}",
            hint="another cluster may run there; choose another --api-port",
        ) from error
    return listening
