"""Publishes the results table to the result topics: at least once, numbered, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import polars as pl

from cluster.errors import StorageError, UnwritableError
from cluster.fjord.batch import instant_text
from cluster.service.publishing.result_messages import error_message, result_message
from cluster.service.registry.registry import Registry
from cluster.storage.results_table import ERROR, ResultsGoneError, ResultsTable
from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message, MqttLink
from protocols.wire import topics

log = get_logger(__name__)

Notes = Callable[[Collection[str]], Mapping[str, dict[str, Any] | None]]
"""Returns notes for the subscribers of queries, by query; called once for all queries of a commit."""
PAUSE_SECONDS = 0.5
"""Before a retry."""
IN_FLIGHT = 200
"""Rows published before the broker has acknowledged the first of them."""


class Publisher:
    """Publishes the results table, commit by commit.

    Parameters
    ----------
    results
        The table.
    registry
        Keeps the position up to which the broker has acknowledged all rows.
    link
        Where to publish.
    notes
        Returns, by query, notes on its sensors.
    stale
        Returns, by query, the relations it reads that are stale, and since when.
    """

    def __init__(
        self,
        results: ResultsTable,
        registry: Registry,
        link: MqttLink,
        *,
        notes: Notes = lambda _: {},
        stale: Notes = lambda _: {},
    ) -> None:
        self._results = results
        self._registry = registry
        self._link = link
        self._notes = notes
        self._stale = stale
        self._committed = asyncio.Event()
        self._position: tuple[int, int] | None = None
        """The position, if it could not be written to the registry."""
        self.published_rows = 0

    def notify_from(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Return a function that any thread may call when the table has a new version."""

        def notify() -> None:
            loop.call_soon_threadsafe(self._committed.set)

        return notify

    async def run(self) -> None:
        """Publish until cancelled; while the broker is away rows wait, and none are lost."""
        while True:
            await self._link.connected.wait()
            try:
                moved = await self.publish_next()
            except LinkError as error:
                log.warning("results wait for the broker", error=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            except StorageError as error:
                self._registry.troubles.note("results", f"results cannot be read, and wait: {error}")
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if not moved:
                try:
                    async with asyncio.timeout(1.0):
                        await self._committed.wait()
                except TimeoutError:
                    continue
                self._committed.clear()

    @property
    def unpublished_commits(self) -> int:
        """How far the broker is behind the results table."""
        return max(0, self._results.version - self._registry.publication.version())

    def status(self) -> dict[str, Any]:
        """Return the progress of publication, and which results are lost."""
        lost = self._registry.publication.lost()
        last = None if lost.seen_us is None else instant_text(lost.seen_us)
        return {
            "published_version": self._registry.publication.version(),
            "unpublished_commits": self.unpublished_commits,
            "lost": {"commits": lost.commits, "rows": lost.rows, "last": last},
        }

    async def publish_next(self) -> bool:
        """Publish what the next version of the table added; return False if there is none yet."""
        version, done = self._position or self._registry.publication.position()
        if version >= self._results.version:  # a power cut may remove later ones
            return False
        try:
            rows = await asyncio.to_thread(self._results.read_commit, version + 1)
        except ResultsGoneError as gone:
            self._go_on_after(gone, done)
            return True
        queries = rows["query"].unique().to_list()
        sensors, stale = self._notes(queries), self._stale(queries)
        notes = {query: (sensors.get(query), stale.get(query)) for query in queries}
        for chunk in rows.slice(done).iter_slices(IN_FLIGHT):
            await asyncio.gather(*(self._link.publish(message) for message in _messages(chunk, notes)))
            done += chunk.height
            self.published_rows += chunk.height
            if done < rows.height:
                self._note_position(version, done)
        self._note_position(version + 1, 0)
        return True

    def _go_on_after(self, gone: ResultsGoneError, done: int) -> None:
        """Continue with the first results that remain, and log those lost before them."""
        commits = gone.next_version - gone.version
        rows = max(0, (gone.rows or 0) - done)
        lost = self._registry.publication.note_lost(gone.next_version - 1, commits=commits, rows=rows)
        self._position = None
        if (lost.times & (lost.times - 1)) == 0:  # the 1st, 2nd, 4th, 8th ...
            log.error("results were lost before publication", commits=lost.commits, rows=lost.rows, reason=str(gone))

    def _note_position(self, version: int, done: int) -> None:
        """Record how far the broker has all rows; if the disk fails, a restart publishes rows again."""
        try:
            self._registry.publication.set_position(version, done)
        except UnwritableError as error:
            self._registry.troubles.note("published position", error.message)
            self._position = version, done
        else:
            self._position = None


def _messages(
    rows: pl.DataFrame, notes: Mapping[str, tuple[dict[str, Any] | None, dict[str, Any] | None]]
) -> list[Message]:
    messages = []
    for query, sequence, start_us, end_us, kind, row in rows.select(
        "query", "sequence", "start_us", "end_us", "kind", "row"
    ).iter_rows():
        if kind == ERROR:
            messages.append(Message(topics.query_errors(query), error_message(query, sequence, start_us, row)))
        else:
            sensors, stale = notes[query]
            payload = result_message(query, sequence, start_us, end_us, row, sensors=sensors, stale=stale)
            messages.append(Message(topics.results(query), payload))
    return messages
