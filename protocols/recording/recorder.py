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
    MOST_PAUSE_NS,
    PLAIN,
    RETAINED,
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
)
from protocols.recording.taped_link import Done
from protocols.recording.timeline import Answer, Given, MakeLink, Timeline, WrappedLink, answer_of
from protocols.stimulus import cause

if TYPE_CHECKING:
    from protocols.recording.segments import SegmentWriter
    from protocols.recording.taped_threads import Work
    from protocols.recording.ticking_loop import Events

CLOCK_STEP_NS = 1_000_000
"""The time of day is noted anew when it has moved by this against the monotonic clock."""
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
        self._inputs: deque[tuple[Input, Given | None, Done | None]] = deque()
        self._entries: list[AnyEntry] = []
        self._bytes = 0
        self._connected = False
        self._thread = threading.get_ident()
        self._inner: WrappedLink | None = None
        self._handled: asyncio.Future[None] | None = None
        """Of the burst that came last."""
        self._publishing: set[asyncio.Task[None]] = set()
        self._pool = ThreadPoolExecutor(thread_name_prefix="recorded")
        self.now_ns = self._flushed_ns = time.monotonic_ns()
        self.ahead_ns = time.time_ns() - self.now_ns
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
        """Take the next turn, when something happens or a timer is due."""
        waits = timeout is None or timeout > 0
        if self._inputs:
            timeout = 0
        elif waits and timeout is not None:
            timeout = max(0.0, timeout - (time.monotonic_ns() - self.now_ns) / 1e9)
        events = select(timeout)
        if self._bytes > MOST_BYTES or len(self._entries) > MOST_ENTRIES or self._due():
            self._flush()
        now_ns = time.monotonic_ns()
        if now_ns - self.now_ns > MOST_PAUSE_NS:
            self.end("the process stood still for more than a day")
        self._note(Turn(now_ns - self.now_ns, waits))
        self.now_ns = now_ns
        ahead_ns = time.time_ns() - now_ns
        if abs(ahead_ns - self.ahead_ns) > CLOCK_STEP_NS:
            self.ahead_ns = ahead_ns
            self._note(WallClock(ahead_ns))
        while self._inputs:
            entry, given, done = self._inputs.popleft()
            self._note(entry)
            if isinstance(entry, Connected | Disconnected):
                self._connected = isinstance(entry, Connected)
            self.deliver(entry, given, done)
        return events

    def publish(self, message: Message, nth: int) -> None:
        """Publish a message over the real link."""
        self._note(Sent(message.topic, message.payload, message.qos, message.retain, cause()))
        self._bytes += len(message.payload)
        task = asyncio.get_running_loop().create_task(self._publish(message, nth), context=self.outside.copy())
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    def begin_work(self, work: Work, real: Executor | None) -> None:
        """Let a thread do a piece of work."""
        loop = asyncio.get_running_loop()

        def ended(_: Future[None]) -> None:
            self._inputs.append((Worked(work.task, work.nth), work, None))
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_nothing)

        self._note(Began(work.task, work.nth))
        (real or self._pool).submit(work.do).add_done_callback(ended)

    async def run_link(self) -> None:
        """Keep the real link's connection, until cancelled."""
        if self._inner is not None:
            await self._inner.run_in_bursts(self._take)

    async def _take(self, messages: Sequence[Message]) -> None:
        payloads = tuple([each.payload for each in messages])
        self._bytes += sum(map(len, payloads)) + BYTES_OF_TOPIC * len(payloads)
        flags = bytes([each.qos | RETAINED if each.retain else each.qos for each in messages])
        plain = flags.count(PLAIN) == len(flags)
        entry = Messages(tuple([each.topic for each in messages]), payloads, b"" if plain else flags)
        # A burst is not waited for, which would take two turns more, but for the one before, so that only one waits.
        before, self._handled = self._handled, self._handle(entry, messages)
        if before is not None:
            await before

    async def _begin(self) -> None:
        self._handled = None
        await self._handle(Connected())

    def _handle(self, entry: Input, given: Given | None = None) -> asyncio.Future[None]:
        """Let an input be handled, and return what ends with that, or with what goes wrong."""
        handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if handled.done():
                return
            if error is None:
                handled.set_result(None)
            else:
                handled.set_exception(error)
                handled.exception()  # whether anything waits for it or not

        self._inputs.append((entry, given, done))
        return handled

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
        self._inner = self.outside.copy().run(make, self._begin, partial(self._put, Disconnected()))

    def _put(self, entry: Input) -> None:
        """Let an input wait for the next turn."""
        self._inputs.append((entry, None, None))

    def _read(self) -> int:
        now_ns = time.monotonic_ns()
        if _OUTSIDE.get() or threading.get_ident() != self._thread:
            return now_ns
        self.reads += 1
        if now_ns - self.now_ns > LONG_TURN_NS:
            self.now_ns = now_ns
            self._note(ClockRead(self.reads, now_ns))
        return self.now_ns

    def _note(self, entry: AnyEntry) -> None:
        if self._writer.writes:
            self._entries.append(entry)

    def _due(self) -> bool:
        return self.now_ns - self._flushed_ns > FLUSH_EVERY_NS

    def _flush(self) -> None:
        """Pass on whole turns."""
        if self._entries:
            self._writer.put(Chunk(*self._chunk, tuple(self._entries)), self._bytes)
        self._entries, self._bytes = [], 0
        self._flushed_ns = self.now_ns
        self._chunk = (self.now_ns, self.ahead_ns, self._connected)


def _nothing() -> None:
    """Wake the loop."""
