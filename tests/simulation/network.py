"""Connections between simulated hosts, in memory: what asyncio calls a socket's transport, as TCP behaves.

Bytes arrive in order, some time later, divided otherwise than they were written. A way that is closed keeps them until
it opens again, as TCP sends them again and again; each direction can be closed alone. A process that is killed leaves a
kernel that ends its connections; a host without power leaves silence.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from tests.simulation.hosts import SECOND_NS, Host, Incarnation, current

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.virtual_loop import VirtualLoop

HIGH_WATER_BYTES, LOW_WATER_BYTES = 256 * 1024, 64 * 1024
"""From so much on its way on, a writer is asked to pause, and below the other to go on."""
DIVIDED = 0.1
"""The share of writes that arrive in two pieces."""


@dataclass(slots=True)
class Way:
    """One direction between two hosts.

    Parameters
    ----------
    fastest_ns, slowest_ns
        How long bytes take.
    bytes_per_second
        How many of them; None for any number.
    open
        Whether anything arrives.
    """

    fastest_ns: int = 200_000
    slowest_ns: int = 2_000_000
    bytes_per_second: int | None = None
    open: bool = True


class Wire(asyncio.Transport):
    """One end of a connection.

    Parameters
    ----------
    network
        That it belongs to.
    owner
        The process at this end.
    way
        To the other end.
    """

    def __init__(self, network: Network, owner: Incarnation, way: Way) -> None:
        super().__init__()
        self.network = network
        self.owner = owner
        self.way = way
        self.other: Wire = self
        self.protocol: asyncio.Protocol | None = None
        self._arriving: deque[tuple[int, bytes | None]] = deque()
        """When, and what: None for the end."""
        self._last_ns = 0
        self._held = 0
        self._reading = True
        self._writing_paused = False
        self._silenced = False
        self._closing = False
        self._ended = False
        self._written = self._handed = 0
        """Bytes that this end has written, and that it was handed."""
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()

    # What the process at this end calls.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._pump_soon()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not self.owner.alive or not data:
            return
        octets = bytes(data)
        self._written += len(octets)
        if len(octets) > 1 and self.network.dice.random() < DIVIDED:
            place = self.network.dice.randrange(1, len(octets))
            self.other.send(octets[:place])
            self.other.send(octets[place:])
        else:
            self.other.send(octets)
        if not self._writing_paused and self.other._held > HIGH_WATER_BYTES and self.protocol is not None:
            self._writing_paused = True
            self.protocol.pause_writing()

    def close(self) -> None:
        if not self._closing and self.owner.alive:
            self._closing = True
            self.other.send(None)
            self.network.loop.call_soon(self._end, None, context=self.owner.context)

    def abort(self) -> None:
        if self.owner.alive and not self._ended:
            self._closing = True
            self.other._arriving.clear()
            self.other.send(None)
            self.network.loop.call_soon(self._end, None, context=self.owner.context)

    # What the simulation calls.

    def when_handed(self, call: Callable[[], None]) -> None:
        """Call something once the process at the other end has been handed all that was written so far."""
        self.other._marks.append((self._written, call))

    # What the network calls.

    def send(self, octets: bytes | None) -> None:
        """Let something arrive at this end, None for the end of the connection."""
        way, loop = self.other.way, self.network.loop
        takes_ns = self.network.dice.randrange(way.fastest_ns, way.slowest_ns + 1)
        due_ns = max(self._last_ns, loop.world.now_ns + takes_ns)
        if octets is not None:
            self._held += len(octets)
            if way.bytes_per_second is not None:
                due_ns += len(octets) * SECOND_NS // way.bytes_per_second
        self._last_ns = due_ns
        self._arriving.append((due_ns, octets))
        loop.schedule(due_ns, self._pump, by=self.owner)

    def reset(self) -> None:
        """Break, at once and here only."""
        self._arriving.clear()
        self.network.loop.schedule_in(0, self._end, ConnectionResetError("reset by the network"), by=self.owner)

    def silence(self) -> None:
        """Let nothing arrive here any more."""
        self._silenced = True

    def opened(self) -> None:
        """Let arrive what has waited for the way to open."""
        self._pump_soon()

    def connected(self, protocol: asyncio.Protocol) -> None:
        """Give this end to a protocol."""
        self.protocol = protocol
        protocol.connection_made(self)
        self._pump_soon()

    @property
    def ended(self) -> bool:
        """Whether this end is closed."""
        return self._ended or not self.owner.alive

    def _pump_soon(self) -> None:
        self.network.loop.schedule_in(0, self._pump, by=self.owner)

    def _pump(self) -> None:
        """Hand over all that has arrived."""
        if self._ended or self._silenced or not self._reading or not self.other.way.open or self.protocol is None:
            return
        now_ns = self.network.loop.world.now_ns
        pieces: list[bytes] = []
        over = False
        while self._arriving and self._arriving[0][0] <= now_ns and not over:
            piece = self._arriving.popleft()[1]
            if piece is None:
                over = True
            else:
                pieces.append(piece)
        octets = b"".join(pieces)
        if octets:
            self._held -= len(octets)
            self._handed += len(octets)
            while self._marks and self._marks[0][0] <= self._handed and not self._closing:
                self._marks.popleft()[1]()
            self.network.delivered(octets)
            if self.other._writing_paused and self._held < LOW_WATER_BYTES:
                self.network.loop.schedule_in(0, self.other._resume_writing, by=self.other.owner)
            if not self._closing:
                self.protocol.data_received(octets)
        if over and not self._closing:
            self._closing = True
            self._end(None)

    def _resume_writing(self) -> None:
        if self._writing_paused and self.protocol is not None and not self._ended:
            self._writing_paused = False
            self.protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = self._closing = True
            self.network.forget(self)
            if self.protocol is not None:
                self.protocol.connection_lost(error)


class Network:
    """All hosts, their ways and connections.

    Parameters
    ----------
    loop
        On which they run.
    dice
        Draws how long bytes take.
    """

    def __init__(self, loop: VirtualLoop, dice: Random) -> None:
        self.loop = loop
        self.dice = dice
        self.bytes_delivered = 0
        self._ways: dict[tuple[str, str], Way] = {}
        self._listeners: dict[tuple[str, int], tuple[Host, Callable[[], asyncio.Protocol]]] = {}
        self._wires: dict[Wire, None] = {}
        self._silent: set[str] = set()
        """Hosts without power."""

    def way(self, source: str, target: str) -> Way:
        """Return the way from one host to another, to look at it or to change it."""
        return self._ways.setdefault((source, target), Way())

    def listen(self, host: Host, port: int, factory: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections, by protocols made in the process that runs on the host then."""
        self._listeners[host.name, port] = host, factory

    def stop_listening(self, host: Host) -> None:
        """Refuse connections."""
        self._listeners = {key: found for key, found in self._listeners.items() if found[0] is not host}

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect the running process; raises OSError."""
        client = current()
        if client is None:
            raise OSError("only hosts have connections")
        there, back = self.way(client.host.name, host), self.way(host, client.host.name)
        waited_ns = self.dice.randrange(there.fastest_ns + back.fastest_ns, there.slowest_ns + back.slowest_ns + 1)
        await asyncio.sleep(waited_ns / SECOND_NS)
        while not (there.open and back.open) or host in self._silent:  # noqa: ASYNC110 - as TCP tries again
            await asyncio.sleep(1.0)
        found = self._listeners.get((host, port))
        if found is None or found[0].incarnation is None:
            raise ConnectionRefusedError(f"nothing listens at {host}:{port}")
        server, make = found
        assert server.incarnation is not None
        mine, theirs = Wire(self, client, there), Wire(self, server.incarnation, back)
        mine.other, theirs.other = theirs, mine
        self._wires |= {mine: None, theirs: None}
        self.loop.schedule_in(0, lambda: theirs.connected(make()), by=server.incarnation)
        protocol = factory()
        mine.connected(protocol)
        return mine, protocol

    def delivered(self, octets: bytes) -> None:
        """Count, and add to the trace."""
        self.bytes_delivered += len(octets)
        self.loop.note(crc32(octets))

    def forget(self, wire: Wire) -> None:
        """Leave out a connection that has ended."""
        self._wires.pop(wire, None)

    def set_open(self, source: str, target: str, *, is_open: bool) -> None:
        """Open or close a way."""
        self.way(source, target).open = is_open
        if is_open:
            for wire in self._wires:
                if (wire.other.owner.host.name, wire.owner.host.name) == (source, target):
                    wire.opened()

    def reset(self, one: str, other: str) -> None:
        """Break all connections between two hosts."""
        for wire in list(self._wires):
            if {wire.owner.host.name, wire.other.owner.host.name} == {one, other}:
                wire.reset()

    def forget_connections(self, one: str, other: str) -> None:
        """Let all connections between two hosts be silent for ever, as a firewall does that has forgotten them."""
        for wire in self._wires:
            if {wire.owner.host.name, wire.other.owner.host.name} == {one, other}:
                wire.silence()

    def killed(self, host: Host) -> None:
        """End the connections of a host's process, which is not alive any more, as its kernel does."""
        for wire in list(self._wires):
            if wire.owner.host is host and not wire.owner.alive:
                self.forget(wire)
                wire.other.send(None)

    def power_lost(self, host: Host) -> None:
        """Let the host be silent; the other ends of its connections do not notice."""
        self._silent.add(host.name)
        for wire in list(self._wires):
            if wire.owner.host is host:
                self.forget(wire)

    def power_returned(self, host: Host) -> None:
        """Let the host answer again: with a reset to those that believe in an old connection."""
        self._silent.discard(host.name)
        for wire in list(self._wires):
            if wire.other.owner.host is host and not wire.other.owner.alive:
                wire.reset()
