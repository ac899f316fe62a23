"""Which message is being handled. What happens meanwhile was caused by it, and the event log names it.

A part notes a message before it handles it, which costs next to nothing; its stimulus id is made only if it is wanted.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Protocol


class Received(Protocol):
    """A message that was received."""

    @property
    def topic(self) -> str:
        """Where it was published."""
        ...

    @property
    def payload(self) -> bytes:
        """What it contains."""
        ...


HANDLED: ContextVar[Received | None] = ContextVar("handled", default=None)
"""The message that is being handled now."""


def stimulus() -> str | None:
    """Return the stimulus id of the message that is being handled; None if there is none."""
    message = HANDLED.get()
    if message is None:
        return None
    from protocols.wire.stimuli import stimulus_of  # noqa: PLC0415 - logging commands need no frames

    return stimulus_of(message.topic, message.payload)


def cause() -> str:
    """Return what is happening now: the stimulus id of a message, or the name of a task that began by itself."""
    named = stimulus()
    if named is not None:
        return named
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return "" if task is None else f"task {task.get_name()}"
