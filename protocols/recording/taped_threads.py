"""Threads whose work ends as an input of a timeline."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Work:
    """A piece of work, known by the task that wants it and how many that task wanted before.

    Parameters
    ----------
    task, nth
        The name of the task, and the number.
    call
        The work.
    """

    def __init__(self, task: str, nth: int, call: Callable[[], Any]) -> None:
        self.task = task
        self.nth = nth
        self.wanted: concurrent.futures.Future[Any] = concurrent.futures.Future()
        """What the part waits for."""
        self._call = call
        self._outcome: tuple[Any, BaseException | None] | None = None

    def do(self) -> None:
        """Do the work, in any thread; raises nothing."""
        try:
            self._outcome = self._call(), None
        except BaseException as error:  # noqa: BLE001 - as a thread pool does
            self._outcome = None, error

    def settle(self) -> None:
        """Give the result to what waits for it; if the work is not done yet, do it."""
        if self._outcome is None:
            self.do()
        if self._outcome is None or not self.wanted.set_running_or_notify_cancel():
            return
        result, error = self._outcome
        if error is None:
            self.wanted.set_result(result)
        else:
            self.wanted.set_exception(error)


class TapedThreads(concurrent.futures.Executor):
    """A pool of threads.

    Parameters
    ----------
    begin
        Lets a piece of work be done, by these threads; its end is an input.
    real
        Does the work; None if it is done when the timeline says that it has ended.
    counts
        How many pieces each task has wanted until now.
    """

    def __init__(
        self,
        begin: Callable[[Work, concurrent.futures.Executor | None], None],
        real: concurrent.futures.Executor | None,
        counts: Counter[str] | None,
    ) -> None:
        self._begin = begin
        self._real = real
        self.counts: Counter[str] = Counter() if counts is None else counts

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        """Let work be done."""
        task = asyncio.current_task()
        name = "" if task is None else task.get_name()
        self.counts[name] += 1
        work = Work(name, self.counts[name], partial(fn, *args, **kwargs))
        self._begin(work, self._real)
        return work.wanted

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Accept no more; the threads themselves belong to what made them."""
