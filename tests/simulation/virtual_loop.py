"""An event loop in simulated time, for all hosts of a simulation: it is asyncio's to the code that runs on it.

Time advances to the next timer once nothing else can run. Each host's callbacks keep the order that asyncio promises;
whose turn it is, and in which order timers of one instant run, is drawn. Work of threads runs in between, at an instant
that is drawn, and its result arrives at a later one. Nothing waits for real, and a seed gives one run.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import time
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from tests.simulation.hosts import CURRENT, SECOND_NS, Host, HostClock, Incarnation, WorldTime

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from random import Random

T = TypeVar("T")

LONGEST_WORK_NS = SECOND_NS // 2
"""A callback that computes for longer blocks everything else of its process."""
MOST_AT_ONE_INSTANT = 200_000
"""More callbacks without any time passing go round in circles."""
THREAD_BEGINS_NS, THREAD_TAKES_NS = 2_000_000, 5_000_000
"""Work in a thread begins within so long, and takes up to so long."""
FEW_CANCELLED = 200
_computed_ns = time.thread_time_ns
"""Of this thread alone: what waits for a processor does not compute."""
_passed_ns, SHORT_NS = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC), 20_000_000
"""Costs a tenth of the other clock, which is read only when so much has passed by this one."""
_MIXED, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


class StalledError(Exception):
    """Nothing can happen any more, or things happen without end and without time passing."""


class SlowCallback(NamedTuple):
    """A callback that computed for too long."""

    incarnation: str
    seconds: float
    what: str


class Dialler(Protocol):
    """Opens connections: the network."""

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect, as :meth:`asyncio.AbstractEventLoop.create_connection` does."""
        ...


class ReadyHandle(asyncio.Handle):
    """A handle as asyncio makes it when nothing is debugged, in half the time."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, arguments
        self._cancelled, self._repr, self._source_traceback = False, None, None


class WaitingHandle(asyncio.TimerHandle):
    """The same, of a timer."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, arguments
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True


class NumberedTask(asyncio.Task[T]):
    """A task that is found at the same place of a set in each run."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], *, loop: VirtualLoop, context: Context, **given: Any) -> None:
        self.number = loop.next_number()
        self.incarnation = context.get(CURRENT)
        super().__init__(coroutine, loop=loop, context=context, **given)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of a simulation.

    Parameters
    ----------
    dice
        Draws whose turn it is.
    world
        Its time.

    Attributes
    ----------
    network
        Opens connections; none unless it is set.
    slow
        Callbacks that computed for too long.
    unhandled
        What no code handled: contexts as :meth:`asyncio.AbstractEventLoop.call_exception_handler` gets them, with
        the incarnation.
    """

    def __init__(self, dice: Random, world: WorldTime) -> None:
        self.world = world
        self.network: Dialler | None = None
        self.slow: list[SlowCallback] = []
        self.unhandled: list[tuple[str, dict[str, Any]]] = []
        self.callbacks = 0
        """How many have run."""
        self._steering = Host("steering", HostClock(world)).start()
        self._turn_of = self._steering
        self._dice = dice
        self._runnable: list[Incarnation] = []
        self._timers: list[tuple[int, float, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._cancelled = 0
        self._at_this_instant = 0
        self._trace = 0
        self._running = self._stopping = self._closed = False

    # What the simulation uses.

    @property
    def trace(self) -> int:
        """A number made of what ran when: the same for the same run."""
        return self._trace

    def note(self, number: int) -> None:
        """Add to the trace."""
        self._trace = ((self._trace ^ number) * _MIXED + 1) & _MASK

    def next_number(self) -> int:
        """Return a number not given before."""
        self._numbers += 1
        return self._numbers

    def schedule(
        self, at_ns: int, callback: Callable[..., object], *arguments: Any, by: Incarnation | None = None
    ) -> asyncio.TimerHandle:
        """Call back at an instant of true time, as an incarnation or, without one, as what steers the simulation."""
        context = (by or self._steering).context
        return self._put(max(at_ns, self.world.now_ns), callback, arguments, context)

    def schedule_in(
        self, after_ns: int, callback: Callable[..., object], *arguments: Any, by: Incarnation | None = None
    ) -> asyncio.TimerHandle:
        """Call back so long from now, as :meth:`schedule`."""
        return self.schedule(self.world.now_ns + after_ns, callback, *arguments, by=by)

    def spawn(self, incarnation: Incarnation, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin a task of an incarnation."""
        return self.create_task(coroutine, name=name, context=incarnation.new_context())

    def kill(self, host: Host) -> None:
        """End the host's process as kill -9 does: nothing of it runs any more, not even what clears up."""
        dead, host.incarnation = host.incarnation, None
        if dead is None:
            return
        for task in asyncio.all_tasks(self):
            if isinstance(task, NumberedTask) and task.incarnation is dead:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                dead.bury(task)
        dead.alive = False
        dead.bury(list(dead.ready))
        dead.ready.clear()
        if dead in self._runnable:
            self._runnable.remove(dead)

    def pause(self, host: Host) -> None:
        """Stop the host's process, as SIGSTOP does."""
        if host.incarnation is not None:
            host.incarnation.paused = True
            if host.incarnation in self._runnable:
                self._runnable.remove(host.incarnation)

    def resume(self, host: Host) -> None:
        """Let it go on."""
        if host.incarnation is not None:
            host.incarnation.paused = False
            if host.incarnation.ready and host.incarnation not in self._runnable:
                self._runnable.append(host.incarnation)

    async def passed(self, seconds: float) -> None:
        """Wait for so much true time."""
        future = self.create_future()
        self.schedule_in(int(seconds * SECOND_NS), future.set_result, None)
        await future

    # What asyncio uses.

    def time(self) -> float:
        return self._clock().monotonic_ns() / SECOND_NS

    def call_soon(
        self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = ReadyHandle(callback, arguments, self, context)
        self._make_ready(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *arguments, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        at_ns = max(self._clock().world_ns_of(when), self.world.now_ns)
        return self._put(at_ns, callback, arguments, context, when)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        return NumberedTask(coroutine, loop=self, name=name, context=context or copy_context())

    def run_in_executor(self, executor: object, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Run the work at a later instant, as one of the process's threads."""
        del executor
        future: asyncio.Future[T] = self.create_future()

        def report(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        self.in_thread(lambda: work(*arguments), report)
        return future

    def in_thread(self, work: Callable[[], T], report: Callable[[T | None, BaseException | None], None]) -> None:
        """Run work at a later instant and report at one that is later still; a kill may come before, or in between."""
        incarnation = CURRENT.get() or self._steering
        begins_ns = int(self._dice.random() * THREAD_BEGINS_NS)

        def run() -> None:
            asyncio._set_running_loop(None)
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - as a thread pool does
                error = raised
            finally:
                asyncio._set_running_loop(self)
            takes_ns = int(self._dice.random() * THREAD_TAKES_NS) + incarnation.host.threads_slow_ns
            slept_ns, incarnation.slept_ns = incarnation.slept_ns, 0
            self.schedule_in(takes_ns + slept_ns, report, result, error, by=incarnation)

        run.in_thread = True  # type: ignore[attr-defined]
        self.schedule_in(begins_ns, run, by=incarnation)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        if self.network is None:
            raise OSError("there is no network")
        return await self.network.connect(protocol_factory, host, port)

    def run_until_complete(self, future: Coroutine[Any, Any, T]) -> T:  # type: ignore[override]
        task = self.create_task(future, name="steering", context=self._steering.context)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        if not task.done():
            raise RuntimeError("the loop was stopped before the task was done")
        return task.result()

    def run_forever(self) -> None:
        hooks = sys.get_asyncgen_hooks()
        self._running, self._stopping = True, False
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=self._end_generator)
        try:
            self._run_turns()
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)
            self._running = False

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def get_debug(self) -> bool:
        return False

    def add_signal_handler(self, *_: Any) -> None:
        """Do nothing: simulated processes get no signals."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled.append((repr(CURRENT.get() or self._turn_of), context))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        self._cancelled += 1
        if self._cancelled > FEW_CANCELLED and self._cancelled * 2 > len(self._timers):
            self._timers = [each for each in self._timers if not each[-1].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    # How it runs.

    def _clock(self) -> HostClock:
        return (CURRENT.get() or self._steering).host.clock

    def _put(
        self,
        at_ns: int,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context | None,
        when: float | None = None,
    ) -> asyncio.TimerHandle:
        handle = WaitingHandle(at_ns / SECOND_NS if when is None else when, callback, arguments, self, context)
        heapq.heappush(self._timers, (at_ns, self._dice.random(), self.next_number(), handle))
        return handle

    def _make_ready(self, handle: asyncio.Handle) -> None:
        incarnation = handle._context.get(CURRENT) or self._steering  # type: ignore[attr-defined]
        if not incarnation.alive:
            incarnation.bury(handle)
            return
        if not incarnation.ready and not incarnation.paused:
            self._runnable.append(incarnation)
        incarnation.ready.append(handle)

    def _run_turns(self) -> None:
        """Run one callback after the other, until stopped."""
        runnable, world, random = self._runnable, self.world, self._dice.random
        computed_ns, read_ns = _computed_ns(), _passed_ns()
        handle: asyncio.Handle | None
        while not self._stopping:
            # What goes with it may call back: not when a process has been chosen and is still among those that can run.
            handle = callback = None
            if not runnable:
                self._advance()
                continue
            waiting = len(runnable)
            place = int(random() * waiting) if waiting > 1 else 0
            self._turn_of = incarnation = runnable[place]
            handle = incarnation.ready.popleft()
            if not incarnation.ready:
                runnable[place] = runnable[-1]
                runnable.pop()
            if handle._cancelled:  # type: ignore[attr-defined]
                continue
            self._at_this_instant += 1
            if self._at_this_instant > MOST_AT_ONE_INSTANT:
                raise StalledError(f"{incarnation} goes round in circles: {handle}")
            self.callbacks += 1
            self._trace = ((self._trace ^ world.now_ns ^ incarnation.mark << 32) * _MIXED + 1) & _MASK  # as note()
            callback = handle._callback  # type: ignore[attr-defined]
            handle._run()
            if (passed_ns := _passed_ns()) - read_ns < SHORT_NS:
                continue
            before_ns, computed_ns, read_ns = computed_ns, _computed_ns(), passed_ns
            if computed_ns - before_ns > LONGEST_WORK_NS + SHORT_NS and not hasattr(callback, "in_thread"):
                seconds = (computed_ns - before_ns) / SECOND_NS
                self.slow.append(SlowCallback(repr(incarnation), seconds, repr(handle)))

    def _advance(self) -> None:
        """Let time pass until the next timer, and make ready all that is due then."""
        timers = self._timers
        while timers and timers[0][-1]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)
            self._cancelled = max(0, self._cancelled - 1)
        if not timers:
            names = sorted(task.get_name() for task in asyncio.all_tasks(self) if self._lives(task))
            raise StalledError(f"nothing can happen any more; these wait: {', '.join(names)}")
        self.world.now_ns = now_ns = timers[0][0]
        self._at_this_instant = 0
        while timers and timers[0][0] == now_ns:
            handle = heapq.heappop(timers)[-1]
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle._cancelled:  # type: ignore[attr-defined]
                self._cancelled = max(0, self._cancelled - 1)
            else:
                self._make_ready(handle)

    @staticmethod
    def _lives(task: asyncio.Task[Any]) -> bool:
        incarnation = getattr(task, "incarnation", None)
        return incarnation is None or incarnation.alive

    def _end_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.call_soon(lambda: self.create_task(generator.aclose()))  # type: ignore[arg-type]
