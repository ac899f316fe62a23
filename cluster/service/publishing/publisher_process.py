"""The process that publishes results. A cluster starts it as a module of Python, and writes to its standard input.

It imports neither Spark nor Polars nor the plan. It reads commits from disk, and from its cluster which of them are
there; it ends when the cluster does, and a second one for the same share of a data folder is refused.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.errors import ClusterError
from cluster.service.publishing.publication import Publication, lock_publication, unlock_publication
from cluster.service.publishing.published import Position
from cluster.service.publishing.publisher import Publisher
from cluster.service.publishing.publisher_channel import (
    LONGEST_LINE,
    LONGEST_NAMES,
    LONGEST_REPORT,
    LONGEST_TEXT,
    News,
    Note,
    Orders,
    Report,
    from_line,
    to_line,
)
from cluster.service.publishing.result_messages import result_frames
from cluster.storage.committed_results import RESULT_SCHEMA, ROW, CommittedResults
from protocols.event_log import configure_logging, get_logger, is_logged, name_in_events
from protocols.mqtt.link import Message, MqttLink, Version

log = get_logger(__name__)

REPORT_SECONDS = 0.1
"""Between two looks at whether there is something to report."""
FAREWELL_SECONDS = 2.0
"""What is in flight when the cluster ends is waited for so long."""
REFUSED = 1
RESULTS = "results"
"""Folder of the results table in a data folder."""


class PublisherProcess:
    """A publisher, and the pipes to its cluster.

    Parameters
    ----------
    orders
        How it is to run.
    reports
        The pipe to the cluster; it must not block.
    """

    def __init__(self, orders: Orders, reports: int) -> None:
        self._reports = reports
        self._reported: Report | None = None
        self._notes: dict[str, Note] = {}
        self._failures: Counter[str] = Counter()
        self._failure = ""
        self._publication = Publication(Path(orders.folder), orders.share)
        self._link = MqttLink(
            orders.broker,
            client_id=orders.client_id,
            silence_seconds=orders.silence_seconds,
            versions=[Version.V3_1_1],  # as the frames of results are
        )
        self._publisher = Publisher(
            CommittedResults(f"{orders.folder}/{RESULTS}"),
            self._publication,
            self._link,
            extras=self._extras,
            trouble=self._note_failure,
        )

    async def run(self, news: asyncio.StreamReader) -> None:
        """Publish until the pipe from the cluster ends."""
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(self._publisher.run(), name="publisher")
            others = [
                tasks.create_task(self._link.run(_ignore), name="link"),
                tasks.create_task(self._keep_reporting(), name="reports"),
            ]
            while line := await news.readline():
                self._take_news(from_line(line, News))
            self._publisher.stop()
            await asyncio.wait({publishing}, timeout=FAREWELL_SECONDS)
            for task in (publishing, *others):
                task.cancel()

    def _take_news(self, news: News) -> None:
        if news.notes is not None:
            self._notes = news.notes
        self._publisher.announce(news.newest)

    def _extras(self, query: str) -> dict[str, Any]:
        note = self._notes.get(query)
        return {} if note is None else note.extras(time.time())

    def _note_failure(self, what: str, reason: str) -> None:
        self._failures[what] += 1
        self._failure = reason[:LONGEST_TEXT]
        times = self._failures[what]
        if is_logged(times):
            log.warning("publishing failed", what=what, reason=reason, times=times)

    async def _keep_reporting(self) -> None:
        while True:
            self._report()
            await asyncio.sleep(REPORT_SECONDS)

    def _report(self) -> None:
        published, trouble, behind = self._publication.now, self._link.trouble, self._publisher.turns.behind()
        report = Report(
            version=published.version,
            rows=self._publisher.published_rows,
            lost=published.lost,
            connected=self._link.connected.is_set(),
            trouble=None if trouble is None else trouble[:LONGEST_TEXT],
            connects=self._link.connects_total,
            hangs=self._link.hangs_total,
            failures=dict(self._failures),
            failure=self._failure,
            front=self._publisher.position.version,
            queries_behind=len(behind),
            behind=last_of(behind),
        )
        if report != self._reported and write_report(self._reports, report):
            self._reported = report


def last_of(behind: Mapping[str, Position]) -> dict[str, int]:
    """Return up to which version queries are published, the last ones first, of as many as a report has room for.

    Examples
    --------
    >>> last_of({"a" * 900: Position(4), "b": Position(3, 5), "c" * 200: Position(6)}).values()
    dict_values([3, 4])
    """
    found, room = dict[str, int](), LONGEST_NAMES
    for name, at in sorted(behind.items(), key=lambda each: each[1]):
        room -= len(name.encode())
        if room < 0:
            break
        found[name] = at.version
    return found


def write_report(pipe: int, report: Report) -> bool:
    """Write a report to a pipe; return False if the cluster does not read."""
    line = to_line(report)
    if len(line) > LONGEST_REPORT:
        line = to_line(Report(report.version, report.rows, report.lost, report.connected))
    try:
        os.write(pipe, line)
    except BlockingIOError:
        return False
    except BrokenPipeError:
        pass  # the cluster is gone, and the other pipe ends
    return True


async def serve(reports: int) -> int:
    """Run as the orders on standard input say; return the exit code."""
    news = asyncio.StreamReader(limit=LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(news), sys.stdin)
    if not (line := await news.readline()):
        return 0
    try:
        orders = from_line(line, Orders)
        configure_logging(orders.log_level, json=orders.log_json)
        if not orders.share.is_everything:
            name_in_events(publisher=orders.share.number)
        locks = lock_publication(Path(orders.folder), orders.share)
    except ClusterError as error:
        return _refused(reports, error)
    code = 0
    try:
        await PublisherProcess(orders, reports).run(news)
    except* ClusterError as errors:
        code = _refused(reports, errors.exceptions[0])
    finally:
        unlock_publication(locks)
    return code


def _refused(reports: int, error: BaseException) -> int:
    log.error("the publisher cannot run", reason=str(error))
    write_report(reports, Report(-1, failure=str(error)[:LONGEST_TEXT]))
    return REFUSED


async def _ignore(_: Message) -> None:
    """The link receives nothing."""


def load_libraries() -> None:
    """Make a message of no consequence: Arrow imports pandas for the first one, which takes most of a second."""
    values = [["q"], [1], [0], [1], [ROW], ["{}"], [None]]
    result_frames(
        pa.RecordBatch.from_arrays(
            [pa.array(each, kind) for each, kind in zip(values, RESULT_SCHEMA.types, strict=True)], schema=RESULT_SCHEMA
        )
    )


def main() -> None:
    """Run until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the cluster, which ends us
    reports = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is not a report
    os.set_blocking(reports, False)
    load_libraries()
    sys.exit(asyncio.run(serve(reports)))


if __name__ == "__main__":
    main()
