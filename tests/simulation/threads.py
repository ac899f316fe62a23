"""A pool of threads of a simulated process: work runs on the loop, at an instant that is drawn, in the order of asking.

The result arrives later than the work takes effect: a process may be killed in between.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import concurrent.futures.thread
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.hosts import current

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.virtual_loop import VirtualLoop

T = TypeVar("T")

_RealPool = concurrent.futures.thread.ThreadPoolExecutor
DEFAULT_WORKERS = 6


class _Work(concurrent.futures.Future[Any]):
    """One piece of work; waiting for it without the loop does it at once, with all that comes before."""

    def __init__(self, pool: SimulatedThreads, call: Callable[[], Any]) -> None:
        super().__init__()
        self._pool = pool
        self._call = call
        self._outcome: tuple[Any, BaseException | None] | None = None

    def do(self) -> None:
        """Do the work, unless it is done."""
        if self._outcome is None and self.set_running_or_notify_cancel():
            try:
                self._outcome = self._call(), None
            except BaseException as error:  # noqa: BLE001 - as a thread pool does
                self._outcome = None, error

    def report(self) -> None:
        """Pass the result on to what waits for it."""
        if self._outcome is not None and not self.done():
            result, error = self._outcome
            if error is None:
                self.set_result(result)
            else:
                self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        """Return the result, as :meth:`concurrent.futures.Future.result`."""
        if not self.done():
            self._pool.finish(self)
        return super().result(timeout)


class SimulatedThreads(concurrent.futures.Executor):
    """A pool; outside a simulated process a real one is made instead.

    Parameters
    ----------
    max_workers
        How many pieces of work are under way at a time.
    """

    def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
        """Make a pool."""
        return super().__new__(cls) if current() is not None else _RealPool(*arguments, **keywords)

    def __init__(self, max_workers: int | None = None, *_: Any, **__: Any) -> None:
        self._idle = max_workers or DEFAULT_WORKERS
        self._waiting: deque[_Work] = deque()
        self._under_way: list[_Work] = []
        self._ended = False

    def submit(self, call: Callable[..., T], /, *arguments: Any, **keywords: Any) -> concurrent.futures.Future[T]:
        """Do work later."""
        if self._ended:
            raise RuntimeError("cannot schedule new futures after shutdown")
        work = _Work(self, partial(call, *arguments, **keywords))
        self._waiting.append(work)
        self._begin()
        return work

    def finish(self, last: _Work | None = None) -> None:
        """Do at once all that waits, or all up to this."""
        while self._under_way or self._waiting:
            work = self._under_way[0] if self._under_way else self._waiting.popleft()
            work.do()
            work.report()
            if self._under_way and self._under_way[0] is work:
                self._under_way.pop(0)
                self._idle += 1
            if work is last:
                return

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more."""
        self._ended = True
        if cancel_futures:
            while self._waiting:
                self._waiting.popleft().cancel()
        if wait:
            self.finish()

    def _begin(self) -> None:
        while self._idle and self._waiting:
            self._idle -= 1
            work = self._waiting.popleft()
            self._under_way.append(work)
            loop: VirtualLoop = asyncio.get_running_loop()  # type: ignore[assignment]
            loop.in_thread(work.do, lambda *_, work=work: self._end(work))

    def _end(self, work: _Work) -> None:
        work.report()
        if work in self._under_way:
            self._under_way.remove(work)
            self._idle += 1
        self._begin()
