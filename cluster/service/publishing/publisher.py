"""Publishes the results table to the result topics: at least once, numbered, in order.

chunks    [  a  ][  b  ][  c  ][  d  ]      of rows, read and made into messages in another thread
link          ----in flight---              a window slides over all of them
position      ^                             on disk once all rows before it are acknowledged, once per commit

So are the rows of queries that are behind (cluster/service/publishing/turns.py), one query after the other, at the same
time and over the same link: with chunks and a position of their own. Several publishers each read all commits, and
publish the rows of their own queries.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from cluster.errors import StorageError, UnwritableError
from cluster.service.publishing.publication import Publication
from cluster.service.publishing.published import Position
from cluster.service.publishing.result_chunks import Chunk, Which, chunks
from cluster.service.publishing.result_messages import Extras
from cluster.service.publishing.turns import Behind, GoneCommits, InFront, OfQuery, PublishingPosition, Turns, by_shard
from cluster.storage.committed_results import CommittedResults, ResultsGoneError
from protocols.event_log import get_logger, is_logged
from protocols.mqtt.link import BrokenOffError, LinkError
from protocols.mqtt.publish_frames import PublishFrames

log = get_logger(__name__)

PAUSE_SECONDS = 0.5
"""Before a retry."""
InFlight = deque[asyncio.Task[None]]
Enough = Callable[[Chunk], bool]
"""Returns whether a chunk is the last one for now."""


class FramesLink(Protocol):
    """What a publisher needs of its link to the broker."""

    @property
    def connected(self) -> asyncio.Event:
        """Set while there is a connection."""

    async def publish_frames(self, frames: PublishFrames) -> None:
        """As :meth:`protocols.mqtt.link.MqttLink.publish_frames`."""


class Publisher:
    """Publishes the results table, commit by commit; a query with very many rows in one falls behind alone.

    Parameters
    ----------
    results
        The table.
    publication
        Knows which rows are to be published; keeps the position up to which the broker has acknowledged all of them.
    link
        Where to publish.
    extras
        Returns what else the messages of a query contain; called in another thread.
    trouble
        Called with what failed and why.
    """

    def __init__(
        self,
        results: CommittedResults,
        publication: Publication,
        link: FramesLink,
        *,
        extras: Extras = lambda _: {},
        trouble: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        self._results = results
        self._publication = publication
        self._link = link
        self._extras = extras
        self._trouble = trouble
        self._announced = asyncio.Event()
        self._fallen = asyncio.Event()
        self._noting = asyncio.Lock()
        self._newest = 0
        self._stopping = False
        self._rows = 0
        self._gone = GoneCommits()
        self.turns = Turns()
        self.progress = PublishingPosition(Position(publication.now.version, publication.now.row))
        """Of all queries but those that are behind."""

    @property
    def position(self) -> Position:
        """How far the broker has acknowledged, but for queries that are behind; what is on disk may be behind it."""
        return self.progress.acknowledged

    @property
    def published_rows(self) -> int:
        """How many rows the broker has acknowledged."""
        return self._rows

    def announce(self, newest: int) -> None:
        """Note the newest version of the table that is on disk; call it again whenever there is a newer one."""
        if newest > self._newest:
            self._newest = newest
            self._announced.set()

    def stop(self) -> None:
        """Let :meth:`run` return once what is in flight is acknowledged."""
        self._stopping = True
        self._announced.set()
        self._fallen.set()

    async def run(self) -> None:
        """Publish until stopped or cancelled; while the broker is away rows wait, and none are lost."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep(self._publish_in_front, self._announced), name="publish in front")
            tasks.create_task(self._keep(self._publish_behind, self._fallen), name="publish behind")

    async def _keep(self, publish: Callable[[], Awaitable[bool]], more: asyncio.Event) -> None:
        """Publish again and again, and wait while there is nothing."""
        while not self._stopping:
            await self._link.connected.wait()
            more.clear()
            try:
                if await publish():
                    continue
            except LinkError as error:
                log.warning("results wait for the broker", error=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            except StorageError as error:
                self._trouble("results", f"results cannot be read, and wait: {error}")
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if not self._stopping:
                await more.wait()

    async def publish(self) -> bool:
        """Publish everything up to the newest version announced, then a turn of a query that is behind.

        Returns
        -------
        bool
            False if there was nothing.

        Raises
        ------
        LinkError
            If the broker goes away.
        StorageError
            If something cannot be read now.
        """
        found = await self._publish_in_front()
        return await self._publish_behind() or found

    async def _publish_in_front(self) -> bool:
        """Publish everything up to the newest version announced; errors are those of :meth:`publish`."""
        before = self.position
        which = InFront(self.turns, self._publication.unpublished, self._note_fallen)
        await self._send_all(self.progress, which, lambda _: False)
        return self.position != before

    async def _publish_behind(self) -> bool:
        """Publish for a turn of a query that is behind; errors are those of :meth:`publish`."""
        each = self.turns.next_turn(self.position)
        if each is None:
            return False
        rows = 0

        def enough(chunk: Chunk) -> bool:
            nonlocal rows
            rows += len(chunk.frames)
            ends = self.turns.rows_of_turn(each, self.position)
            return rows >= ends or self.turns.is_level(chunk.after(len(chunk.frames)))

        await self._send_all(each.progress, OfQuery(each.query), enough, each)
        if self.turns.rejoin(each):
            self.turns.settle(self.position)
            log.debug("the rows of a query go on with those of others", query=each.query)
        return True

    async def _send_all(
        self, progress: PublishingPosition, which: Which, enough: Enough, behind: Behind | None = None
    ) -> None:
        """Publish from a position on; errors are those of :meth:`publish`."""
        in_flight: InFlight = deque()
        try:
            await self._send(progress, which, enough, in_flight)
        except ResultsGoneError as gone:
            await self._go_on_after(gone, progress, behind)
        finally:
            progress.broken_off()
            for sending in in_flight:
                sending.cancel()
                with suppress(asyncio.CancelledError, LinkError):
                    await sending

    async def _send(self, progress: PublishingPosition, which: Which, enough: Enough, in_flight: InFlight) -> None:
        """Publish chunk after chunk, and what could be read before an error."""
        extras = functools.cache(self._extras)
        ahead = chunks(self._results.read, progress.acknowledged, self._newest, extras, which)
        failed: StorageError | None = None
        while not self._stopping:
            try:
                chunk = await asyncio.to_thread(next, ahead, None)
            except StorageError as error:
                failed = error
                break
            if chunk is None:
                break
            sending = asyncio.create_task(self._link.publish_frames(chunk.frames), name="publish")
            in_flight.append(sending)
            progress.sent(chunk)
            await asyncio.sleep(0)  # it is sent while the next one is read
            while progress.full or (in_flight and in_flight[0].done()):
                await self._acknowledge(progress, in_flight)
            if enough(chunk):
                break
        while in_flight:
            await self._acknowledge(progress, in_flight)
        if failed is not None:
            raise failed

    async def _acknowledge(self, progress: PublishingPosition, in_flight: InFlight) -> None:
        """Wait until the oldest chunk is acknowledged, and note how far publication is."""
        broken, before = None, progress.rows
        try:
            await in_flight.popleft()
        except LinkError as error:
            broken = error
            progress.received(error.acknowledged if isinstance(error, BrokenOffError) else 0)
        else:
            progress.received()
        self._rows += progress.rows - before
        self.turns.settle(self.position)
        if self.turns.behind():
            self._fallen.set()
        await self._note()
        if broken is not None:
            raise broken

    async def _note(self) -> None:
        """Record how far the broker has all rows; if the disk fails, a restart publishes rows again."""
        async with self._noting:
            behind = by_shard(self.turns.behind())
            self._gone.forget(min([self.position, *behind.values()]).version)
            if not self._publication.is_due(self.position, behind):
                return
            try:
                await asyncio.to_thread(self._publication.note, self.position, behind)
            except UnwritableError as error:
                self._trouble("published position", error.message)

    async def _go_on_after(self, gone: ResultsGoneError, progress: PublishingPosition, each: Behind | None) -> None:
        """Continue with the first results that remain, and log those lost before them."""
        found = progress.gone(gone.version, gone.next_version, gone.rows)
        async with self._noting:
            if new := self._gone.new(gone.version, gone.next_version):
                front, behind = self.position, self.turns.behind()
                if each is None:
                    front = Position(found.through)
                else:
                    behind[each.query] = Position(found.through)
                lost = await asyncio.to_thread(
                    self._publication.note_lost, front, by_shard(behind), commits=new, rows=found.rows
                )
                self._gone.note(gone.version, gone.next_version)
                if is_logged(lost.times):
                    log.error(
                        "results were lost before publication", commits=lost.commits, rows=lost.rows, reason=str(gone)
                    )
        progress.go_on_after(found)
        await self._note()

    def _note_fallen(self, query: str) -> None:
        """Log that a query falls behind; called in the thread that reads."""
        times = self.turns.falls
        if is_logged(times):
            log.info("a query with very many rows is published behind the others", query=query, times=times)
