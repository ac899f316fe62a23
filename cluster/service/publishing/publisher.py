"""Publishes the results table to the result topics: at least once, numbered, in order.

chunks    [  a  ][  b  ][  c  ][  d  ]      of rows, read and made into messages in another thread
link          ----in flight---              a window slides over all of them
position      ^                             on disk once all rows before it are acknowledged, once per commit

Several publishers each read all commits, and publish the rows of their own queries.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from cluster.errors import StorageError, UnwritableError
from cluster.service.publishing.publication import Publication
from cluster.service.publishing.publishing_position import PublishingPosition
from cluster.service.publishing.result_chunks import Position, chunks
from cluster.service.publishing.result_messages import Extras
from cluster.storage.committed_results import CommittedResults, ResultsGoneError
from protocols.event_log import get_logger
from protocols.mqtt.link import BrokenOffError, LinkError
from protocols.mqtt.publish_frames import PublishFrames

log = get_logger(__name__)

PAUSE_SECONDS = 0.5
"""Before a retry."""
InFlight = deque[asyncio.Task[None]]


class FramesLink(Protocol):
    """What a publisher needs of its link to the broker."""

    @property
    def connected(self) -> asyncio.Event:
        """Set while there is a connection."""

    async def publish_frames(self, frames: PublishFrames) -> None:
        """As :meth:`protocols.mqtt.link.MqttLink.publish_frames`."""


class Publisher:
    """Publishes the results table, commit by commit.

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
        self._newest = 0
        self._stopping = False
        self.progress = PublishingPosition(Position(publication.now.version, publication.now.row))

    @property
    def position(self) -> Position:
        """How far the broker has acknowledged; what is on disk may be behind it."""
        return self.progress.acknowledged

    @property
    def published_rows(self) -> int:
        """How many rows the broker has acknowledged."""
        return self.progress.rows

    def announce(self, newest: int) -> None:
        """Note the newest version of the table that is on disk; call it again whenever there is a newer one."""
        if newest > self._newest:
            self._newest = newest
            self._announced.set()

    def stop(self) -> None:
        """Let :meth:`run` return once what is in flight is acknowledged."""
        self._stopping = True
        self._announced.set()

    async def run(self) -> None:
        """Publish until stopped or cancelled; while the broker is away rows wait, and none are lost."""
        while not self._stopping:
            await self._link.connected.wait()
            self._announced.clear()
            try:
                if await self.publish():
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
                await self._announced.wait()

    async def publish(self) -> bool:
        """Publish everything up to the newest version announced; return False if there is nothing.

        Raises
        ------
        LinkError
            If the broker goes away.
        StorageError
            If something cannot be read now.
        """
        before = self.position
        in_flight: InFlight = deque()
        try:
            await self._send_all(in_flight)
        except ResultsGoneError as gone:
            self._go_on_after(gone)
        finally:
            self.progress.broken_off()
            for sending in in_flight:
                sending.cancel()
                with suppress(asyncio.CancelledError, LinkError):
                    await sending
        return self.position != before

    async def _send_all(self, in_flight: InFlight) -> None:
        """Publish chunk after chunk, and what could be read before an error."""
        extras, unpublished = functools.cache(self._extras), self._publication.unpublished
        ahead = chunks(self._results.read, self.position, self._newest, extras, unpublished)
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
            self.progress.sent(chunk)
            await asyncio.sleep(0)  # it is sent while the next one is read
            while self.progress.full or (in_flight and in_flight[0].done()):
                await self._acknowledge(in_flight)
        while in_flight:
            await self._acknowledge(in_flight)
        if failed is not None:
            raise failed

    async def _acknowledge(self, in_flight: InFlight) -> None:
        """Wait until the oldest chunk is acknowledged, and note the position if it ends a commit."""
        broken = None
        try:
            await in_flight.popleft()
        except LinkError as error:
            broken = error
            version = self.progress.received(error.acknowledged if isinstance(error, BrokenOffError) else 0)
        else:
            version = self.progress.received()
        if version is not None:
            await self._note(version)
        if broken is not None:
            raise broken

    async def _note(self, version: int) -> None:
        """Record how far the broker has all rows; if the disk fails, a restart publishes rows again."""
        try:
            await asyncio.to_thread(self._publication.note, version)
        except UnwritableError as error:
            self._trouble("published position", error.message)

    def _go_on_after(self, gone: ResultsGoneError) -> None:
        """Continue with the first results that remain, and log those lost before them."""
        found = self.progress.gone(gone.version, gone.next_version, gone.rows)
        lost = self._publication.note_lost(found.through, commits=found.commits, rows=found.rows)
        self.progress.go_on_after(found)
        if (lost.times & (lost.times - 1)) == 0:  # the 1st, 2nd, 4th, 8th ...
            log.error("results were lost before publication", commits=lost.commits, rows=lost.rows, reason=str(gone))
