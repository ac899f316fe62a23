"""Keeping a stream's table within its budget: rows over it are removed once all their readers have read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError

from cluster.storage.appending import AppendedTable
from cluster.storage.budgets import UNBOUNDED, Blocked, Budget, Passed, TableFile, dropping, wanted_from
from cluster.storage.delta_tables import live_files
from protocols.errors import FjordError
from protocols.event_log import get_logger
from protocols.wire.batches import START_COLUMN

log = get_logger(__name__)


class Dropped(msgspec.Struct, frozen=True):
    """The rows removed from a table: their number, and the instant from which on all rows are kept."""

    rows: int = 0
    from_us: int | None = None


class StreamRetention:
    """Removes rows over the budget from one table.

    Parameters
    ----------
    budget
        Returns the budget of the table.
    passed
        Returns the instant before which all readers have read; None if there are no readers. It may raise.
    """

    def __init__(
        self, budget: Callable[[], Budget] = lambda: UNBOUNDED, passed: Callable[[], Passed | None] = lambda: None
    ) -> None:
        self._budget = budget
        self._passed = passed
        self.dropped = Dropped()
        self.blocked = Blocked()
        self._announced_us: int | None = None

    @property
    def budget(self) -> Budget:
        """The budget of the table."""
        return self._budget()

    @property
    def kept_from_us(self) -> int | None:
        """The instant from which all stored rows are kept, also for readers that begin now; None for all rows."""
        known = [each for each in (self.dropped.from_us, self._announced_us) if each is not None]
        return max(known, default=None)

    def run(
        self, table: AppendedTable, watermark_us: int | None, metadata: Callable[[Dropped], dict[str, str]]
    ) -> None:
        """Remove rows from a table. A failure is logged, and the removal is tried again the next time.

        Parameters
        ----------
        table
            The table.
        watermark_us
            The stream's low watermark; None before the first, and then nothing is removed.
        metadata
            Returns the commit's metadata, given the removed rows.
        """
        self.blocked = Blocked()
        try:
            self._run(table, watermark_us, metadata)
        except (DeltaError, OSError, pa.ArrowException, FjordError) as error:
            log.warning("old rows could not be removed", table=table.root, error=str(error))
        finally:
            self._announced_us = None

    def _run(
        self, table: AppendedTable, watermark_us: int | None, metadata: Callable[[Dropped], dict[str, str]]
    ) -> None:
        files = _files(table)
        wanted_us = wanted_from(files, self.budget, watermark_us)
        if wanted_us is None or watermark_us is None:
            return
        # A new query with history either is among the readers of `passed`, or sees the limit announced before.
        self._announced_us = wanted_us
        passed = self._passed() or Passed(watermark_us)
        found = dropping(files, wanted_us, min(passed.instant_us, watermark_us))
        if found.blocked:
            self.blocked = Blocked.of(found.blocked, passed.by or "the stream's low watermark has not passed it")
            left = self.blocked
            log.warning("more is kept than there should be", table=table.root, bytes=left.bytes, reason=left.by)
        if found.files:
            rows = sum(file.rows for file in found.files)
            from_us = max(found.from_us, self.dropped.from_us or found.from_us)
            dropped = Dropped(self.dropped.rows + rows, from_us)
            table.drop([file.path for file in found.files], metadata(dropped))
            self.dropped = dropped
            log.info("old rows removed", table=table.root, files=len(found.files), rows=rows)


def _files(table: AppendedTable) -> list[TableFile]:
    """Return a table's files; those without known stamps are never removed."""
    found: list[dict[str, Any]] = live_files(table.delta).to_pylist()
    first, last = f"min.{START_COLUMN}", f"max.{START_COLUMN}"
    return [
        TableFile(file["path"], file["num_records"], file["size_bytes"], file[first], file[last])
        for file in found
        if file.get(first) is not None and file.get(last) is not None
    ]
