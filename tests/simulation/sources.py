"""What a process reads of its surroundings: time, chance and threads, each replaced by those of the current host.

Call :func:`install` before modules of the product are imported: many bind a clock as the default of a parameter.
Outside a simulated process everything stays as it was.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.thread
import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.simulation.hosts import CURRENT, SECOND_NS
from tests.simulation.threads import SimulatedThreads

if TYPE_CHECKING:
    from collections.abc import Callable

DRAWN = (
    "betavariate", "choice", "choices", "expovariate", "gauss", "getrandbits", "lognormvariate", "normalvariate",
    "paretovariate", "randbytes", "randint", "random", "randrange", "sample", "shuffle", "triangular", "uniform",
    "vonmisesvariate", "weibullvariate",
)  # fmt: skip
"""Functions of the module `random` that draw from its hidden source."""

_installed: list[bool] = []


def install() -> None:
    """Replace the functions, once per process."""
    if _installed:
        return
    _installed.append(True)
    _install_clocks()
    _install_chance()
    _install_threads()


def _install_threads() -> None:
    """Replace pools of threads, also where modules have named them already: a real thread would disturb the loop."""
    real = concurrent.futures.thread.ThreadPoolExecutor
    for module in list(sys.modules.values()):
        names = vars(module)
        if names.get("ThreadPoolExecutor") is real:
            names["ThreadPoolExecutor"] = SimulatedThreads


def _install_clocks() -> None:
    def monotonic_ns() -> int:
        process = CURRENT.get()
        return real_monotonic_ns() if process is None else process.host.clock.monotonic_ns() + process.slept_ns

    def wall_ns() -> int:
        process = CURRENT.get()
        return real_wall_ns() if process is None else process.host.clock.wall_ns() + process.slept_ns

    def monotonic() -> float:
        return monotonic_ns() / SECOND_NS

    def wall() -> float:
        return wall_ns() / SECOND_NS

    def sleep(seconds: float) -> None:
        process = CURRENT.get()
        if process is None:
            real_sleep(seconds)
        else:
            process.slept_ns += int(seconds * SECOND_NS)

    real_monotonic_ns, real_wall_ns, real_sleep = time.monotonic_ns, time.time_ns, time.sleep
    replaced: dict[str, Callable[..., Any]] = {
        "monotonic": monotonic, "monotonic_ns": monotonic_ns, "perf_counter": monotonic,
        "perf_counter_ns": monotonic_ns, "time": wall, "time_ns": wall_ns, "sleep": sleep,
    }  # fmt: skip
    for name, replacement in replaced.items():
        setattr(time, name, replacement)


def _install_chance() -> None:
    real_octets, real_seed = os.urandom, random.Random.seed

    def octets(count: int, /) -> bytes:
        process = CURRENT.get()
        return real_octets(count) if process is None else process.dice.randbytes(count)

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        process = CURRENT.get()
        real_seed(self, process.dice.getrandbits(64) if a is None and process is not None else a, version)

    def of_current(name: str) -> Callable[..., Any]:
        real = getattr(random, name)

        def draw(*arguments: Any, **keywords: Any) -> Any:
            process = CURRENT.get()
            return (real if process is None else getattr(process.dice, name))(*arguments, **keywords)

        return draw

    os.urandom = octets  # uuid and secrets draw from it
    random._urandom = octets  # type: ignore[attr-defined]
    random.Random.seed = seed  # type: ignore[method-assign]
    for name in DRAWN:
        setattr(random, name, of_current(name))
