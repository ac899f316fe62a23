"""What stands between a part and the world around it, and an event loop whose time stands still within a turn.

**An event loop whose time stands still within a turn, and whose turns are taken by something else.**

It is asyncio's own. Its selector asks a :class:`Turns` how long to wait, and its clock shows what that shows. When it
is recorded, turns follow the clock and the sockets; when it is replayed, the log. Timers of one instant run in the
order in which they were set.

What comes from outside, such as messages, ends of threads' work or a request to stop, becomes an *input*: it reaches
the part between two turns of its loop, before that turn's timers. So a log needs only the turns, and their inputs.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping, Sequence
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from protocols.mqtt.link import LinkError, Message
from protocols.recording.entries import Connected, Disconnected, Input, Messages, Published, Requested, Sent, Worked
from protocols.recording.taped_link import Handle, TapedLink, TapedThreads, Work

T = TypeVar("T")

Events = list[tuple[selectors.SelectorKey, int]]


class Turns(Protocol):
    """What takes the turns of a loop."""

    now_ns: int
    """The time of the present turn, by a clock that never goes back."""

    def wait(self, timeout: float | None, select: Callable[[float | None], Events]) -> Events:
        """Wait until the next turn begins, and return events of sockets.

        Parameters
        ----------
        timeout
            Seconds until the next timer; 0 if something can be done now, None if there is no timer.
        select
            Waits for events of sockets for so many seconds.
        """
        ...

    def executor(self, real: Executor | None = None) -> Executor | None:
        """Return what takes the place of threads, those of the loop or others; None for those themselves."""
        ...


class TurningSelector(selectors.DefaultSelector):
    """A selector that something else wakes."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._wait, self._select = turns.wait, super().select

    def select(self, timeout: float | None = None) -> Events:
        """Wait as what takes the turns does."""
        return self._wait(timeout, self._select)


class TickingLoop(asyncio.SelectorEventLoop):
    """An event loop whose turns are recorded, or replayed."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._timers_at = 0
        self._timers: set[float] = set()
        self._children: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        """How many tasks without a name each task has begun."""
        super().__init__(TurningSelector(turns))

    def time(self) -> float:
        """Return the seconds of the present turn."""
        return self._turns.now_ns / 1e9

    def call_at(  # type: ignore[override] # as asyncio documents it
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at an instant; of several that were set for the same in one turn, the first set runs first."""
        if self._timers_at != self._turns.now_ns:
            self._timers_at = self._turns.now_ns
            self._timers.clear()
        while when in self._timers:
            when = math.nextafter(when, math.inf)
        self._timers.add(when)
        return super().call_at(when, callback, *args, context=context)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Begin a task; one without a name is named by the task that begins it, the same in each run."""
        parent = asyncio.current_task(self) if name is None else None
        if parent is not None:
            self._children[parent] = count = self._children.get(parent, 0) + 1
            name = f"{parent.get_name()}/{count}"
        return super().create_task(coro, name=name, context=context)

    def run_in_executor(  # type: ignore[override] # as asyncio documents it
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do work in a thread."""
        own = self._turns.executor(executor)
        if own is None:
            return super().run_in_executor(executor, func, *args)
        return asyncio.wrap_future(own.submit(func, *args), loop=self)


Answer = asyncio.Future[list[MutableMapping[str, Any]]]
"""What a request is answered with: messages of ASGI."""
Given = Work | Answer


class WrappedLink(Protocol):
    """A link to a broker."""

    @property
    def hangs_total(self) -> int:
        """How many connections were given up because the broker sent nothing any more."""
        ...

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Receive until cancelled; call `take` in the task that receives, whose name is the same in each run."""

    async def publish(self, message: Message) -> None:
        """Publish; raises LinkError."""


MakeLink = Callable[[Callable[[], Awaitable[None]], Callable[[], None]], WrappedLink]
"""Makes the real link, given what it calls after each connect, and when a connection is lost."""


class Timeline(ABC):
    """The time of a loop, and all that reaches a part that runs on it."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.ahead_ns = 0
        """How far the time of day is ahead of the monotonic clock."""
        self.stopped = asyncio.Event()
        """Set when the part is to stop."""
        self.reads = 0
        """How often a clock was read."""
        self.outside = copy_context()
        """In which that runs which is no part of the recording."""
        self.link: TapedLink | None = None
        self.threads: TapedThreads | None = None
        self.on_request: Callable[[Requested, Answer | None], None] = _ignore
        """Carries out a request, and gives the answer to what waits for it, if anything does."""

    @property
    @abstractmethod
    def is_real(self) -> bool:
        """Whether there is a world outside, such as a broker."""

    @property
    def trouble(self) -> str | None:
        """Why there is no connection, if that is known."""
        return None

    @property
    def hangs_total(self) -> int:
        """How many connections were given up because the broker sent nothing any more."""
        return 0

    def radio_us(self) -> int:
        """Return the monotonic clock, in microseconds."""
        return self._read() // 1_000

    def real_us(self) -> int:
        """Return the time of day, in microseconds since 1970."""
        return (self._read() + self.ahead_ns) // 1_000

    def taped_link(self, make: MakeLink, on_connect: Callable[[], Awaitable[None]] | None) -> TapedLink:
        """Return the link of the part.

        Parameters
        ----------
        make
            Makes the real one, where there is a broker.
        on_connect
            Called after each connect.
        """
        self.link = TapedLink(self, on_connect)
        self._wrap(make)
        return self.link

    def taped_threads(self, real: Executor | None = None) -> TapedThreads:
        """Return threads whose work ends as an input; `real` are those that do it, where it is recorded."""
        threads = TapedThreads(self.begin_work, real, self.threads.counts if self.threads is not None else None)
        self.threads = self.threads or threads
        return threads

    def executor(self, real: Executor | None = None) -> Executor | None:
        """Return where work in threads is done; `real` are the threads that are wanted, None for the loop's own."""
        if real is None or self.threads is None:
            return self.threads
        return None if isinstance(real, TapedThreads) else self.taped_threads(real)

    def deliver(self, entry: Input, given: Given | None = None) -> None:
        """Let an input reach the part; messages and connects are handled then, by its link.

        Parameters
        ----------
        entry
            What the log holds of it.
        given
            The work that it is about, or what waits for an answer.
        """
        match entry:
            case Connected() | Disconnected():
                if self.link is not None:
                    self.link.connection(entry)
            case Messages():
                pass
            case Published(topic, nth, error):
                if self.link is not None:
                    self.link.settle(topic, nth, None if error is None else LinkError(error))
            case Worked():
                if isinstance(given, Work):
                    given.settle()
            case Requested():
                self.on_request(entry, given if isinstance(given, asyncio.Future) else None)
            case _:
                self.stopped.set()

    @abstractmethod
    def wait(self, timeout: float | None, select: Callable[[float | None], Events]) -> Events:
        """Take the next turn; see :class:`protocols.recording.timeline.Turns`."""

    @abstractmethod
    def publish(self, message: Message, nth: int) -> None:
        """Publish a message; what becomes of it is an input."""

    @abstractmethod
    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of a session that lasts, if there is a broker."""

    @abstractmethod
    def answered(self, request: Requested, status: int) -> None:
        """Note with which status a request was answered."""

    @abstractmethod
    def begin_work(self, work: Work, real: Executor | None) -> None:
        """Let a thread do a piece of work; that it is done is an input."""

    @abstractmethod
    async def run_link(self, handle: Handle) -> None:
        """Let all that arrives be handled, one after another, until cancelled."""

    @abstractmethod
    def _read(self) -> int: ...

    @abstractmethod
    def _wrap(self, make: MakeLink) -> None: ...


def _ignore(_: Requested, __: Answer | None) -> None:
    """Do nothing: the part takes no requests."""


def answer_of(request: Requested, status: int, cause: str) -> Sent:
    """Return what a log holds of the answer to a request."""
    return Sent(f"{request.method} {request.path}", str(status).encode(), 0, retain=False, cause=cause)
