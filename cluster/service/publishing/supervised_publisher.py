"""The publisher as its cluster sees it: a process that is started, kept informed, listened to, and started again.

starts   [ runs ...... X ]  0.5 s  [ X ]   1 s   [ X ]   2 s   [ runs .....
status   running             trouble, and how often it ended   running
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cluster.service.publishing.progress import Progress
from cluster.service.publishing.publisher_channel import (
    ChannelError,
    Note,
    Orders,
    Report,
    from_line,
    to_line,
)
from cluster.service.publishing.publisher_supervision import (
    FIRST_PAUSE_SECONDS,
    NEWS_SECONDS,
    NewsToWrite,
    RestartPauses,
    new_failures,
)
from cluster.storage.synced_files import Troubles
from protocols.child_process import child_environment, ending_with_this_process, python_module
from protocols.event_log import get_logger

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
