"""All publishers of a cluster, each a process of its own, as the cluster sees them together.

shards divided among publishers, if their number has changed: none runs meanwhile
publisher 0   [ runs ..................
publisher 1   [ runs ... X ]   [ runs .        started again alone
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cluster.errors import StorageError
from cluster.fjord.batch import instant_text
from cluster.service.publishing.progress import ProgressOfAll
from cluster.service.publishing.publication import divide
from cluster.service.publishing.published import LostResults
from cluster.service.publishing.publisher_channel import Note, Orders
from cluster.service.publishing.publisher_supervision import NEWS_SECONDS, RestartPauses
from cluster.service.publishing.shares import Share, shard_of
from cluster.service.publishing.supervised_publisher import TROUBLE, SupervisedPublisher
from cluster.storage.synced_files import Troubles


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
