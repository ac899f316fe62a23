"""The results table: every row of every query, numbered per query, in one Delta table.

A commit belongs to one micro-batch of one of the engine's two Spark queries. The micro-batch's number is the
transaction, so a replayed micro-batch is stored once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

import polars as pl
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from cluster.errors import StorageError
from cluster.storage.appending import AppendedTable, OutcomeUnknownError
from cluster.storage.archived_log import is_local
from cluster.storage.budgets import UNBOUNDED, Budget
from cluster.storage.committed_results import RESULT_SCHEMA
from cluster.storage.compaction import CompactedTable, Compaction
from cluster.storage.damaged_tables import Damage, mended
from cluster.storage.delta_tables import created
from cluster.storage.mending import repair_log
from cluster.storage.results_retention import ResultsRetention


class ResultsTable(CompactedTable):
    """The results of an engine, open for appending and reading.

    Parameters
    ----------
    root
        Folder (or URI) of the table; it is made if it does not exist.
    fjord
        Identity of the engine whose micro-batches are committed; a new engine counts from 0 again.
    compaction
        Decides when small files are merged.
    budget
        The budget of the table.
    published
        Returns the version up to which all results are published; later ones stay.
    appends
        Whether this handle appends; others only read.
    """

    def __init__(
        self,
        root: str,
        fjord: str,
        *,
        compaction: Compaction | None = None,
        budget: Budget = UNBOUNDED,
        published: Callable[[], int | None] = lambda: None,
        appends: bool = True,
    ) -> None:
        self.root = root
        self._compaction = compaction or Compaction()
        self._fjord = f"fjord/{fjord}"
        self._appending = Lock()
        self.damage: Damage | None = None
        """The damage of the table when it was opened."""
        if appends:
            repair_log(root)
        self._appended = AppendedTable(root, self._opened())
        self._known_sequences: dict[str, int] | None = None
        self.retention = ResultsRetention(root, budget, published)

    def _opened(self) -> DeltaTable:
        try:
            return DeltaTable(self.root)
        except TableNotFoundError:
            return created(self.root, RESULT_SCHEMA, "results")
        except DeltaError as error:
            if not is_local(self.root):
                raise StorageError(f"results table {self.root} cannot be read: {error}") from error
        try:
            self.damage = mended(Path(self.root), "results", RESULT_SCHEMA)
            return DeltaTable(self.root)
        except (StorageError, DeltaError, OSError) as error:
            raise StorageError(
                f"results table {self.root} is damaged: {error}", hint="restore its folder, or move it away"
            ) from error

    def committed(self, micro_batch: int, writer: str = "") -> bool:
        """Return whether this micro-batch of a writer has been stored already.

        Raises
        ------
        OutcomeUnknownError
            If the table cannot be read after an error.
        """
        last = self._appended.stored(self._application(writer))
        return last is not None and micro_batch <= last

    def append(self, rows: pl.DataFrame, micro_batch: int, writer: str = "") -> int:
        """Number the rows and store them, once; two threads may do so at the same time.

        Parameters
        ----------
        rows
            Columns query, start_us, end_us, kind, row; per query in the order in which they are to be numbered.
        micro_batch
            Number of the micro-batch they come from.
        writer
            The Spark query that ran it; each counts its own micro-batches.

        Returns
        -------
        int
            The table's version; unchanged if there is nothing to store or it has been stored before.

        Raises
        ------
        OutcomeUnknownError
            If the commit may have been made or not.
        StorageError
            If the commit fails; then nothing of it is stored.
        """
        with self._appending:
            return self._append(rows, micro_batch, writer)

    def _append(self, rows: pl.DataFrame, micro_batch: int, writer: str) -> int:
        if rows.height == 0 or self.committed(micro_batch, writer):
            return self.version
        numbered = rows.with_columns(
            (
                pl.int_range(pl.len()).over("query")
                + pl.col("query").replace_strict(self._sequences, default=0, return_dtype=pl.Int64)
                + 1
            ).alias("sequence")
        ).select(RESULT_SCHEMA.names)
        data = numbered.to_arrow().cast(RESULT_SCHEMA)
        try:
            version = self._appended.append(data, {self._application(writer): micro_batch})
        except OutcomeUnknownError:
            self._known_sequences = None
            raise
        last = numbered.group_by("query").agg(pl.col("sequence").max())
        self._sequences.update(dict(last.iter_rows()))
        if self._compaction.due(version):
            self._compaction.run(self._appended)
            self.retention.run(self._appended, self._sequences)
        return version

    def _application(self, writer: str) -> str:
        return f"{self._fjord}/{writer}" if writer else self._fjord

    def rows_after(self, query: str, sequence: int, limit: int) -> pl.DataFrame:
        """Return up to `limit` rows of a query with a higher sequence number, in order.

        Raises
        ------
        StorageError
            If they cannot be read.
        """
        try:
            self._table.update_incremental()
            return (
                self._scan()
                .filter((pl.col("query") == query) & (pl.col("sequence") > sequence))
                .sort("sequence")
                .head(limit)
                .collect()
            )
        except (DeltaError, OSError, pl.exceptions.PolarsError) as error:
            raise StorageError(f"results of {query!r} cannot be read: {error}") from error

    def last_sequence(self, query: str) -> int:
        """Return the number of the query's last row; 0 if it has none."""
        return self._sequences.get(query, 0)

    @property
    def _sequences(self) -> dict[str, int]:
        """The last number of each query. Read from the table once, and only when needed: that takes a whole scan."""
        if self._known_sequences is None:
            self._known_sequences = self._last_sequences()
        return self._known_sequences

    def _scan(self) -> pl.LazyFrame:
        return pl.scan_delta(self._table, use_pyarrow=True)  # Polars itself finds no files below "my data"

    def _last_sequences(self) -> dict[str, int]:
        if self.version == 0:
            return {}
        gone = self.retention.numbers.last
        try:
            found = self._scan().group_by("query").agg(pl.col("sequence").max()).collect()
        except (DeltaError, OSError, pl.exceptions.PolarsError) as error:
            raise StorageError(f"results table {self.root} cannot be read: {error}") from error
        there: dict[str, int] = dict(found.iter_rows())
        return {query: max(there.get(query, 0), gone.get(query, 0)) for query in there.keys() | gone.keys()}
