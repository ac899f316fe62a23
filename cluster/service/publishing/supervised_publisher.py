"""The publisher as its cluster sees it: a process that is started, kept informed, listened to, and started again.

starts   [ runs ...... X ]  0.5 s  [ X ]   1 s   [ X ]   2 s   [ runs .....
status   running             trouble, and how often it ended   running
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cluster.fjord.batch import instant_text
from cluster.service.publishing.publication import LostResults, Publication
from cluster.service.publishing.publisher_channel import (
    ChannelError,
    News,
    Note,
    Orders,
    Report,
    from_line,
    to_line,
)
from cluster.storage.synced_files import Troubles
from protocols.child_process import ending_with_this_process
from protocols.event_log import get_logger

log = get_logger(__name__)

MODULE = "cluster.service.publishing.publisher_process"
TROUBLE = "publisher"
"""A label of metrics and a key of the status: it never changes."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Before a new start: doubled each time, until a publisher has connected."""
NEWS_SECONDS = 1.0
"""Between two looks at whether notes have changed."""
FAREWELL_SECONDS = 4.0


class Progress:
    """How far the publisher is, as it last reported, or as the data folder says.

    Parameters
    ----------
    publication
        Of the data folder.
    """

    def __init__(self, publication: Publication) -> None:
        self.rows_before = 0
        """Rows that processes published that have ended."""
        self.begin(publication)

    def begin(self, publication: Publication) -> None:
        """Begin where the data folder says; no publisher runs."""
        self.last = Report(publication.now.version, lost=publication.now.lost)

    def version(self) -> int:
        """Return the version of the results table up to which everything has been published."""
        return self.last.version

    def ended(self) -> None:
        """Note that the process has ended."""
        self.rows_before += self.last.rows
        self.last = Report(self.last.version, lost=self.last.lost)


class SupervisedPublisher:
    """The publisher's process.

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
        self._why_not: str | None = "it has not been started yet"
        self.starts = 0

    @property
    def published_rows(self) -> int:
        """Rows published since this cluster was started."""
        return self.progress.rows_before + self.progress.last.rows

    @property
    def unpublished_commits(self) -> int:
        """How far the broker is behind the results table."""
        return max(0, self._newest() - self.progress.last.version)

    @property
    def lost(self) -> LostResults:
        """Which results are lost."""
        return self.progress.last.lost

    @property
    def connected(self) -> bool:
        """Whether it runs and has a connection to the broker."""
        return self._why_not is None and self.progress.last.connected

    @property
    def trouble(self) -> str | None:
        """Why there is no connection; None while there is one."""
        return self.progress.last.trouble if self._why_not is None else f"the publisher does not run: {self._why_not}"

    def status(self) -> dict[str, Any]:
        """Return the progress of publication, and which results are lost."""
        lost = self.progress.last.lost
        last = None if lost.seen_us is None else instant_text(lost.seen_us)
        return {
            "published_version": self.progress.last.version,
            "unpublished_commits": self.unpublished_commits,
            "lost": {"commits": lost.commits, "rows": lost.rows, "last": last},
            "publisher": {"running": self._why_not is None, "starts": self.starts, "trouble": self._why_not},
        }

    def notify_from(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Return a function that any thread may call when the table has a new version."""

        def notify() -> None:
            loop.call_soon_threadsafe(self._wake.set)

        return notify

    async def run(self) -> None:
        """Keep a process running until cancelled."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            self._why_not = await self._run_once()
            if self.progress.last.connects:
                pause = FIRST_PAUSE_SECONDS
            self.progress.ended()
            self._troubles.note(TROUBLE, self._why_not)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _run_once(self) -> str:
        """Run a process until it ends; return why it has."""
        try:
            process = await asyncio.create_subprocess_exec(
                *ending_with_this_process([sys.executable, "-m", MODULE]),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                process_group=0,  # Ctrl-C is for the cluster; it would also come before a process can ignore it
            )
        except OSError as error:
            return f"it cannot be started: {error}"
        self.starts += 1
        self._why_not = None
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
        written: News | None = None
        notes: dict[str, Note] = {}
        loop = asyncio.get_running_loop()
        look_at = 0.0
        while not pipe.is_closing():
            self._wake.clear()
            if pipe.transport.get_write_buffer_size() == 0:
                changed = False
                if loop.time() >= look_at:
                    look_at = loop.time() + NEWS_SECONDS
                    found = dict(self._notes())
                    changed, notes = found != notes, found
                news = News(self._newest(), notes if changed else None)
                if news != written:
                    pipe.write(to_line(news))
                    written = News(news.newest)
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
            for what, times in report.failures.items():
                if times > failed.get(what, 0):
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
