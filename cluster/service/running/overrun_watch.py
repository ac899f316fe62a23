"""Counts overruns of queries, and sets aside the queries that overrun again and again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from cluster.errors import StorageError, UnwritableError
from cluster.fjord.answers import error_row, stored_columns
from cluster.fjord.overruns import Overrun, OverrunKind, Strikes, Worked, WorkShares
from cluster.spark.worker_watch import OverrunNotes
from cluster.storage.results_table import ResultsTable
from protocols.event_log import get_logger

LOOK_SECONDS: Final = 0.5
WRITER: Final = "set aside"
"""The writer of error rows of queries that are set aside; it never changes."""

log = get_logger(__name__)


class OverrunWatch:
    """Reads the notes of workers.

    Parameters
    ----------
    notes
        The notes.
    results
        Where it is stored that a query is set aside, as an error row of its own.
    share
        The share of the time for which a query may be computed while all answers are late; 0 for no limit.
    lag_seconds, fragments
        Return how far the queries are behind that are behind most, and how many fragments the plan has. The former is
        called in a thread.
    set_aside
        Sets aside a query of a fragment, with a reason; returns its name, or None if there is none any more.
    newest
        Returns the identity of the newest query of a fragment, or None if there is no such fragment.
    clock, wall
        Seconds that only go forward, and seconds since 1970.

    Attributes
    ----------
    counts
        How many overruns there were since this process began, by kind.
    """

    def __init__(
        self,
        notes: OverrunNotes,
        results: ResultsTable,
        set_aside: Callable[[str, str], Awaitable[str | None]],
        *,
        newest: Callable[[str], str | None] = lambda fragment: fragment,
        share: float = 0.0,
        lag_seconds: Callable[[], float] = lambda: 0.0,
        fragments: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._notes = notes
        self._results = results
        self._set_aside = set_aside
        self._clock, self._wall = clock, wall
        self._strikes, self._shares = Strikes(), WorkShares(share)
        self._lag_seconds, self._fragments, self._newest = lag_seconds, fragments, newest
        self._looked = False
        self._changed = self._work_changed = 0
        self._known: Counter[str] = Counter()
        """How many overruns are known, by micro-batch."""
        self._due: dict[str, str] = {}
        """Fragments of which a query is to be set aside, and why."""
        self.counts: Counter[OverrunKind] = Counter()

    async def run(self, on_commit: Callable[[], None]) -> None:
        """Look at the notes again and again, until cancelled.

        Parameters
        ----------
        on_commit
            Called, in a thread, when the results table has a new version.
        """
        while True:
            await self.look(on_commit)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self, on_commit: Callable[[], None]) -> None:
        """Look at the notes once."""
        if (changed := self._notes.changed()) != self._changed:
            self._changed = changed
            await asyncio.to_thread(self._notes.forget_old, self._wall())
            overruns = await asyncio.to_thread(self._notes.all)
            if not self._looked:
                self._strikes.passed_over(overruns)
                self._known.update({micro_batch: len(found) for micro_batch, found in overruns.items()})
            for micro_batch, found in overruns.items():
                for each in found[self._known[micro_batch] :]:
                    self._count(each)
                self._known[micro_batch] = max(self._known[micro_batch], len(found))
            self._due |= self._strikes.noted(overruns, self._clock(), self._newest)
        self._looked = True
        self._due |= await self._greedy()
        for fragment, reason in list(self._due.items()):
            try:
                name = await self._set_aside(fragment, reason)
            except UnwritableError:
                return  # it is tried again
            del self._due[fragment]
            if name is not None:
                await asyncio.to_thread(self._report, name, reason)
                on_commit()

    async def _greedy(self) -> dict[str, str]:
        """Return the fragment that takes more than its share, if one does, and why it is set aside."""
        worked: list[Worked] = []
        if (changed := self._notes.work_changed()) != self._work_changed:
            worked = await asyncio.to_thread(self._notes.take_work)
            self._work_changed = changed  # of before: what was written meanwhile is read at the next look
        if not worked and self._shares.idle(self._clock()):
            return {}  # lags take a while to find out
        found = self._shares.noted(
            worked,
            lag_seconds=await asyncio.to_thread(self._lag_seconds),
            fragments=self._fragments(),
            now_seconds=self._clock(),
        )
        return {} if found is None else dict([found])

    def _count(self, overrun: Overrun) -> None:
        self.counts[overrun.kind] += 1
        log.warning(
            "a query overran its limit", fragments=overrun.activity.fragments, reason=overrun.words,
            micro_batch=overrun.activity.micro_batch,
        )  # fmt: skip

    def _report(self, name: str, reason: str) -> None:
        """Store as an error row that a query is set aside: no micro-batch will."""
        now_us = round(self._wall() * 1e6)
        row = stored_columns(error_row(name, f"the query is set aside, as {reason}", now_us))
        try:
            self._results.append(row, now_us, WRITER)
        except StorageError as error:  # its state says the same
            log.warning("an error row cannot be stored", query=name, reason=error.message)
