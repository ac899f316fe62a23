"""Work in a process of its own, which ends without clearing up: what a simulated process left is never collected.

Each run begins with the same memory, so that one run cannot change the next; one that never ends is ended.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import resource
import signal
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

LONGEST_SECONDS = 60
"""Of processor time."""
_CHUNK_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_system = ctypes.CDLL(None)


class EndedError(Exception):
    """The work failed, or its process ended before it."""


class Apart(Generic[T]):
    """Work that runs in a copy of this process.

    Parameters
    ----------
    work
        What is done; its result can be pickled.
    longest_seconds
        Of processor time that it may take.
    processor
        On which all its threads run, by its number; None for any. Threads that wait for each other at every step, as
        those of Polars, take a third less time on one.

    Attributes
    ----------
    reading
        A file descriptor: readable once the work is done.
    """

    def __init__(
        self, work: Callable[[], T], *, longest_seconds: int = LONGEST_SECONDS, processor: int | None = None
    ) -> None:
        self.processor = processor
        self._longest_seconds = longest_seconds
        self.reading, writing = os.pipe()
        parent = os.getpid()
        with _interrupts_noted() as interrupts:
            self._child = os.fork()
            if not self._child:
                os.close(self.reading)
                _end_with(parent)
                if processor is not None:
                    os.sched_setaffinity(0, {processor})
                _work(work, writing, longest_seconds)
            os.close(writing)
        if interrupts:
            self.end()
            raise KeyboardInterrupt

    def result(self) -> T:
        """Wait, and return the result; raises EndedError, with the traceback, if the work failed."""
        octets = bytearray()
        while chunk := os.read(self.reading, _CHUNK_BYTES):
            octets += chunk
        os.close(self.reading)
        _, status = os.waitpid(self._child, 0)
        if not octets:
            signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            raise EndedError(f"the process ended by signal {signal}: more than {self._longest_seconds} s of work?")
        result, trouble = pickle.loads(octets)
        if trouble is not None:
            raise EndedError(trouble)
        return cast("T", result)

    def end(self) -> None:
        """End the work, whatever it is at."""
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        os.close(self.reading)


def apart(work: Callable[[], T], *, longest_seconds: int = LONGEST_SECONDS) -> T:
    """Do work in a copy of this process and return its result; parameters and errors are those of :class:`Apart`."""
    return Apart(work, longest_seconds=longest_seconds).result()


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """Note interrupts from the terminal: Python forgets an exception that comes while hooks run behind a fork."""
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield noted
        return
    signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with(parent: int) -> None:
    """Let this process end when the one that started it does; an interrupt from a terminal is for that one alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _system.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _work(work: Callable[[], object], writing: int, longest_seconds: int) -> None:
    status = 1
    try:
        # Collections would come at other instants in other runs, and clear up behind processes that were killed.
        gc.disable()
        gc.collect = lambda generation=2: 0  # type: ignore[assignment]
        resource.setrlimit(resource.RLIMIT_CPU, (longest_seconds, longest_seconds))
        try:
            octets = pickle.dumps((work(), None))
        except BaseException:  # noqa: BLE001 - the other process raises it
            octets = pickle.dumps((None, traceback.format_exc()))
        while octets:
            octets = octets[os.write(writing, octets) :]
        status = 0
    finally:
        os._exit(status)
