"""A timeline that follows the real clock and the real link, and notes all that happens."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING

from protocols.mqtt.link import LinkError, Message
from protocols.recording.entries import (
    LATEST_NS,
    MOST_PAUSE_NS,
    PLAIN,
    AnyEntry,
    Began,
    Chunk,
    ClockRead,
    Connected,
    Disconnected,
    Input,
    Messages,
    Published,
    Requested,
    Sent,
    Stopped,
    Turn,
    WallClock,
    Worked,
    flags_of,
)
from protocols.recording.taped_link import Arrival, Handle
from protocols.recording.timeline import Answer, Given, MakeLink, Timeline, WrappedLink, answer_of
from protocols.stimulus import cause

if TYPE_CHECKING:
    from protocols.recording.segments import SegmentWriter
    from protocols.recording.taped_link import Work
    from protocols.recording.timeline import Events

CLOCK_STEP_NS = 1_000_000
"""The time of day is noted anew when it has moved by this against the monotonic clock."""
SOON_NS = 1_000
"""A timer that is due so soon counts as due: more than floating point is wrong by."""
LOOK_EVERY_NS = 10_000_000
"""How often that is looked at, and how much waits to be written."""
LONG_TURN_NS = 5_000_000
"""Within a turn that takes longer, time is seen to pass."""
FLUSH_EVERY_NS, MOST_ENTRIES, MOST_BYTES = 250_000_000, 4_000, 1 << 20
"""How often entries are passed on to be written, and how many of them wait at most."""
BYTES_OF_TOPIC = 40
"""About so many bytes has a topic."""

_OUTSIDE: ContextVar[str] = ContextVar("outside", default="")
"""Whether what runs is no part of the recording: the real link, whose work in threads is its own."""


class Recorder(Timeline):
    """Notes what happens.

    Parameters
    ----------
    writer
        Writes it.
    """

    def __init__(self, writer: SegmentWriter) -> None:
        super().__init__()
        self._writer = writer
        self._inputs: deque[tuple[Input, Given | None, asyncio.Future[None] | None]] = deque()
        """Inputs for the next turn; what they are about; and what waits for them to be noted."""
        self._entries: list[AnyEntry] = []
        self._bytes = 0
        self._connected = False
        self._thread = threading.get_ident()
        self._inner: WrappedLink | None = None
        self._handle: Handle = _not_running
        self._publishing: set[asyncio.Task[None]] = set()
        self._pool = ThreadPoolExecutor(thread_name_prefix="recorded")
        self.now_ns = self._noted_ns = self._flushed_ns = self._look_ns = time.monotonic_ns()
        self.ahead_ns = self._seen_ahead_ns = time.time_ns() - self.now_ns
        self._asleep = False
        """Whether nothing of the part can run before the next input, or a timer; the loop has waited since it ran."""
        self._due_ns = 0
        """When the first timer is due, while it sleeps."""
        self._chunk = (self.now_ns, self.ahead_ns, self._connected)
        self.outside = copy_context()
        self.outside.run(_OUTSIDE.set, "link")

    @property
    def hangs_total(self) -> int:
        """How many connections were given up because the broker sent nothing any more."""
        return 0 if self._inner is None else self._inner.hangs_total

    @property
    def is_real(self) -> bool:
        """Yes."""
        return True

    @property
    def trouble(self) -> str | None:
        """Why there is no connection; None while there is one."""
        return getattr(self._inner, "trouble", None)

    def ask(self, request: Requested, answer: Answer) -> None:
        """Let a request be carried out, and answered."""
        self._bytes += len(request.body)
        self._inputs.append((request, answer, None))

    def answered(self, request: Requested, status: int) -> None:
        """Note the answer."""
        self._note(answer_of(request, status, cause()))

    def end(self, reason: str) -> None:
        """Record nothing from now on, as a replay could not follow."""
        self._writer.end(reason)

    def stop(self) -> None:
        """Let the part stop; from its own thread."""
        self._put(Stopped())

    def close(self) -> None:
        """Pass on what was noted last, and let the writer end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._flush()
        self._writer.close()

    def executor(self, real: Executor | None = None) -> Executor | None:
        """Return where work in threads is done; None where those do it that are wanted."""
        return None if _OUTSIDE.get() else super().executor(real)

    def wait(self, timeout: float | None, select: Callable[[float | None], Events]) -> Events:
        """Take the next turn, when something happens or a timer is due.

        A turn in which nothing of the part runs is not noted: from when the loop waits until an input or a timer.
        """
        if timeout is None or timeout > 0:
            self._asleep = True
            self._due_ns = LATEST_NS if timeout is None else self.now_ns + int(timeout * 1e9) - SOON_NS
            if self._inputs:
                timeout = 0
            elif timeout is not None:
                timeout = max(0.0, timeout - (time.monotonic_ns() - self.now_ns) / 1e9)
        events = select(timeout)
        now_ns = time.monotonic_ns()
        if now_ns >= self._look_ns:
            self._look(now_ns)
        if self._asleep and not self._inputs and now_ns < self._due_ns:
            self.now_ns = now_ns
            return events
        self._begin_turn(now_ns)
        while self._inputs:
            entry, given, reached = self._inputs.popleft()
            self._enter(entry, given)
            if reached is not None and not reached.done():
                reached.set_result(None)
        return events

    def publish(self, message: Message, nth: int) -> None:
        """Publish a message over the real link."""
        self._note(Sent(message.topic, message.payload, message.qos, message.retain, cause()))
        self._bytes += len(message.payload)
        task = asyncio.get_running_loop().create_task(
            self._publish(message, nth), name="publish", context=self.outside.copy()
        )
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of a session that lasts, over the real link."""
        take = getattr(self._inner, "acknowledge", None)
        if take is not None:
            self.outside.copy().run(take, numbers)

    def begin_work(self, work: Work, real: Executor | None) -> None:
        """Let a thread do a piece of work."""
        loop = asyncio.get_running_loop()

        def ended(_: Future[None]) -> None:
            self._inputs.append((Worked(work.task, work.nth), work, None))
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_nothing)

        self._note(Began(work.task, work.nth))
        (real or self._pool).submit(work.do).add_done_callback(ended)

    async def run_link(self, handle: Handle) -> None:
        """Keep the real link's connection, until cancelled."""
        if self._inner is None:
            return
        self._handle = handle
        inside = _OUTSIDE.set("link")
        try:
            await self._inner.run_in_bursts(self._take)
        finally:
            _OUTSIDE.reset(inside)

    async def _take(self, messages: Sequence[Message]) -> None:
        payloads = tuple([each.payload for each in messages])
        self._bytes += sum(map(len, payloads)) + BYTES_OF_TOPIC * len(payloads)
        flags = bytes(map(flags_of, messages))
        plain = flags.count(PLAIN) == len(flags)
        numbers = tuple([each.number for each in messages])
        topics = tuple([each.topic for each in messages])
        entry = Messages(topics, payloads, b"" if plain else flags, numbers if any(numbers) else ())
        await self._arrive(entry, messages)

    async def _connect(self) -> None:
        entry = Connected()
        await self._arrive(entry, entry)

    async def _arrive(self, entry: Messages | Connected, arrival: Arrival) -> None:
        """Let something be handled by the part, in the task of its link, from where a replay lets it be handled."""
        if self._asleep and not self._inputs:
            # A turn of the part may begin in the middle of one of the loop, in which nothing else of the part runs.
            self._begin_turn(self.now_ns)
            self._enter(entry, None)
        else:
            reached = asyncio.get_running_loop().create_future()
            self._inputs.append((entry, None, reached))
            await reached
        outside = _OUTSIDE.set("")
        try:
            await self._handle(arrival)
        finally:
            _OUTSIDE.reset(outside)

    def _begin_turn(self, now_ns: int) -> None:
        self._entries.append(Turn(now_ns - self._noted_ns, self._asleep))
        self._asleep = False
        self.now_ns = self._noted_ns = now_ns
        if self._seen_ahead_ns != self.ahead_ns:
            self.ahead_ns = self._seen_ahead_ns
            self._note(WallClock(self.ahead_ns))

    def _enter(self, entry: Input, given: Given | None) -> None:
        """Let an input reach the part, in the present turn."""
        self._note(entry)
        if isinstance(entry, Messages):
            return  # the task of the link handles them
        if isinstance(entry, Connected | Disconnected):
            self._connected = isinstance(entry, Connected)
        self.deliver(entry, given)

    async def _publish(self, message: Message, nth: int) -> None:
        error: str | None = None
        try:
            if self._inner is not None:
                await self._inner.publish(message)
        except LinkError as raised:
            error = raised.message
        self._put(Published(message.topic, nth, error))

    def _wrap(self, make: MakeLink) -> None:
        # Outside, as a replay does not make it: else what it reads of clocks would count.
        self._inner = self.outside.copy().run(make, self._connect, partial(self._put, Disconnected()))

    def _put(self, entry: Input) -> None:
        """Let an input wait for the next turn."""
        self._inputs.append((entry, None, None))

    def _read(self) -> int:
        now_ns = time.monotonic_ns()
        if _OUTSIDE.get() or threading.get_ident() != self._thread:
            return now_ns
        self.reads += 1
        if now_ns - self.now_ns > LONG_TURN_NS:
            self.now_ns = self._noted_ns = now_ns
            self._note(ClockRead(self.reads, now_ns))
        return self.now_ns

    def _note(self, entry: AnyEntry) -> None:
        if self._writer.writes:
            self._entries.append(entry)

    def _look(self, now_ns: int) -> None:
        """Look at the time of day, and at what waits to be written."""
        self._look_ns = now_ns + LOOK_EVERY_NS
        if now_ns - self._noted_ns > MOST_PAUSE_NS:
            self.end("the process stood still for more than a day")
        ahead_ns = time.time_ns() - now_ns
        if abs(ahead_ns - self._seen_ahead_ns) > CLOCK_STEP_NS:
            self._seen_ahead_ns = ahead_ns
        flush_is_due = now_ns - self._flushed_ns > FLUSH_EVERY_NS
        if flush_is_due or self._bytes > MOST_BYTES or len(self._entries) > MOST_ENTRIES:
            self._flush()

    def _flush(self) -> None:
        """Pass on whole turns."""
        if self._entries:
            self._writer.put(Chunk(*self._chunk, tuple(self._entries)), self._bytes)
        self._entries, self._bytes = [], 0
        self._flushed_ns = self.now_ns
        self._chunk = (self._noted_ns, self.ahead_ns, self._connected)


async def _not_running(_: Arrival) -> None:
    """Handle nothing: the link does not run yet."""


def _nothing() -> None:
    """Wake the loop."""
