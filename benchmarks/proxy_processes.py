"""The processes of benchmarks/proxy.py."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from proxy_load import Shared

TIME_LIMIT_SECONDS = 60.0
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["proxy_load", "proxy_takers"])  # imported once: a process of its own begins at once


def new_shared() -> Shared:
    """Return what the processes of one contender share."""
    value = context.Value
    return Shared(value("q", 0), value("q", 0), value("q", 0), context.Event(), value("q", 0))


def start_process(
    stack: ExitStack, run: Callable[..., None], *arguments: object
) -> multiprocessing.process.BaseProcess:
    """Start a process that ends when the stop event in its last argument is set."""
    process = context.Process(target=run, args=arguments, daemon=True)
    process.start()
    stack.callback(process.join, TIME_LIMIT_SECONDS)
    stop = arguments[-1]
    if isinstance(stop, Shared):
        stack.callback(stop.stop.set)
    return process


def wait_for(reached: Callable[[], bool], problem: str, *, fail: bool = True) -> None:
    """Wait for a condition; after too long, fail or only print the problem."""
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            if fail:
                raise TimeoutError(problem)
            print(problem, file=sys.stderr)
            return
        time.sleep(0.005)
