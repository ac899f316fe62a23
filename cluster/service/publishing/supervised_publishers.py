"""The publishers of a cluster, each a process of its own: started, informed, listened to, and started again.

**The publisher as its cluster sees it: a process that is started, kept informed, listened to, and started again.**

starts   [ runs ...... X ]  0.5 s  [ X ]   1 s   [ X ]   2 s   [ runs .....
status   running             trouble, and how often it ended   running

**All publishers of a cluster, each a process of its own, as the cluster sees them together.**

shards divided among publishers, if their number has changed: none runs meanwhile publisher 0   [ runs
.................. publisher 1   [ runs ... X ]   [ runs .        started again alone
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cluster.errors import StorageError
from cluster.fjord.batch import instant_text
from cluster.service.publishing.publication import Publication, divide, published_of
from cluster.service.publishing.published import LostResults, Share, most_lost, shard_of, shares_of
from cluster.service.publishing.publisher_channel import ChannelError, News, Note, Orders, Report, from_line, to_line
from cluster.storage.synced_files import Troubles
from protocols.child_process import child_environment, ending_with_this_process, python_module
from protocols.event_log import get_logger


class Progress:
    """How far a publisher is.

    Parameters
    ----------
    share
        What it publishes.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        self.last = Report(0)
        self.rows_before = 0
        """Rows that processes published that have ended."""

    def begin(self, version: int, lost: LostResults) -> None:
        """Begin at a version, with what is lost; no process runs."""
        self.last = Report(version, lost=lost)

    def ended(self) -> None:
        """Note that the process has ended."""
        self.rows_before += self.last.rows
        self.begin(self.last.version, self.last.lost)

    @property
    def rows(self) -> int:
        """Rows published since this cluster was started."""
        return self.rows_before + self.last.rows


class ProgressOfAll:
    """How far all publishers of a data folder are.

    Parameters
    ----------
    folder
        The data folder.
    publishers
        How many there are to be.

    Raises
    ------
    StorageError
        If the data folder does not say how far publication is.
    """

    def __init__(self, folder: Path, publishers: int = 1) -> None:
        self._folder = folder
        self.each: Sequence[Progress] = [Progress(share) for share in shares_of(publishers)]
        self.begin()

    def begin(self) -> None:
        """Begin where the data folder says, before shards are divided; no publisher runs."""
        published = published_of(self._folder)
        for progress in self.each:
            progress.begin(published.version, published.lost)

    def divided(self) -> None:
        """Begin where each publisher will, once shards are divided among them; errors are those of the class."""
        for progress in self.each:
            now = Publication(self._folder, progress.share).now
            progress.begin(now.version, now.lost)

    def version(self) -> int:
        """Return the version of the results table up to which everything has been published."""
        return min(progress.last.version for progress in self.each)

    @property
    def lost(self) -> LostResults:
        """Which results are lost."""
        return most_lost(progress.last.lost for progress in self.each)


FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Before a new start: doubled each time, until a publisher has connected."""
NEWS_SECONDS = 1.0
"""Between two looks at whether notes have changed."""


@dataclass(slots=True)
class RestartPauses:
    """The pauses before new starts. Pure.

    Examples
    --------
    >>> pauses = RestartPauses(1.0, 4.0)
    >>> [pauses.after(succeeded=succeeded) for succeeded in (False, False, False, False, True, False)]
    [1.0, 2.0, 4.0, 4.0, 1.0, 2.0]
    """

    first_seconds: float = FIRST_PAUSE_SECONDS
    longest_seconds: float = LONGEST_PAUSE_SECONDS
    _next: float | None = None

    def after(self, *, succeeded: bool) -> float:
        """Return the seconds to wait after an attempt has ended, given whether it had succeeded before."""
        pause = self.first_seconds if succeeded or self._next is None else self._next
        self._next = min(2 * pause, self.longest_seconds)
        return pause


@dataclass(slots=True)
class NewsToWrite:
    """What is written to a process: the newest version whenever it is another, and notes that have changed. Pure."""

    _written: News | None = None
    _notes: Mapping[str, Note] = field(default_factory=dict)
    _look_at: float = 0.0

    def looks_at_notes(self, now: float) -> bool:
        """Return whether to look at the notes now, which is costly; `now` is seconds of a clock that never goes back.

        If so, they are next looked at later.
        """
        due = now >= self._look_at
        if due:
            self._look_at = now + NEWS_SECONDS
        return due

    def due(self, newest: int, notes: Mapping[str, Note] | None) -> News | None:
        """Return what to write; None for nothing.

        Parameters
        ----------
        newest
            The newest version of the results table.
        notes
            The notes; None if they were not looked at.
        """
        changed = notes is not None and notes != self._notes
        if notes is not None:
            self._notes = notes
        news = News(newest, dict(self._notes) if changed else None)
        if news == self._written:
            return None
        self._written = News(newest)
        return news


def new_failures(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return the kinds of failures of which a report counts more than the one before. Pure.

    Examples
    --------
    >>> new_failures({"results": 1, "commit": 2}, {"results": 2, "commit": 2, "link": 1})
    ['results', 'link']
    """
    return [what for what, times in now.items() if times > before.get(what, 0)]


log = get_logger(__name__)

MODULE = "cluster.service.publishing.publisher_process"
TROUBLE = "publisher"
"""A label of metrics and a key of the status: it never changes."""
FAREWELL_SECONDS = 4.0


class SupervisedPublisher:
    """A publisher's process.

    Parameters
    ----------
    orders
        How it is to run.
    progress
        Kept up to date.
    newest
        Returns the newest version of the results table that is on disk.
    notes
        Returns what subscribers have to know besides rows, by query.
    troubles
        Counts failures.
    """

    def __init__(
        self,
        orders: Orders,
        progress: Progress,
        *,
        newest: Callable[[], int],
        troubles: Troubles,
        notes: Callable[[], Mapping[str, Note]] = dict,
    ) -> None:
        self._orders = orders
        self._newest = newest
        self._notes = notes
        self._troubles = troubles
        self.progress = progress
        self._wake = asyncio.Event()
        self.share = orders.share
        self.name = str(orders.share)
        self.why_not: str | None = "it has not been started yet"
        """Why it does not run; None while it does."""
        self.starts = 0

    @property
    def unpublished_commits(self) -> int:
        """How far the broker is behind the results table."""
        return max(0, self._newest() - self.progress.last.version)

    @property
    def unpublished_in_front(self) -> int:
        """How far it is behind the results table, but for queries that are behind the others."""
        return max(0, self._newest() - self.progress.last.newest)

    @property
    def queries_behind(self) -> dict[str, int]:
        """By query: how many commits its publication is behind; of some of those that are behind the others."""
        return {query: max(0, self._newest() - version) for query, version in self.progress.last.behind.items()}

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.why_not is None

    @property
    def connected(self) -> bool:
        """Whether it runs and has a connection to the broker."""
        return self.running and self.progress.last.connected

    @property
    def trouble(self) -> str | None:
        """Why there is no connection; None while there is one."""
        return self.progress.last.trouble if self.why_not is None else f"{self.name} does not run: {self.why_not}"

    def status(self) -> dict[str, Any]:
        """Return how it runs, and how far it is."""
        return {
            "number": self.share.number,
            "running": self.running,
            "starts": self.starts,
            "trouble": self.why_not,
            "connected": self.connected,
            "published_version": self.progress.last.version,
            "unpublished_commits": self.unpublished_commits,
            "unpublished_commits_in_front": self.unpublished_in_front,
            "queries_behind": self.queries_behind,
            "rows_published": self.progress.rows,
        }

    def wake(self) -> None:
        """Look for a new version of the table."""
        self._wake.set()

    async def run(self) -> None:
        """Keep a process running until cancelled."""
        pauses = RestartPauses(FIRST_PAUSE_SECONDS)
        while True:
            self.why_not = reason = await self._run_once()
            pause = pauses.after(succeeded=self.progress.last.connects > 0)
            self.progress.ended()
            self._troubles.note(TROUBLE, reason if self.share.is_everything else f"{self.name}: {reason}")
            await asyncio.sleep(pause)

    async def _run_once(self) -> str:
        """Run a process until it ends; return why it has."""
        try:
            process = await asyncio.create_subprocess_exec(
                *ending_with_this_process(python_module(MODULE)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=child_environment(),  # the broker's password is in its orders
                process_group=0,  # Ctrl-C is for the cluster; it would also come before a process can ignore it
            )
        except OSError as error:
            return f"it cannot be started: {error}"
        self.starts += 1
        self.why_not = None
        listening = asyncio.create_task(self._listen(process), name="reports of the publisher")
        informing = asyncio.create_task(self._inform(process), name="news for the publisher")
        try:
            await asyncio.wait({listening, informing}, return_when=asyncio.FIRST_COMPLETED)
            if informing.done():
                informing.result()
            reason = await listening
        finally:
            listening.cancel()
            informing.cancel()
            await _end(process)
        return reason or f"it ended with code {process.returncode}"

    async def _inform(self, process: asyncio.subprocess.Process) -> None:
        """Write news when there are any, unless those before are still in the pipe."""
        pipe = process.stdin
        if pipe is None:
            return
        pipe.write(to_line(self._orders))
        news, loop = NewsToWrite(), asyncio.get_running_loop()
        while not pipe.is_closing():
            self._wake.clear()
            if pipe.transport.get_write_buffer_size() == 0:
                notes = dict(self._notes()) if news.looks_at_notes(loop.time()) else None
                if (due := news.due(self._newest(), notes)) is not None:
                    pipe.write(to_line(due))
            with suppress(TimeoutError):
                async with asyncio.timeout(NEWS_SECONDS):
                    await self._wake.wait()

    async def _listen(self, process: asyncio.subprocess.Process) -> str | None:
        """Read reports until there are no more; return why the process ends, if it reports that."""
        if process.stdout is None:
            return None
        failed: dict[str, int] = {}
        while True:
            try:
                if not (line := await process.stdout.readline()):
                    return None
                report = from_line(line, Report)
            except ChannelError as error:
                return error.message
            except ValueError:
                return "it reports something that is far too long"
            if report.version < 0:
                return report.failure or "it cannot run"
            for what in new_failures(failed, report.failures):
                self._troubles.note(what, report.failure)
            failed = report.failures
            self.progress.last = report


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let a process end, and end it if it does not."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(FAREWELL_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class SupervisedPublishers:
    """The processes that publish results.

    Parameters
    ----------
    orders
        How they are to run; each gets its own share and name at the broker.
    progress
        Of as many as there are to be; kept up to date.
    newest
        Returns the newest version of the results table that is on disk.
    notes
        Returns what subscribers have to know besides rows, by query.
    troubles
        Counts failures.
    """

    def __init__(
        self,
        orders: Orders,
        progress: ProgressOfAll,
        *,
        newest: Callable[[], int],
        troubles: Troubles,
        notes: Callable[[], Mapping[str, Note]] = dict,
    ) -> None:
        self._folder = Path(orders.folder)
        self._newest = newest
        self._troubles = troubles
        self._undivided: str | None = None
        self.progress = progress
        recent = _Recent(notes)
        self.each = [
            SupervisedPublisher(
                replace(orders, share=each.share, client_id=_client_id(orders.client_id, each.share)),
                each,
                newest=newest,
                troubles=troubles,
                notes=recent.notes,
            )
            for each in progress.each
        ]

    @property
    def published_rows(self) -> int:
        """Rows published since this cluster was started."""
        return sum(each.progress.rows for each in self.each)

    @property
    def starts(self) -> int:
        """How many processes have been started."""
        return sum(each.starts for each in self.each)

    @property
    def unpublished_commits(self) -> int:
        """How far the broker is behind the results table: what the slowest has not published."""
        return max(each.unpublished_commits for each in self.each)

    def unpublished_commits_of(self, query: str) -> int | None:
        """Return how many commits the publication of a query is behind; None if it may be behind others, or not."""
        (its,) = (each for each in self.each if shard_of(query) in each.share.shards)
        behind = its.queries_behind
        if query not in behind and len(behind) < its.progress.last.queries_behind:
            return None
        return behind.get(query, its.unpublished_in_front)

    @property
    def lost(self) -> LostResults:
        """Which results are lost."""
        return self.progress.lost

    @property
    def connected(self) -> bool:
        """Whether all run and have a connection to the broker."""
        return all(each.connected for each in self.each)

    @property
    def trouble(self) -> str | None:
        """Why one of them has no connection; None while all have one."""
        return self._undivided or next((each.trouble for each in self.each if each.trouble is not None), None)

    def status(self) -> dict[str, Any]:
        """Return the progress of publication, and which results are lost."""
        last = None if self.lost.seen_us is None else instant_text(self.lost.seen_us)
        return {
            "published_version": self.progress.version(),
            "unpublished_commits": self.unpublished_commits,
            "lost": {"commits": self.lost.commits, "rows": self.lost.rows, "last": last},
            "publisher": {
                "running": all(each.running for each in self.each),
                "starts": self.starts,
                "trouble": self._undivided or next((each.why_not for each in self.each if each.why_not), None),
            },
            "publishers": [each.status() for each in self.each],
        }

    def notify_from(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Return a function that any thread may call when the table has a new version."""

        def wake() -> None:
            for each in self.each:
                each.wake()

        def notify() -> None:
            loop.call_soon_threadsafe(wake)

        return notify

    async def run(self) -> None:
        """Keep all processes running until cancelled."""
        await self._divide()
        async with asyncio.TaskGroup() as tasks:
            for each in self.each:
                tasks.create_task(each.run(), name=each.name)

    async def _divide(self) -> None:
        """Divide results among publishers; a publisher of an earlier cluster that still runs is waited for."""
        pauses = RestartPauses()
        while True:
            try:
                await asyncio.to_thread(divide, self._folder, len(self.each))
                self.progress.divided()
            except StorageError as error:
                self._undivided = f"results cannot be divided among publishers: {error}"
                self._troubles.note(TROUBLE, self._undivided)
                await asyncio.sleep(pauses.after(succeeded=False))
            else:
                self._undivided = None
                return


class _Recent:
    """What subscribers have to know, found once for all publishers that look at about the same time."""

    def __init__(self, notes: Callable[[], Mapping[str, Note]]) -> None:
        self._notes = notes
        self._found: Mapping[str, Note] = {}
        self._until = 0.0

    def notes(self) -> Mapping[str, Note]:
        """Return notes that are not much older than a publisher's last look at them."""
        if time.monotonic() >= self._until:
            self._until = time.monotonic() + NEWS_SECONDS / 2
            self._found = self._notes()
        return self._found


def _client_id(base: str, share: Share) -> str:
    """Return the name at the broker: stable, so that a successor ends what is left of a killed one's connection."""
    return base if share.number == 0 else f"{base}/{share.number}"  # no name of a cluster contains a slash
