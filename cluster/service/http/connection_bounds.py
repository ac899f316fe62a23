"""How many connections there may be to the API, how long each waits for its client, and which one gives way.

Where there are as many as there may be, the next one takes the place of one whose client has not shown a token. Without
that, one client that opens connections and sends nothing would shut out all others.

Clients with a token hold three quarters of the places at most, so that there are always some for those that come. Where
these are taken, the next client that shows a token takes the place of one of the token that holds most
(:mod:`cluster.service.http.giving_way`). So no client without a token ends a connection of one that has shown one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final, Protocol, cast

from cluster.service.access.admission import Refusal
from cluster.service.access.roles import Role
from cluster.service.access.tokens import Caller
from cluster.service.http.giving_way import Doing, Held, place_that_yields
from protocols.event_log import SparingLog, get_logger

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
