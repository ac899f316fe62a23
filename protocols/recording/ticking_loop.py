"""An event loop whose time stands still within a turn, and whose turns are taken by something else.

It is asyncio's own. Its selector asks a :class:`Turns` how long to wait, and its clock shows what that shows. When it
is recorded, turns follow the clock and the sockets; when it is replayed, the log. Timers of one instant run in the
order in which they were set.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

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
