"""Inputs of a target one after the other: what each raises, and the processor time of each of its steps.

Garbage is collected between steps: a full collection takes as long as the heap of all targets is large, and would be
charged to the step in which it happens to come.

An input has a name, ``target/seed/number``, from which it is drawn again.
"""

from __future__ import annotations

import gc
import random
import signal
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from protocols.errors import FjordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

STUCK = 4
"""A step that takes so many times its limit is interrupted."""
_LINES = 12
"""The most lines of a traceback that a finding shows."""


class Target(Protocol):
    """A part of Fjord that takes input from outside."""

    @property
    def name(self) -> str:
        """A word for commands and reports."""

    @property
    def errors(self) -> tuple[type[FjordError], ...]:
        """The errors that a step may raise; empty if it must take whatever comes."""

    @property
    def limit_seconds(self) -> float:
        """The most processor time of a step."""

    def steps(self, dice: random.Random) -> Iterator[Callable[[], object]]:
        """Yield the steps of a random input; what happens between them is not measured."""


class StuckError(BaseException):
    """A step was interrupted; no code of ours may catch it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that shows a fault.

    Parameters
    ----------
    input
        Its name.
    what
        What is wrong.
    detail
        The end of the traceback, if there is one.
    """

    input: str
    what: str
    detail: str = ""

    @property
    def is_slow(self) -> bool:
        """Whether a step took too long."""
        return self.what.startswith("took")


@dataclass(slots=True)
class Tally:
    """What came of a target's inputs."""

    inputs: int = 0
    steps: int = 0
    refused: int = 0
    """Steps that raised one of our own errors."""
    slowest_seconds: float = 0.0
    slowest: str = ""
    """The input with the slowest step."""
    findings: list[Finding] = field(default_factory=list)
    slow_once: list[Finding] = field(default_factory=list)
    """Inputs that took too long, and did not when they were repeated."""

    @property
    def foreign(self) -> int:
        """Inputs that raised anything but our own errors."""
        return sum(not each.is_slow for each in self.findings)

    @property
    def over_limit(self) -> int:
        """Inputs with a step that took too long."""
        return len(self.findings) - self.foreign


def run_inputs(target: Target, names: Iterable[str], tally: Tally) -> Iterator[Tally]:
    """Run inputs; yield the tally, to which each is added, after each."""
    for name in names:
        run_input(target, name, tally)
        yield tally


def run_input(target: Target, name: str, tally: Tally) -> None:
    """Run one input, up to the first step that shows a fault."""
    tally.inputs += 1
    slowest = 0.0
    steps = target.steps(random.Random(name))
    try:
        for step in steps:
            tally.steps += 1
            with _uncollected():
                began = time.process_time()
                try:
                    with _interrupted_after(STUCK * target.limit_seconds):
                        step()
                except target.errors:
                    tally.refused += 1
                slowest = max(slowest, time.process_time() - began)
    except StuckError:
        tally.findings.append(Finding(name, f"took more than {STUCK * target.limit_seconds:g} s", _traceback()))
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        tally.findings.append(Finding(name, f"{type(error).__name__}: {str(error)[:200]}", _traceback()))
        return
    if slowest > tally.slowest_seconds:
        tally.slowest_seconds, tally.slowest = slowest, name
    if slowest > target.limit_seconds:
        tally.findings.append(Finding(name, f"took {slowest:.2f} s, the limit is {target.limit_seconds:g} s"))


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt what takes this much of the processor, even if it would never end."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise StuckError

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def _uncollected() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _traceback() -> str:
    return "\n".join(traceback.format_exc().splitlines()[-_LINES:])
