"""The process that publishes results, as a second process of a simulated machine, and the pipes between the two.

The cluster's supervisor starts it as it starts a real one; only :func:`asyncio.create_subprocess_exec` is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError
from cluster.service.publishing import publisher_process
from cluster.service.publishing.publication import lock_publication, unlock_publication
from cluster.service.publishing.publisher_channel import LONGEST_LINE, Orders, Report, from_line, to_line
from cluster.service.publishing.publisher_process import PublisherProcess
from tests.simulation.hosts import Host, current

if TYPE_CHECKING:
    from tests.simulation.virtual_loop import VirtualLoop

_reports: dict[int, asyncio.StreamReader] = {}
"""The pipes to clusters, by number."""
starting: dict[str, Callable[[], ChildProcess]] = {}
"""By name of a host: what starts a child process of it."""


class NewsPipe:
    """The pipe to the publisher, as far as its supervisor uses it."""

    def __init__(self, news: asyncio.StreamReader) -> None:
        self.transport = self
        self._news = news
        self._closed = False

    def get_write_buffer_size(self) -> int:
        """Return how much waits: nothing."""
        return 0

    def write(self, octets: bytes) -> None:
        """Write."""
        if not self._closed:
            self._news.feed_data(octets)

    def is_closing(self) -> bool:
        """Return whether it is closed."""
        return self._closed

    def close(self) -> None:
        """Close it; then the publisher ends."""
        if not self._closed:
            self._closed = True
            self._news.feed_eof()


class ChildProcess:
    """A publisher's process as its supervisor sees it.

    Parameters
    ----------
    loop
        On which it runs.
    host
        Its process.
    """

    def __init__(self, loop: VirtualLoop, host: Host) -> None:
        self._loop = loop
        self.host = host
        self.returncode: int | None = None
        self.stdout = asyncio.StreamReader(limit=LONGEST_LINE)
        self.news = asyncio.StreamReader(limit=LONGEST_LINE)
        self.stdin = NewsPipe(self.news)
        self._locks: list[int] = []
        self._ended = asyncio.Event()
        self._pipe = loop.next_number()
        _reports[self._pipe] = self.stdout
        loop.spawn(host.start(), self._run(), "publisher")

    async def wait(self) -> int:
        """Wait until it has ended."""
        await self._ended.wait()
        return self.returncode or 0

    def kill(self) -> None:
        """End it, as a signal does."""
        self._loop.kill(self.host)
        if self._loop.network is not None:
            self._loop.network.killed(self.host)  # type: ignore[attr-defined]
        self._over(-9)

    def _over(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            unlock_publication(self._locks)
            _reports.pop(self._pipe, None)
            self.stdin.close()
            self.stdout.feed_eof()
            self._ended.set()

    async def _run(self) -> None:
        """Do as `publisher_process.serve` does."""
        code = 0
        if line := await self.news.readline():
            orders = from_line(line, Orders)
            try:
                self._locks = lock_publication(Path(orders.folder), orders.share)
                await PublisherProcess(orders, self._pipe).run(self.news)
            except* ClusterError as errors:
                code = publisher_process._refused(self._pipe, errors.exceptions[0])
        self.host.incarnation = None
        self._over(code)


def install() -> None:
    """Let supervisors of simulated hosts start simulated processes."""

    async def started(*_: Any, **__: Any) -> ChildProcess:
        process = current()
        assert process is not None
        return starting[process.host.name]()

    def write_report(pipe: int, report: Report) -> bool:
        if pipe in _reports:
            _reports[pipe].feed_data(to_line(report))
        return True

    asyncio.create_subprocess_exec = started  # type: ignore[assignment]
    publisher_process.write_report = write_report
