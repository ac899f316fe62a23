"""Simulated machines: each has clocks of its own and runs a process, which may be killed, paused and started again.

A process that runs is an *incarnation* of its host. A context variable names the incarnation whose code runs now; all
that it starts inherits that. What an incarnation reads of time and chance is its host's (tests/simulation/sources.py).
"""

from __future__ import annotations

from collections import deque
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

T = TypeVar("T")

SECOND_NS = 1_000_000_000
WALL_BEGINS_NS = 1_700_000_000 * SECOND_NS
"""What a right wall clock shows when a simulation begins."""
MILLION = 1_000_000

CURRENT: ContextVar[Incarnation | None] = ContextVar("incarnation", default=None)
"""The incarnation whose code runs; none outside a simulation, and in what steers it."""


class WorldTime:
    """True time since the beginning, in nanoseconds. Only the loop moves it."""

    def __init__(self) -> None:
        self.now_ns = 0


class HostClock:
    """The clocks of one host.

    Parameters
    ----------
    world
        True time.
    drift_ppm
        How much faster than true time both of its clocks run, in parts per million; negative if slower.
    ahead_ns
        How far its wall clock is ahead at the beginning; negative if behind.
    """

    def __init__(self, world: WorldTime, *, drift_ppm: int = 0, ahead_ns: int = 0) -> None:
        self._world = world
        self._rate = MILLION + drift_ppm
        self._booted_ns = world.now_ns
        self._wall_at_boot_ns = WALL_BEGINS_NS + world.now_ns + ahead_ns

    def monotonic_ns(self) -> int:
        """Return the time since the host was switched on, by its own clock."""
        return (self._world.now_ns - self._booted_ns) * self._rate // MILLION

    def wall_ns(self) -> int:
        """Return the time since 1970, by its own clock."""
        return self._wall_at_boot_ns + self.monotonic_ns()

    def world_ns_of(self, monotonic_seconds: float) -> int:
        """Return the first instant of true time at which the monotonic clock shows at least so much."""
        wanted_ns = int(monotonic_seconds * SECOND_NS)
        while wanted_ns / SECOND_NS < monotonic_seconds:
            wanted_ns += 1
        return self._booted_ns - -wanted_ns * MILLION // self._rate

    def step(self, by_ns: int) -> None:
        """Set the wall clock forward, or back."""
        self._wall_at_boot_ns += by_ns

    def boot(self) -> None:
        """Begin the monotonic clock again, as after a power cut; the wall clock has a battery."""
        self._wall_at_boot_ns, self._booted_ns = self.wall_ns(), self._world.now_ns


class Incarnation:
    """One process of a host, from its start until it is killed or ends.

    Parameters
    ----------
    host
        Where it runs.
    number
        The first process of a host is number 1.
    seed
        Of all that it draws.
    """

    def __init__(self, host: Host, number: int, seed: str) -> None:
        self.host = host
        self.number = number
        self.dice = Random(seed)
        self.mark = crc32(repr(self).encode())
        self.alive = True
        self.paused = False
        self.ready: deque[asyncio.Handle] = deque()
        """What the loop may run of it now, in order."""
        self.grave: list[object] = []
        """What must not be collected once it is dead: else coroutines would be closed, and run on."""
        self.slept_ns = 0
        """How long the thread whose work runs now has slept."""
        self.context = copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"{self.host.name}#{self.number}"

    def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Call a function as this incarnation."""
        return self.new_context().run(work, *arguments)

    def new_context(self) -> Context:
        """Return a context in which code runs as this incarnation."""
        return self.context.copy()

    def bury(self, something: object) -> None:
        """Keep an object of a dead incarnation for as long as the simulation runs."""
        self.grave.append(something)


class Host:
    """A machine.

    Parameters
    ----------
    name
        Of the host; part of the seed of all that its processes draw.
    clock
        Its clocks.
    seed
        Of the simulation.
    """

    def __init__(self, name: str, clock: HostClock, seed: str = "") -> None:
        self.name = name
        self.clock = clock
        self.seed = seed
        self.incarnation: Incarnation | None = None
        """The process that runs; none after it has been killed."""
        self.started = 0
        """How many processes it has had."""
        self.threads_slow_ns = 0
        """What each piece of work in a thread takes longer at present, as with a slow disk."""

    def start(self) -> Incarnation:
        """Begin a process; what ran before must have been killed."""
        if self.incarnation is not None:
            raise RuntimeError(f"{self.incarnation} runs")
        self.started += 1
        self.incarnation = Incarnation(self, self.started, f"{self.seed}/{self.name}/{self.started}")
        return self.incarnation


def current() -> Incarnation | None:
    """Return the incarnation whose code runs."""
    return CURRENT.get()
