"""A Delta table in plain Python: the log that deltalake writes, in a hundredth of its time.

    commit   _delta_log/00000000000000000007.json     made only if there is none: a second writer of version 7 loses it
    state    newest checkpoint, and every commit since

It stands in for `DeltaTable` in `cluster/storage/delta_tables.py`, and nothing else does: data files, syncing,
archives, retention, compaction and the reading of commits are the product's own. Tables are the same on disk as
deltalake's, and both read each other's (test_delta_log.py).
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from deltalake import CommitProperties, Field, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

LOG = "_delta_log"
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
HOUR_MS = 3_600_000
_json = msgspec.json

Instant = Callable[[str, str, int], None]
"""Called at an instant of a table, with its root and version: `opening`, `committing`, `committed` or `checkpointing`.

What it raises is what the caller gets: after `committed`, the commit is there all the same."""


class Metadata(NamedTuple):
    """As much of a table's metadata as is used."""

    name: str | None


@dataclass
class State:
    """What a table holds at a version."""

    version: int = -1
    metadata: dict[str, Any] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path: the entry that added it."""
    removed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path: the entry that removed it."""
    transactions: dict[str, int] = field(default_factory=dict)

    def apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Go on by the actions of the next version."""
        for action in actions:
            for kind, content in action.items():
                match kind:
                    case "add":
                        self.files[content["path"]] = content
                        self.removed.pop(content["path"], None)
                    case "remove":
                        self.files.pop(content["path"], None)
                        self.removed[content["path"]] = content
                    case "txn":
                        self.transactions[content["appId"]] = content["version"]
                    case "metaData":
                        self.metadata = content
                    case _:
                        pass
        self.version += 1


class DeltaLog:
    """An open table.

    Parameters
    ----------
    root
        Its folder.
    version
        Which version to open; None for the newest.

    Raises
    ------
    TableNotFoundError
        If there is no table.
    DeltaError
        If its log cannot be read.
    """

    instant: Instant = staticmethod(lambda _what, _root, _version: None)

    def __init__(self, root: str, version: int | None = None) -> None:
        self._log = Path(root, LOG)
        self._root = root
        self.instant("opening", root, -1 if version is None else version)
        self._state = State()
        self._schema: Schema | None = None
        self._actions: tuple[int, pa.Table] | None = None
        commits, checkpoints = _versions(self._log)
        if not commits and not checkpoints:
            raise TableNotFoundError(f"no table at {root}")
        begin = max((each for each in checkpoints if version is None or each <= version), default=None)
        if begin is not None:
            self._load(begin)
        last = max(commits, default=-1) if version is None else version
        while self._state.version < last:
            self._advance(self._state.version + 1)
        if not self._state.metadata:
            raise DeltaError(f"table {root} has no metadata")

    @classmethod
    def create(cls, root: str, *, schema: pa.Schema, name: str, configuration: Mapping[str, str | None]) -> DeltaLog:
        """Make a table and return it, open."""
        cls.instant("committing", root, 0)
        now_ms = _now_ms()
        metadata: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "name": name,
            "description": None,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": _text(Schema.from_arrow(schema)),
            "partitionColumns": [],
            "createdTime": now_ms,
            "configuration": {key: value for key, value in configuration.items() if value is not None},
        }
        information = {"timestamp": now_ms, "operation": "CREATE TABLE"}
        Path(root, LOG).mkdir(parents=True, exist_ok=True)
        try:
            _make(Path(root, LOG), 0, [{"commitInfo": information}, {"protocol": PROTOCOL}, {"metaData": metadata}])
        except FileExistsError as error:
            raise DeltaError(f"there is a table at {root}") from error
        cls.instant("committed", root, 0)
        return cls(root)

    def version(self) -> int:
        """Return the version that is open."""
        return self._state.version

    def metadata(self) -> Metadata:
        """Return the table's metadata."""
        return Metadata(self._state.metadata.get("name"))

    def schema(self) -> Schema:
        """Return the table's schema."""
        if self._schema is None:
            self._schema = Schema.from_json(self._state.metadata["schemaString"])
        return self._schema

    def transaction_version(self, application: str) -> int | None:
        """Return the version of an application's last transaction; None if it has none."""
        return self._state.transactions.get(application)

    def update_incremental(self) -> None:
        """Go on to the newest version."""
        while (self._log / _name(self._state.version + 1)).exists():
            self._advance(self._state.version + 1)

    def create_write_transaction(
        self,
        actions: Sequence[AddAction | RemoveAction],
        mode: str,
        schema: Schema,
        *,
        commit_properties: CommitProperties,
        post_commithook_properties: PostCommitHookProperties,
    ) -> None:
        """Commit actions; this table stays at its version until it is updated.

        Raises
        ------
        CommitFailedError
            If another writer has committed since what cannot stand beside it.
        """
        information = {
            "timestamp": _now_ms(),
            "operation": "WRITE",
            "operationParameters": {"mode": mode.capitalize(), "partitionBy": "[]"},
            **(commit_properties.custom_metadata or {}),
        }
        transactions = {each.app_id: each.version for each in commit_properties.app_transactions or ()}
        lines = [
            {"commitInfo": information},
            *map(_entry, actions),
            *({"txn": {"appId": name, "version": version}} for name, version in transactions.items()),
        ]
        self._commit(lines)

    @property
    def alter(self) -> Alteration:
        """What alters the table."""
        return Alteration(self)

    def add_columns(self, columns: Sequence[Field]) -> None:
        """Commit a schema with further columns."""
        schema = Schema([*self.schema().fields, *columns])
        metadata = {**self._state.metadata, "schemaString": _text(schema)}
        self._commit([{"commitInfo": {"timestamp": _now_ms(), "operation": "ADD COLUMN"}}, {"metaData": metadata}])
        self.update_incremental()

    def get_add_actions(self, *, flatten: bool) -> pa.Table:
        """Return the files of the table, with their statistics."""
        assert flatten
        if self._actions is None or self._actions[0] != self._state.version:
            fields = list(pa.schema(self.schema().to_arrow()))
            columns = {
                "path": pa.string(),
                "size_bytes": pa.int64(),
                "modification_time": pa.int64(),
                "num_records": pa.int64(),
                **{f"null_count.{each.name}": pa.int64() for each in fields},
                **{f"{bound}.{each.name}": each.type for bound in ("min", "max") for each in fields},
            }
            rows = [_with_statistics(entry) for entry in self._state.files.values()]
            table = pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in columns.items()})
            self._actions = self._state.version, table
        return self._actions[1]

    def to_pyarrow_dataset(self) -> pads.Dataset:
        """Return the rows of the table."""
        return pads.FileSystemDataset.from_paths(
            [f"{self._root}/{path}" for path in self._state.files],
            schema=pa.schema(self.schema().to_arrow()),
            format=pads.ParquetFileFormat(),
            filesystem=pa.fs.LocalFileSystem(),
        )

    def to_pyarrow_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of the table, in memory."""
        return self.to_pyarrow_dataset().to_table(columns=None if columns is None else list(columns))

    def create_checkpoint(self) -> None:
        """Write a checkpoint of the version that is open."""
        self.instant("checkpointing", self._root, self._state.version)
        state = self._state
        lines = [
            *({"add": {**entry, "partitionValues": []}} for entry in state.files.values()),
            *({"remove": entry} for entry in state.removed.values()),
            *({"txn": {"appId": name, "version": version}} for name, version in state.transactions.items()),
            {"protocol": PROTOCOL},
            {"metaData": _as_maps(state.metadata)},
        ]
        path = self._log / f"{state.version:020d}.checkpoint.parquet"
        pq.write_table(pa.Table.from_pylist(lines, CHECKPOINT), path)
        named = {"version": state.version, "size": len(lines)}
        (self._log / "_last_checkpoint").write_bytes(_json.encode(named))

    def vacuum(self, *, retention_hours: int, dry_run: bool, enforce_retention_duration: bool) -> list[str]:
        """Return the files that were removed from the table so long ago."""
        assert dry_run
        assert not enforce_retention_duration
        before_ms = _now_ms() - retention_hours * HOUR_MS
        return [path for path, entry in self._state.removed.items() if entry["deletionTimestamp"] <= before_ms]

    def _commit(self, lines: Sequence[Mapping[str, Any]]) -> None:
        version, expected = self._state.version + 1, self._state.transactions
        self.instant("committing", self._root, version)
        while True:
            try:
                _make(self._log, version, lines)
                break
            except FileExistsError:
                _check_conflict(lines, _read(self._log / _name(version)), expected)
                version += 1
        self.instant("committed", self._root, version)

    def _advance(self, version: int) -> None:
        actions = _read(self._log / _name(version))
        self._state.apply(actions)
        if any("metaData" in action for action in actions):
            self._schema = None

    def _load(self, version: int) -> None:
        path = self._log / f"{version:020d}.checkpoint.parquet"
        try:
            rows = pq.read_table(path).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise DeltaError(f"checkpoint {path} cannot be read: {error}") from error
        for row in rows:
            if (metadata := row.get("metaData")) is not None:
                # As commits have them; Arrow returns maps as lists of pairs.
                metadata["configuration"] = dict(metadata["configuration"])
                metadata["format"]["options"] = dict(metadata["format"]["options"])
        self._state.apply({kind: each for kind, each in row.items() if each is not None} for row in rows)
        self._state.version = version


@dataclass(frozen=True)
class Alteration:
    """What alters a table."""

    table: DeltaLog

    def add_columns(self, fields: Sequence[Field], *, post_commithook_properties: PostCommitHookProperties) -> None:
        """Add columns to it."""
        self.table.add_columns(fields)


def _check_conflict(
    own: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]], expected: Mapping[str, int]
) -> None:
    """Raise if a commit cannot stand behind one that came first."""
    applications = {each["txn"]["appId"] for each in own if "txn" in each}
    removed = {each["remove"]["path"] for each in own if "remove" in each}
    for each in other:
        if "txn" in each and each["txn"]["appId"] in applications:
            raise CommitFailedError(f"concurrent transaction of {each['txn']['appId']}, after {expected}")
        if "metaData" in each:
            raise CommitFailedError("the metadata changed since")
        if "remove" in each and each["remove"]["path"] in removed:
            raise CommitFailedError(f"{each['remove']['path']} was removed since")


def _make(log: Path, version: int, lines: Sequence[Mapping[str, Any]]) -> None:
    """Make a commit, unless there is one of this version.

    Raises
    ------
    FileExistsError
        If there is.
    DeltaError
        If it cannot be written.
    """
    content = b"\n".join(_json.encode(line) for line in lines) + b"\n"
    try:
        handle = os.open(log / _name(version), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(handle, content)
        finally:
            os.close(handle)
    except FileExistsError:
        raise
    except OSError as error:
        raise DeltaError(f"commit {version} cannot be written: {error}") from error


def _entry(action: AddAction | RemoveAction) -> dict[str, Any]:
    if isinstance(action, AddAction):
        return {
            "add": {
                "path": action.path,
                "partitionValues": {},
                "size": action.size,
                "modificationTime": action.modification_time,
                "dataChange": action.data_change,
                "stats": action.stats,
            }
        }
    return {
        "remove": {
            "path": action.path,
            "dataChange": action.data_change,
            "deletionTimestamp": action.deletion_timestamp,
        }
    }


def _with_statistics(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a file as :meth:`DeltaLog.get_add_actions` has it; its statistics are decoded once."""
    known = _entries.get(entry["path"])
    if known is not None and known[0] is entry:
        return known[1]
    statistics = _json.decode(entry["stats"]) if entry.get("stats") else {}
    row = {
        "path": entry["path"],
        "size_bytes": entry["size"],
        "modification_time": entry["modificationTime"],
        "num_records": statistics.get("numRecords"),
    }
    for prefix, name in (("null_count", "nullCount"), ("min", "minValues"), ("max", "maxValues")):
        row |= {f"{prefix}.{column}": value for column, value in statistics.get(name, {}).items()}
    _entries[entry["path"]] = entry, row
    return row


_entries: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {}
"""By path of a data file, whose name no other has: its entry and what was made of it."""


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        return [_json.decode(line) for line in path.read_bytes().splitlines() if line]
    except (OSError, msgspec.DecodeError) as error:
        raise DeltaError(f"commit {path} cannot be read: {error}") from error


def _versions(log: Path) -> tuple[set[int], set[int]]:
    """Return the versions of the commits and checkpoints in a log."""
    commits, checkpoints = set(), set()
    for name in os.listdir(log) if log.is_dir() else ():  # noqa: PTH208 - quicker, and names are enough
        number, _, ending = name.partition(".")
        if number.isdigit():
            if ending == "json":
                commits.add(int(number))
            elif ending == "checkpoint.parquet":
                checkpoints.add(int(number))
    return commits, checkpoints


def _name(version: int) -> str:
    return f"{version:020d}.json"


def _text(schema: Schema) -> str:
    """Return a schema as JSON, always the same: deltalake gives a column's metadata in any order."""
    return _json.encode(_json.decode(schema.to_json()), order="sorted").decode()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _as_maps(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as Arrow takes it: its maps as lists of pairs."""
    configuration = list(metadata["configuration"].items())
    return {**metadata, "format": {"provider": "parquet", "options": []}, "configuration": configuration}


_TEXTS = pa.map_(pa.string(), pa.string())
CHECKPOINT = pa.schema(
    {
        "add": pa.struct(
            [
                pa.field("path", pa.string(), nullable=False),
                pa.field("partitionValues", _TEXTS, nullable=False),
                pa.field("size", pa.int64(), nullable=False),
                pa.field("modificationTime", pa.int64(), nullable=False),
                pa.field("dataChange", pa.bool_(), nullable=False),
                pa.field("stats", pa.string()),
            ]
        ),
        "remove": pa.struct(
            [
                pa.field("path", pa.string(), nullable=False),
                pa.field("deletionTimestamp", pa.int64()),
                pa.field("dataChange", pa.bool_(), nullable=False),
            ]
        ),
        "metaData": pa.struct(
            [
                pa.field("id", pa.string(), nullable=False),
                pa.field("name", pa.string()),
                pa.field("description", pa.string()),
                pa.field(
                    "format",
                    pa.struct(
                        [
                            pa.field("provider", pa.string(), nullable=False),
                            pa.field("options", _TEXTS, nullable=False),
                        ]
                    ),
                    nullable=False,
                ),
                pa.field("schemaString", pa.string(), nullable=False),
                pa.field("partitionColumns", pa.list_(pa.string()), nullable=False),
                pa.field("createdTime", pa.int64()),
                pa.field("configuration", _TEXTS, nullable=False),
            ]
        ),
        "protocol": pa.struct(
            [
                pa.field("minReaderVersion", pa.int32(), nullable=False),
                pa.field("minWriterVersion", pa.int32(), nullable=False),
            ]
        ),
        "txn": pa.struct(
            [pa.field("appId", pa.string(), nullable=False), pa.field("version", pa.int64(), nullable=False)]
        ),
    }
)
"""The columns of a checkpoint."""
