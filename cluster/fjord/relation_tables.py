"""Tables of relations, at the versions of a micro-batch; cut into slices where they are beyond memory.

**Tables beyond memory: cut by the hash of a key into slices on disk, of which one is in memory at a time.**

Slices are numbered like buckets (their number is a multiple of that of buckets), so a bucket that receives rows by the
same key needs only its own slices.

A table is evaluated once for each combination of versions. It stays, with the hash tables on its columns, in the
worker's memory for later micro-batches, and for all lookups in the same table. A table that is too large for that is
cut by the hash of the key that is looked up.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS
from cluster.fjord.lookup_tables import LookupTable, Parts, UnreadableRelationError
from cluster.fjord.row_order import bucket_numbers
from cluster.fjord.scalars import POLARS_TYPES
from cluster.fjord.snapshot_evaluation import evaluate_snapshot, is_scan
from cluster.operators import Node, Relation
from cluster.operators.columns import identity_of
from cluster.plan.names_read import MEMORY_BYTES, slices_of
from cluster.scalars.real_values import settled_scan
from cluster.storage.relation_versions import RelationVersion, RelationVersions
from cluster.storage.table_folders import relation_folder
from protocols.text.quantities import format_byte_size
from protocols.wire.streams import FieldType

ROWS_AT_ONCE = 100_000
"""Rows of a snapshot that are in memory while it is cut."""


class SlicedTable:
    """A table in slices.

    Parameters
    ----------
    count
        How many slices there are.
    kind
        Type of the key.
    load
        Returns one slice.
    """

    def __init__(self, count: int, kind: pl.DataType, load: Callable[[int], LookupTable]) -> None:
        self._count = count
        self._kind = kind
        self._load = load

    def parts(self, probes: pl.Series | None) -> Iterator[tuple[NDArray[np.int64] | None, LookupTable]]:
        """Yield places of values, and the slice with the rows of these values."""
        assert probes is not None  # noqa: S101 - a sliced table is never read without a key
        # Values that no key of this type can equal may go to any slice.
        numbers = _slices(probes.cast(self._kind, strict=False), self._count)
        for number in np.unique(numbers):
            yield np.flatnonzero(numbers == number).astype(np.int64), self._load(int(number))


def _slices(values: pl.Series, count: int) -> NDArray[np.int32]:
    """Return the slices of values; integers that equal one real in comparisons are in one slice."""
    if values.dtype == pl.Int64:
        as_reals = values.cast(pl.Float64).cast(pl.Int64, strict=False)
        values = pl.select(pl.coalesce(as_reals, values)).to_series()
    return bucket_numbers(values, count)


def slice_file(folder: Path, number: int) -> Path:
    """Return the file of a slice."""
    return folder / f"{number:06d}.parquet"


def cut(snapshot: Path, folder: Path, count: int, key: str, table: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Write a table in slices, unless that has been done.

    Parameters
    ----------
    snapshot
        The Parquet file of a relation.
    folder
        The folder of the slices; it exists either completely or not at all.
    count
        How many slices.
    key
        The column of the table by which it is cut; rows with NULL there are in no slice.
    table
        Computes rows of the table from some rows of the relation.
    """
    if folder.exists():
        return
    unfinished = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    unfinished.mkdir(parents=True)
    writers: list[pq.ParquetWriter] = []
    for batch in pq.ParquetFile(snapshot).iter_batches(batch_size=ROWS_AT_ONCE):
        rows = pl.DataFrame(pa.Table.from_batches([batch]))
        piece = table(rows).drop_nulls(key)
        if not writers:
            schema = piece.to_arrow().schema
            writers = [pq.ParquetWriter(slice_file(unfinished, number), schema) for number in range(count)]
        numbers = pl.Series("fjord_slice", _slices(piece[key], count))
        for (number,), part in piece.with_columns(numbers).partition_by("fjord_slice", as_dict=True).items():
            writers[int(number)].write_table(part.drop("fjord_slice").to_arrow())
    for writer in writers:
        writer.close()
    try:
        unfinished.rename(folder)
    except OSError:  # another worker was faster
        shutil.rmtree(unfinished)


SLICING = 2
"""Version of the rule that assigns rows to slices: version 1 separated integers that equal one real."""
TABLES_KEPT = 4
"""All tables of a worker take at most as much as so many of the largest; beyond that, the least recently used go."""


class RelationTables:
    """Provides the tables of lookups.

    Parameters
    ----------
    folder
        The folder of the versions of all relations.
    versions
        By identity of a relation: its newest version in use.
    buckets
        The number of buckets downstream.
    memory_bytes
        How much memory one table may take.
    """

    def __init__(
        self, folder: str, versions: Mapping[str, int], *, buckets: int = 1, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._folder = Path(folder)
        self._buckets = buckets
        self._memory_bytes = memory_bytes
        self._versions = dict(versions)
        self._histories: dict[tuple[str, frozenset[str]], list[tuple[int, RelationVersion]]] = {}

    def advance(self, versions: Mapping[str, int]) -> None:
        """Use newer versions."""
        if versions != self._versions:
            self._versions = dict(versions)
            self._histories.clear()

    def pieces(
        self, table: Node, key: str | None, streams: frozenset[str], first_us: int, last_us: int
    ) -> Sequence[tuple[int, Parts | PlanError]]:
        """Return a table's pieces between two instants, each with its begin and rows; the first holds at `first_us`.

        Instead of rows there is an :class:`UnreadableRelationError` where one of its relations has a version that
        records that it has not been read for too long, or is too large for the memory and there is no key to cut it by.

        Raises
        ------
        UnreadableRelationError
            If one of its relations has no version at all.
        """
        relations = table.relations
        histories = {each.identity: self._history(each, streams) for each in relations}
        changes = {since for history in histories.values() for since, _ in history if first_us < since <= last_us}
        pieces: list[tuple[int, Parts | PlanError]] = []
        for since in [first_us, *sorted(changes)]:
            active = {each: _active(histories[each.identity], since) for each in relations}
            try:
                pieces.append((since, self._table(table, key, active)))
            except UnreadableRelationError as error:
                pieces.append((since, error))
        return pieces

    def _history(self, relation: Relation, streams: frozenset[str]) -> list[tuple[int, RelationVersion]]:
        """Return since when each version holds, oldest first; the oldest one has always held."""
        key = (relation.identity, streams)
        if key not in self._histories:
            versions = RelationVersions.below(self._folder, relation.identity)
            last = self._versions.get(relation.identity, 0)
            known = [versions.version(number) for number in versions.numbers() if number <= last]
            if not known:
                raise UnreadableRelationError(f"relation {relation.name} has not been read yet")
            begins = [max((each.begins_us.get(stream, ALWAYS) for stream in streams), default=ALWAYS) for each in known]
            self._histories[key] = list(zip([ALWAYS, *begins[1:]], known, strict=True))
        return self._histories[key]

    def _table(self, table: Node, key: str | None, active: Mapping[Relation, RelationVersion]) -> Parts:
        for version in active.values():
            if version.failure:
                raise UnreadableRelationError(version.failure)
        if sum(version.bytes for version in active.values()) > self._memory_bytes:
            return self._sliced(table, key, active)
        scans = {each: _scan(each, self._file(each, version)) for each, version in active.items()}
        return self._from_memory(table, active, None, lambda: evaluate_snapshot(table, scans))

    def _sliced(self, table: Node, key: str | None, active: Mapping[Relation, RelationVersion]) -> SlicedTable:
        ((relation, version), *others) = active.items()
        if key is None or others or not is_scan(table):
            names = " and ".join(f"{each.name} ({format_byte_size(found.bytes)})" for each, found in active.items())
            raise UnreadableRelationError(
                f"relation {names} is larger than the {format_byte_size(self._memory_bytes)} that a table may take, "
                "and is not looked up by an equality with a column of it, so that it cannot be partitioned",
                hint="look it up by an equality, or read less of it: CREATE RELATION ... QUERY 'SELECT ... WHERE ...'",
            )
        count = slices_of(version.bytes, self._memory_bytes, self._buckets)
        digest = hashlib.blake2b(identity_of((table, key, SLICING)), digest_size=8).hexdigest()
        folder = self._folder / relation_folder(relation.identity) / f"{version.data:012d}-by-{digest}-{count}"
        cut(
            self._file(relation, version),
            folder,
            count,
            key,
            lambda rows: evaluate_snapshot(table, {relation: _known(relation, rows)}),
        )
        kind = next(POLARS_TYPES[column.type]() for column in table.schema if column.name == key)

        def load(number: int) -> LookupTable:
            return self._from_memory(
                table, active, (key, number), lambda: pl.read_parquet(slice_file(folder, number), glob=False)
            )

        return SlicedTable(count, kind, load)

    def _from_memory(
        self,
        table: Node,
        active: Mapping[Relation, RelationVersion],
        part: tuple[str, int] | None,
        read: Callable[[], pl.DataFrame],
    ) -> LookupTable:
        """Return a table, or a slice of one, from this worker's memory, or read it."""
        key_of_table = (str(self._folder), table, tuple(version.data for version in active.values()), part)
        found = _kept.pop(key_of_table, None)
        if found is None:
            found = LookupTable(read())
        _kept[key_of_table] = found
        while len(_kept) > 1 and sum(each.bytes for each in _kept.values()) > TABLES_KEPT * self._memory_bytes:
            _kept.popitem(last=False)
        return found

    def _file(self, relation: Relation, version: RelationVersion) -> Path:
        return RelationVersions.below(self._folder, relation.identity).snapshot(version.number)


_kept: OrderedDict[tuple[str, Node, tuple[int, ...], tuple[str, int] | None], LookupTable] = OrderedDict()
"""Tables that this worker has evaluated, by folder, plan and versions; the most recently used comes last."""


def _scan(relation: Relation, snapshot: Path) -> pl.LazyFrame:
    """Return a scan of a snapshot; columns that were added later, as those of sensors can be, are NULL."""
    found = pl.scan_parquet(
        snapshot, glob=False, schema=_schema(relation), missing_columns="insert", extra_columns="ignore"
    )
    return settled_scan(found, _reals(relation))


def _known(relation: Relation, rows: pl.DataFrame) -> pl.LazyFrame:
    """Return rows of a snapshot, likewise."""
    missing = {name: kind for name, kind in _schema(relation).items() if name not in rows.columns}
    whole = rows.lazy().with_columns(pl.lit(None, kind).alias(name) for name, kind in missing.items())
    return settled_scan(whole, _reals(relation))


def _schema(relation: Relation) -> dict[str, type[pl.DataType]]:
    return {column.name: POLARS_TYPES[column.type] for column in relation.columns}


def _reals(relation: Relation) -> list[str]:
    return [column.name for column in relation.columns if column.type is FieldType.REAL]


def _active(history: Sequence[tuple[int, RelationVersion]], instant_us: int) -> RelationVersion:
    return next(version for since, version in reversed(history) if since <= instant_us)
