"""Stream tables: one Delta table per stream, append-only, written by the ingest alone.

Every commit has the stream's low watermark and that of each proxy in its metadata, so that a version number is
an exact position in the stream, and a restarted ingest goes on from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from cluster.errors import StorageError
from cluster.storage.appending import AppendedTable
from cluster.storage.archived_log import LOG
from cluster.storage.commit_log import METADATA_PREFIX, CommitLog
from cluster.storage.compaction import CompactedTable, Compaction
from cluster.storage.damaged_tables import Damage, is_suspicious, mended, repair_log, set_aside
from cluster.storage.delta_tables import created, live_files, opened
from cluster.storage.stream_retention import Dropped, StreamRetention
from cluster.storage.table_folders import stream_of
from protocols.wire.batches import (
    COMPLETENESS_FIELDS,
    DEFAULT_RATE_COLUMN,
    MOTE_COLUMN,
    PUBLISHED_FIELDS,
    START_COLUMN,
    aggregate_fields,
)
from protocols.wire.streams import Field, FieldType, StreamSchema

ARROW_TYPES: dict[FieldType, pa.DataType] = {
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.INTEGER: pa.int64(),
    FieldType.REAL: pa.float64(),
    FieldType.TEXT: pa.string(),
}
COMMITS_MEASURED = 32
"""Newest commits by which it is measured how many tuples come."""
_WATERMARK = "watermark_us"
_PROXIES = "proxies"
_ROWS = "rows"
"""How many rows have been stored since Fjord began to count them."""
_DROPPED = "dropped"
"""How many rows retention has removed, and until which instant."""


class LastBatch(msgspec.Struct, frozen=True, array_like=True):
    """A proxy's last batch in a stream: its number in an epoch, and the writer that it names, in hexadecimal."""

    epoch: str
    sequence: int
    writer: str


class ProxyPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position of one proxy's part of a stream.

    Parameters
    ----------
    watermark_us
        None of its later rows is stamped before it.
    sampling
        Whether its motes sample: then the stream waits for it.
    promises
        Whether its motes are silent and it goes on in their place.
    gone
        Whether the stream goes on without it, until it comes back.
    last
        Its last batch, if that names its writer.
    """

    watermark_us: int
    sampling: bool
    promises: bool = False
    gone: bool = False
    last: LastBatch | None = None


class StreamPosition(msgspec.Struct, frozen=True):
    """The position of a stream: its low watermark (None before the first) and the positions of its proxies, by name."""

    watermark_us: int | None = None
    proxies: Mapping[str, ProxyPosition] = {}


@lru_cache(maxsize=1024)
def arrow_schema(
    schema: StreamSchema, *, aggregates: bool = False, completeness: bool = False, published: bool = False
) -> pa.Schema:
    """Return the Arrow schema of the table of a stream.

    Parameters
    ----------
    schema
        The stream's schema.
    aggregates, completeness, published
        Whether rows have the columns of aggregates, of counts of missing samples, and of published tuples.
    """
    fields = (
        *(aggregate_fields(schema) if aggregates else ()),
        *(COMPLETENESS_FIELDS if completeness else ()),
        *(PUBLISHED_FIELDS if published else ()),
    )
    own = [pa.field(field.name, ARROW_TYPES[field.type]) for field in fields]
    return pa.schema(
        [
            pa.field(START_COLUMN, pa.int64(), nullable=False),
            pa.field(MOTE_COLUMN, pa.string(), nullable=False),
            pa.field(DEFAULT_RATE_COLUMN, pa.bool_(), nullable=False),
            *(
                pa.field(
                    field.name,
                    ARROW_TYPES[field.type],
                    metadata={
                        "fjord.type": field.type.value,
                        "fjord.unit": field.unit,
                        "fjord.fixed": str(field.fixed),
                    },
                )
                for field in schema.fields
            ),
            *own,
        ]
    )


class StreamTable(CompactedTable):
    """The table of one stream, open for appending.

    Parameters
    ----------
    root
        Folder (or URI) of the table.
    schema
        The stream's schema; None to use that of an existing table.
    compaction
        Decides when small files are merged.
    retention
        Decides which rows are removed.

    Raises
    ------
    StorageError
        If the table has another schema, or does not exist and none is given; UnwritableError if it cannot be made now.
    """

    def __init__(
        self,
        root: str,
        schema: StreamSchema | None = None,
        *,
        compaction: Compaction | None = None,
        retention: StreamRetention | None = None,
    ) -> None:
        self.root = root
        self._compaction = compaction or Compaction()
        self.retention = retention or StreamRetention()
        try:
            repair_log(root)
            found = opened(root)
        except TableNotFoundError as error:
            if schema is None:
                raise StorageError(f"there is no stream table at {root}") from error
            found = created(root, arrow_schema(schema), schema.name)
        except (DeltaError, OSError) as error:
            raise StorageError(f"stream table {root} cannot be read: {str(error).partition(chr(10))[0]}") from error
        self._appended = AppendedTable(root, found)
        self.schema = _schema_of(found, root)
        if schema is not None and schema != self.schema:
            raise StorageError(
                f"stream {schema.name!r} is offered with other fields than its table has: "
                f"{_describe(schema)} instead of {_describe(self.schema)}",
                hint="give the new motes a stream of their own",
            )
        self.log = CommitLog(root)
        self._rows: int | None = None
        with contextlib.suppress(StorageError):  # a damaged log: removed rows are counted anew
            counted = self._counted(self.version).get(_DROPPED)
            self.retention.dropped = msgspec.json.decode(counted, type=Dropped) if counted else Dropped()

    def position(self) -> StreamPosition:
        """Return the position of the stream at the newest version."""
        watermark = self.log.metadata_at(self.version, _WATERMARK)
        proxies = self.log.metadata_at(self.version, _PROXIES)
        return StreamPosition(
            int(watermark) if watermark is not None else None,
            msgspec.json.decode(proxies, type=dict[str, ProxyPosition]) if proxies else {},
        )

    def rows_stored(self, version: int) -> int:
        """Return how many rows had ever been stored at a version, since Fjord has counted them.

        Raises
        ------
        StorageError
            If the commit cannot be read.
        """
        return int(self._counted(version).get(_ROWS, 0))

    def _counted(self, version: int) -> Mapping[str, str]:
        """Return the metadata of the newest commit that adds or removes rows; compaction has no such metadata."""
        for each in range(version, -1, -1):
            metadata = self.log.read(each).metadata
            if _PROXIES in metadata or _ROWS in metadata:
                return metadata
        return {}

    def _rows_before(self) -> int:
        if self._rows is None:
            try:
                return self.rows_stored(self.version)
            except StorageError:  # a damaged log: rows are counted anew
                return 0
        return self._rows

    def tuples_per_second(self) -> float | None:
        """Return how many tuples came per second of application time in the newest commits; None if that is unknown."""
        newest, rows = self.version, 0
        marks: list[int] = []
        for version in range(max(1, newest - COMMITS_MEASURED + 1), newest + 1):
            commit = self.log.read(version)
            mark = watermark_of(commit.metadata)
            if mark is None:
                continue
            rows += commit.rows if marks else 0
            marks.append(mark)
        passed_us = marks[-1] - marks[0] if marks else 0
        return rows * 1e6 / passed_us if passed_us > 0 else None

    def latest_stamp(self) -> int | None:
        """Return the latest stamp of the stored tuples; None if there are none. Read once, when the ingest begins."""
        files = live_files(self._table)
        if not files.num_rows:
            return None
        column = f"max.{START_COLUMN}"
        if column in files.column_names and not files.column(column).null_count:
            latest = pc.max(files.column(column)).as_py()
        else:  # written by a program that leaves no statistics
            latest = pc.max(self._table.to_pyarrow_table(columns=[START_COLUMN]).column(START_COLUMN)).as_py()
        return None if latest is None else int(latest)

    def last_sequence(self, proxy: str, epoch: str) -> int:
        """Return the highest stored sequence number of a proxy and epoch; 0 if none."""
        return self._appended.stored(_writer(proxy, epoch)) or 0

    def holds(self, sequences: Mapping[tuple[str, str], int]) -> bool:
        """Return whether all batches up to these sequence numbers, by (proxy, epoch), are stored.

        Raises
        ------
        OutcomeUnknownError
            If the table cannot be read.
        """
        return self._appended.made(_transactions(sequences))

    def sequences(self) -> dict[tuple[str, str], int]:
        """Return the highest stored sequence number of every proxy and epoch that ever fed the stream.

        Raises
        ------
        StorageError
            If the table cannot be read.
        """
        path = Path(self.root, LOG, f"{self.version:020d}.checkpoint.parquet")
        try:
            self._table.create_checkpoint()  # the only commit with all of them
            stored = pq.read_table(path, columns=["txn"]).column("txn").drop_null().to_pylist()
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise StorageError(f"could not read what proxies have stored in {self.root}: {error}") from error
        found = {}
        for each in stored:
            _, proxy, epoch = each["appId"].split("/", 2)
            found[proxy, epoch] = int(each["version"])
        return found

    def append(
        self, rows: Sequence[pa.Table], position: StreamPosition, sequences: Mapping[tuple[str, str], int]
    ) -> int:
        """Append rows and record the position, in one atomic commit.

        Parameters
        ----------
        rows
            Tables of :func:`arrow_schema`; none if only the position moves. The first rows with aggregates,
            counts or published tuples add columns for them to the table.
        position
            The stream's position after the commit.
        sequences
            By (proxy, epoch): the highest sequence number this commit contains.

        Returns
        -------
        int
            The new version.

        Raises
        ------
        OutcomeUnknownError
            If the commit may have been made or not; :meth:`holds` answers that once the table can be read again.
        StorageError
            If the commit fails; then nothing of it is stored.
        """
        data = pa.concat_tables(rows, promote_options="default") if rows else None
        metadata = {METADATA_PREFIX + _PROXIES: msgspec.json.encode(dict(position.proxies)).decode()}
        if position.watermark_us is not None:
            metadata[METADATA_PREFIX + _WATERMARK] = str(position.watermark_us)
        rows_stored = self._rows_before() + (0 if data is None else data.num_rows)
        metadata |= _counts(rows_stored, self.retention.dropped)
        self._rows = None  # unless the commit is made
        version = self._appended.append(data, _transactions(sequences), metadata)
        self._rows = rows_stored
        if self._compaction.due(version):
            self._compaction.run(self._appended)
            self._drop_old(position.watermark_us, rows_stored)
        return version

    def _drop_old(self, watermark_us: int | None, rows_stored: int) -> None:
        self.retention.run(self._appended, watermark_us, lambda dropped: _counts(rows_stored, dropped))

    def make_up(self, version: int) -> int:
        """Bring a table that has lost versions up to a version with empty ones; return how many were missing.

        Raises
        ------
        StorageError
            If they cannot be stored.
        """
        missing = max(0, version - self.version)
        position = self.position()
        while self.version < version:
            self.append([], position, {})
        return missing


def watermark_at(log: CommitLog, version: int) -> int | None:
    """Return the low watermark of the stream at a version of its table; None before the first."""
    found = log.metadata_at(version, _WATERMARK)
    return int(found) if found is not None else None


def watermark_of(metadata: Mapping[str, str]) -> int | None:
    """Return the low watermark a commit's metadata sets, if it sets one."""
    found = metadata.get(_WATERMARK)
    return int(found) if found is not None else None


def open_stream_tables(
    root: Path,
    *,
    compaction: Callable[[str], Compaction] = lambda _: Compaction(),
    retention: Callable[[str], StreamRetention] = lambda _: StreamRetention(),
    damages: Callable[[Damage], None] = lambda _: None,
) -> dict[str, StreamTable]:
    """Return all stream tables below a folder, by stream name.

    Parameters
    ----------
    root
        The folder.
    compaction
        Returns the compaction of a stream's table.
    retention
        Returns the retention of a stream's table.
    damages
        Called with the damage of a table, which was repaired or, if that was impossible, set aside.
    """
    if not root.is_dir():
        return {}
    found = {}
    for path in sorted(root.iterdir()):
        if path.name.startswith("."):
            continue
        with contextlib.suppress(OSError):  # opening the table reports the damage
            repair_log(str(path))
        stream = stream_of(path.name)
        if any((path / LOG).glob("*.json")):  # else the process ended while it made the table
            table = _opened(path, stream, compaction(stream), retention(stream), damages)
            if table is not None:
                found[stream] = table
    return found


def _opened(
    path: Path, stream: str, compaction: Compaction, retention: StreamRetention, damages: Callable[[Damage], None]
) -> StreamTable | None:
    if not is_suspicious(path):
        with contextlib.suppress(StorageError):
            return StreamTable(str(path), compaction=compaction, retention=retention)
    try:
        damage = mended(path, stream)
        table = StreamTable(str(path), compaction=compaction, retention=retention)
    except StorageError:
        damages(set_aside(path))
        return None
    damages(damage)
    return table


def _writer(proxy: str, epoch: str) -> str:
    return f"fjord/{proxy}/{epoch}"


def _counts(rows_stored: int, dropped: Dropped) -> dict[str, str]:
    counts = {METADATA_PREFIX + _ROWS: str(rows_stored)}
    if dropped.rows:
        counts[METADATA_PREFIX + _DROPPED] = msgspec.json.encode(dropped).decode()
    return counts


def _transactions(sequences: Mapping[tuple[str, str], int]) -> dict[str, int]:
    return {_writer(*lane): sequence for lane, sequence in sequences.items()}


def _schema_of(table: DeltaTable, root: str) -> StreamSchema:
    name = table.metadata().name
    if name is None:
        raise StorageError(f"the table at {root} is not a stream table: it has no name")
    fields = []
    for field in table.schema().fields:
        kind = field.metadata.get("fjord.type")
        if kind is not None:
            unit, fixed = str(field.metadata["fjord.unit"]), field.metadata["fjord.fixed"] == "True"
            fields.append(Field(field.name, FieldType(kind), unit, fixed))
    return StreamSchema(name, tuple(fields))


def _describe(schema: StreamSchema) -> str:
    return ", ".join(f"{field.name} {field.type.value} {field.unit}".strip() for field in schema.fields)
