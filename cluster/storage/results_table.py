"""The results table: every row of every query, numbered per query, in one Delta table.

A commit belongs to one micro-batch of one of the engine's two Spark queries. The micro-batch's number is the
transaction, so a replayed micro-batch is stored once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from cluster.errors import StorageError
from cluster.storage.appending import FILES_AT_ONCE, AppendedTable, OutcomeUnknownError, WrittenFiles, write_data_file
from cluster.storage.archived_log import is_local
from cluster.storage.budgets import UNBOUNDED, Budget
from cluster.storage.committed_results import CLOSES, CLOSES_EARLIER, OPEN, REPEATED, RESULT_SCHEMA, ROW, rows_of_query
from cluster.storage.compaction import CompactedTable, Compaction
from cluster.storage.damaged_tables import Damage, mended, repair_log
from cluster.storage.delta_tables import created, opened, stored_rows
from cluster.storage.results_retention import OpenRow, OpenRows, ResultsRetention
from cluster.storage.unnumbered_answers import NumberedFiles, Numbering, UnnumberedFile

Part = pl.DataFrame | UnnumberedFile
"""Rows, or a file of them."""
Write = Callable[[Sequence[Numbering]], Iterable[AddAction]]
"""Writes data files with :func:`~cluster.storage.unnumbered_answers.write_numbered`; returns their entries in order."""

_ENDS = (CLOSES, CLOSES_EARLIER)
_CLOSED = pl.Schema({"closes": pl.Int64, "began_us": pl.Int64, "text": pl.String})
_NO_ROWS = pl.DataFrame(pl.from_arrow(RESULT_SCHEMA.empty_table()))


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
        self._appended = AppendedTable(root, self._opened(), repeated=REPEATED, files_at_once=FILES_AT_ONCE)
        self._known_sequences: dict[str, int] | None = None
        self._known_open: OpenRows | None = None
        self.retention = ResultsRetention(root, budget, published)

    def _opened(self) -> DeltaTable:
        try:
            return opened(self.root)
        except TableNotFoundError:
            return created(self.root, RESULT_SCHEMA, "results")
        except DeltaError as error:
            if not is_local(self.root):
                raise StorageError(f"results table {self.root} cannot be read: {error}") from error
        try:
            self.damage = mended(Path(self.root), "results", RESULT_SCHEMA)
            return opened(self.root)
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
            Columns query, start_us, end_us, kind, row; per query in the order in which they are to be numbered. The end
            of an open row has its query, start and text; if the kind is ``closes_earlier``, the row may have begun
            before, and be equal but for the last digits of reals.
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
            if rows.height == 0 or self.committed(micro_batch, writer):
                return self.version
            numbered = self._numbered(rows, self._sequences)
            version = self._commit(numbered.to_arrow().cast(RESULT_SCHEMA), micro_batch, writer)
            self._sequences.update(_last_numbers(numbered))
            if numbered["kind"].is_in([OPEN, CLOSES]).any():
                self._open.note(numbered)
            return self._kept_within(version)

    def append_parts(self, parts: Sequence[Part], micro_batch: int, writer: str, write: Write) -> int:
        """Number parts of a micro-batch's rows, one behind the other, have files written of them, and commit these.

        Parameters
        ----------
        parts
            Rows without open ones and their ends, or files of them; together as in :meth:`append`.
        micro_batch, writer
            As in :meth:`append`.
        write
            Writes the data files of unnumbered ones; its errors are passed on, and then nothing is stored.

        Returns
        -------
        int
            As :meth:`append`; so are the errors.
        """
        with self._appending:
            if self.committed(micro_batch, writer):
                return self.version
            names = NumberedFiles(self.root, self._application(writer))
            last, tasks, tables = dict(self._sequences), list[Numbering](), list[pa.Table | None]()
            for place, part in enumerate(parts):
                if isinstance(part, UnnumberedFile):
                    firsts = {query: last.get(query, 0) + 1 for query in part.spans}
                    name = names.name(micro_batch, place)
                    tasks.append(Numbering(part, firsts, self.root, name))
                    tables.append(None)
                    last.update({query: firsts[query] + span.rows - 1 for query, span in part.spans.items()})
                else:
                    numbered = self._numbered(part, last)
                    tables.append(numbered.to_arrow().cast(RESULT_SCHEMA))
                    last.update(_last_numbers(numbered))
            written = iter(write(tasks) if tasks else ())
            entries = [
                next(written)
                if table is None
                else write_data_file(self.root, RESULT_SCHEMA, [table], repeated=REPEATED)
                for table in tables
            ]
            # Clocks of other machines may differ: retention compares this with the time of a commit.
            now_ms = time.time_ns() // 1_000_000
            entries = [replace(entry, modification_time=now_ms) for entry in entries]
            version = self._commit(WrittenFiles(RESULT_SCHEMA, entries), micro_batch, writer)
            self._sequences.update(last)
            return self._kept_within(version)

    def remove_uncommitted(self, writer: str) -> None:
        """Remove files that tasks have written for micro-batches of a writer that were interrupted before they counted.

        Raises
        ------
        OSError
            If one cannot be removed.
        OutcomeUnknownError
            If the table cannot be read after an error.
        """
        application = self._application(writer)
        with self._appending:  # a thread of an engine that has been stopped may be about to commit its files
            NumberedFiles(self.root, application).remove_uncommitted(self._appended.stored(application))

    def _numbered(self, rows: pl.DataFrame, last: Mapping[str, int]) -> pl.DataFrame:
        """Return rows with their numbers, given the last one of each query, and those of the rows that they close."""
        numbered = rows.with_columns(
            (
                pl.int_range(pl.len()).over("query")
                + pl.col("query").replace_strict(last, default=0, return_dtype=pl.Int64)
                + 1
            ).alias("sequence")
        )
        if not numbered["kind"].is_in([OPEN, *_ENDS]).any():
            return numbered.with_columns(pl.lit(None, pl.Int64).alias("closes")).select(RESULT_SCHEMA.names)
        closed = self._closed(numbered)
        # The end of a row that is lost with a part of the table is given as a whole row.
        kind = pl.when(pl.col("closes").is_not_null()).then(pl.lit(CLOSES)).when(pl.col("kind").is_in(_ENDS))
        return (
            numbered.with_columns(closed["closes"])
            .with_columns(
                kind.then(pl.lit(ROW)).otherwise("kind").alias("kind"),
                pl.coalesce(closed["began_us"], "start_us").alias("start_us"),
                pl.coalesce(closed["text"], "row").alias("row"),
            )
            .select(RESULT_SCHEMA.names)
        )

    def _commit(self, data: pa.Table | WrittenFiles, micro_batch: int, writer: str) -> int:
        try:
            return self._appended.append(data, {self._application(writer): micro_batch})
        except OutcomeUnknownError:
            self._known_sequences = self._known_open = None
            raise

    def _kept_within(self, version: int) -> int:
        """Compact the table if it is due, and keep it within its budget; return the version that was appended."""
        if self._compaction.due(version):
            self._compaction.run(self._appended)
            self.retention.run(self._appended, self._sequences, self._listed)
        return version

    def _closed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the number, start and text of the open row that each row closes."""
        ends = rows.filter(pl.col("kind").is_in(_ENDS))
        earlier = (ends["kind"] == CLOSES_EARLIER).to_list()
        found = iter(self._open.closed_by(ends.select("query", "start_us", "row").rows(), earlier))
        closed = [next(found) if kind in _ENDS else None for kind in rows["kind"]]
        return pl.DataFrame(
            {
                "closes": [None if each is None else each[1] for each in closed],
                "began_us": [None if each is None else each[0][1] for each in closed],
                "text": [None if each is None else each[0][2] for each in closed],
            },
            schema=_CLOSED,
        )

    def _application(self, writer: str) -> str:
        return f"{self._fjord}/{writer}" if writer else self._fjord

    def rows_after(self, query: str, sequence: int, limit: int, *, most_bytes: int | None = None) -> pl.DataFrame:
        """Return up to `limit` rows of a query with a higher sequence number, in order.

        None follow those whose texts are as long as `most_bytes` together. Others are not in memory but in small parts.

        Raises
        ------
        StorageError
            If they cannot be read.
        """
        try:
            self._table.update_incremental()
            dataset = self._table.to_pyarrow_dataset()
            rows = pl.from_arrow(rows_of_query(dataset, query, sequence, limit, most_bytes=most_bytes))
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise StorageError(f"results of {query!r} cannot be read: {error}") from error
        assert isinstance(rows, pl.DataFrame)  # noqa: S101 - which a table becomes
        return _with_closes(rows)

    def last_sequence(self, query: str) -> int:
        """Return the number of the query's last row; 0 if it has none."""
        return self._sequences.get(query, 0)

    @property
    def _sequences(self) -> dict[str, int]:
        """The last number of each query. Read from the table once, and only when needed: that takes a whole scan."""
        if self._known_sequences is None:
            self._known_sequences = self._last_sequences()
        return self._known_sequences

    @property
    def _open(self) -> OpenRows:
        """The open rows; read from the table as :attr:`_sequences` are."""
        if self._known_open is None:
            kinds = pl.col("kind").is_in([OPEN, CLOSES])
            try:
                rows = self._scan().filter(kinds).collect() if self.version else _NO_ROWS
            except (DeltaError, OSError, pl.exceptions.PolarsError) as error:
                raise StorageError(f"results table {self.root} cannot be read: {error}") from error
            self._known_open = OpenRows.of(self.retention.numbers.open, _with_closes(rows))
        return self._known_open

    def _listed(self) -> list[tuple[OpenRow, int]]:
        return self._open.listed()

    def _scan(self) -> pl.LazyFrame:
        return stored_rows(self._table)

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


def _last_numbers(numbered: pl.DataFrame) -> dict[str, int]:
    return dict(numbered.group_by("query").agg(pl.col("sequence").max()).iter_rows())


def _with_closes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the column `closes`, which files of earlier versions lack."""
    return rows if "closes" in rows.columns else rows.with_columns(pl.lit(None, pl.Int64).alias("closes"))
