"""A timeline that follows a log of events: simulated time, in which nothing waits for real."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from protocols.mqtt.link import LinkError, Message
from protocols.recording.entries import Connected, LogError, Messages, Published, Requested, Sent, Worked, with_flags
from protocols.recording.taped_link import Arrival, Handle
from protocols.recording.timeline import MakeLink, TickingLoop, Timeline, answer_of
from protocols.stimulus import cause

if TYPE_CHECKING:
    from protocols.recording.reading import RecordedRun, RecordedTurn
    from protocols.recording.taped_link import Work
    from protocols.recording.timeline import Events

MOST_ROUNDS = 100_000
"""More turns at one instant go round in circles."""


class ReplayStalledError(Exception):
    """The part goes round in circles without any time passing."""


class Player(Timeline):
    """Replays a run.

    A piece of work or a message that the log does not know is done in the next turn: so code that has changed since
    finds a world that answers.

    Parameters
    ----------
    run
        Which is replayed.

    Attributes
    ----------
    sent
        What the part published: the number of the turn, and the message.
    on_end
        Called when the log has ended, if the part was not asked to stop.

    Raises
    ------
    LogError
        The run has no turns.
    """

    def __init__(self, run: RecordedRun) -> None:
        super().__init__()
        self.sent: list[tuple[int, Sent]] = []
        self.failure: BaseException | None = None
        """What ended the part, if it failed."""
        self.turn = 0
        """The number of the present turn."""
        self.on_end: Callable[[], None] = lambda: None
        self._known = run.known() if run.exact else {}
        self._exact = run.exact
        self._turns: Iterator[RecordedTurn] = run.turns()
        self._next: RecordedTurn | None = next(self._turns, None)
        self._begins_connected = not run.exact and self._next is not None and self._next.connected
        self._reads: dict[int, int] = {}
        self._unknown: list[tuple[Published | Worked, Work | None]] = []
        self._works: dict[tuple[str, int], Work] = {}
        self._done_early: set[tuple[str, int]] = set()
        self._rounds = 0
        self._ended = False
        self._arrived: asyncio.Queue[Arrival] = asyncio.Queue()
        self._in_thread = False
        """Whether what runs now was in a thread when it was recorded."""
        if self._next is None:
            raise LogError(f"the log of {run.header.part} {run.header.name!r} ends before anything happened")
        self.now_ns, self.ahead_ns = self._next.now_ns, self._next.ahead_ns

    @property
    def is_real(self) -> bool:
        """No."""
        return False

    def wait(self, timeout: float | None, select: Callable[[float | None], Events]) -> Events:
        """Take the next turn of the log, unless something else can be done before."""
        select(0)
        turn = self._next
        busy = bool(self._unknown) or (timeout is not None and timeout <= 0)
        if turn is None or (turn.waited and busy):
            self._rounds += 1
            if self._rounds > MOST_ROUNDS:
                self._rounds = 0
                raise ReplayStalledError(f"no time passes after turn {self.turn}")
            if turn is None:
                self._go_on(timeout, busy=busy)
            self._answer_unknown()
            return []
        self._rounds = 0
        self.turn += 1
        self._next = next(self._turns, None)
        self.now_ns, self.ahead_ns, self._reads = turn.now_ns, turn.ahead_ns, turn.reads
        if self._begins_connected and self.link is not None:
            self._begins_connected = False
            self._arrive(Connected())
        for entry in turn.inputs:
            if isinstance(entry, Worked):
                self._worked(entry)
            elif isinstance(entry, Messages):
                self._arrived.put_nowait(_messages(entry))
            elif isinstance(entry, Connected):
                self._arrive(entry)
            elif not isinstance(entry, Published) or self._exact:
                self.deliver(entry)
        self._answer_unknown()
        return []

    def publish(self, message: Message, nth: int) -> None:
        """Note a message, unless the log has ended before."""
        if self._ended:
            return
        self.sent.append((self.turn, Sent(message.topic, message.payload, message.qos, message.retain, cause())))
        if nth > self._known.get(("sent", message.topic), 0):
            self._unknown.append((Published(message.topic, nth), None))

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Do nothing: there is no broker that would send them again."""

    def begin_work(self, work: Work, real: Executor | None) -> None:
        """Do a piece of work when the log says that it was done."""
        del real
        key = work.task, work.nth
        if key in self._done_early or work.nth > self._known.get(("began", work.task), 0):
            self._unknown.append((Worked(*key), work))
        else:
            self._works[key] = work

    def answered(self, request: Requested, status: int) -> None:
        """Note the answer, unless the log has ended before."""
        if not self._ended:
            self.sent.append((self.turn, answer_of(request, status, cause())))

    async def run_link(self, handle: Handle) -> None:
        """Let all that arrives be handled; there is no broker."""
        while True:
            arrival = await self._arrived.get()
            with contextlib.suppress(LinkError):
                await handle(arrival)

    def _arrive(self, entry: Connected) -> None:
        self.deliver(entry)
        self._arrived.put_nowait(entry)

    def _go_on(self, timeout: float | None, *, busy: bool) -> None:
        """Go on behind the end of the log, for as long as the part takes to stop or to be cancelled."""
        if not self._ended and (not self.stopped.is_set() or (timeout is None and not busy)):
            self._ended = True
            self.on_end()
        elif not busy:
            self.now_ns += int((timeout or 0) * 1e9) + 1

    def _worked(self, entry: Worked) -> None:
        key = entry.task, entry.nth
        work = self._works.pop(key, None)
        if work is not None:
            self._done(entry, work)
        elif self._exact:
            self._done_early.add(key)

    def _answer_unknown(self) -> None:
        unknown, self._unknown = self._unknown, []
        for entry, work in unknown:
            self._done(entry, work)

    def _done(self, entry: Published | Worked, work: Work | None) -> None:
        self._in_thread = True
        try:
            self.deliver(entry, work)
        finally:
            self._in_thread = False

    def _read(self) -> int:
        if self._in_thread:
            return self.now_ns
        self.reads += 1
        self.now_ns = self._reads.get(self.reads, self.now_ns)
        return self.now_ns

    def _wrap(self, make: MakeLink) -> None:
        del make


def _messages(entry: Messages) -> list[Message]:
    columns = zip(entry.topics, entry.payloads, entry.flags_of_each(), entry.numbers_of_each(), strict=True)
    return [with_flags(*each) for each in columns]


def play(player: Player, part: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a part until it ends, or its log does.

    Parameters
    ----------
    player
        The timeline. If the part ends with an error, that is its failure.
    part
        Returns what runs.
    """

    async def until_end() -> None:
        task = asyncio.current_task()
        if task is not None:
            player.on_end = lambda: _void(task.cancel())
        await part()

    with asyncio.Runner(loop_factory=lambda: TickingLoop(player)) as runner:
        try:
            runner.run(until_end())
        except asyncio.CancelledError:
            pass  # the log ended before the part was asked to stop
        except Exception as error:  # noqa: BLE001 - what a replay is for
            player.failure = error


def _void(_: object) -> None:
    """Do nothing."""
