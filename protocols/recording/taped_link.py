"""What a part that is recorded or replayed receives from its link and its threads: inputs, in the order of a log."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from protocols.mqtt.link import LinkError, Message
from protocols.recording.entries import Connected, Disconnected

Arrival = Sequence[Message] | Connected
Handle = Callable[[Arrival], Awaitable[None]]
"""Handles messages that arrived together, or a connect; raises LinkError."""


class Surroundings(Protocol):
    """What a link is connected to."""

    @property
    def trouble(self) -> str | None:
        """Why there is no connection, if that is known."""
        ...

    @property
    def hangs_total(self) -> int:
        """How many connections were given up because the broker sent nothing any more."""
        ...

    def publish(self, message: Message, nth: int) -> None:
        """Publish a message; what becomes of it is an input."""
        ...

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of a session that lasts."""
        ...

    async def run_link(self, handle: Handle) -> None:
        """Keep the connection, and let all that arrives be handled, one after another, until cancelled."""


class TapedLink:
    """A link, as :class:`protocols.mqtt.link.MqttLink` to what uses it.

    Parameters
    ----------
    timeline
        Which messages come from.
    on_connect
        Called after each connect.
    """

    def __init__(self, timeline: Surroundings, on_connect: Callable[[], Awaitable[None]] | None) -> None:
        self.connected = asyncio.Event()
        self.connects_total = self.hangs_total = 0
        self._timeline = timeline
        self._on_connect = on_connect
        self._connections = self._lost = 0
        self._sent: Counter[str] = Counter()
        self._outstanding: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._early: dict[tuple[str, int], LinkError | None] = {}

    @property
    def trouble(self) -> str | None:
        """Why there is no connection, if that is known."""
        return self._timeline.trouble

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Handle connects and messages, one after another, until cancelled."""

        async def handle(arrival: Arrival) -> None:
            if isinstance(arrival, Connected):
                await self._begin()
            else:
                await take(arrival)

        await self._timeline.run_link(handle)

    async def publish(self, message: Message) -> None:
        """Publish, and wait until the broker has it; raises LinkError."""
        topic = message.topic
        self._sent[topic] += 1
        key = topic, self._sent[topic]
        self._timeline.publish(message, key[1])
        if key in self._early:
            error = self._early.pop(key)
            if error is not None:
                raise error
            return
        outcome = self._outstanding[key] = asyncio.get_running_loop().create_future()
        try:
            await outcome
        finally:
            self._outstanding.pop(key, None)

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of a session that lasts; a replay has no broker that would send them again."""
        self._timeline.acknowledge(numbers)

    def connection(self, entry: Connected | Disconnected) -> None:
        """Note that there is a connection, which is handled next, or that it is lost."""
        self.hangs_total = self._timeline.hangs_total
        if isinstance(entry, Disconnected):
            self._lost = self._connections
            self.connected.clear()
        else:
            self._connections += 1

    def settle(self, topic: str, nth: int, error: LinkError | None) -> None:
        """Let it be known what has become of a message."""
        outcome = self._outstanding.get((topic, nth))
        if outcome is None:
            if nth > self._sent[topic]:  # it is sent later than when it was recorded
                self._early[topic, nth] = error
        elif not outcome.done():
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)

    async def _begin(self) -> None:
        if self._lost == self._connections:
            return  # lost meanwhile
        self.connects_total += 1
        self.connected.set()
        if self._on_connect is not None:
            await self._on_connect()


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
