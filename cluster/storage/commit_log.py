"""Reading single commits of a Delta table: its entries, whether they are complete, and Fjord's metadata in them.

`deltalake` opens tables as a whole; a streaming source needs the changes *between* two versions, exactly and cheaply.
The commit files are part of the open Delta protocol (newline-separated JSON actions in ``_delta_log``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from cluster.errors import StorageError
from cluster.storage.archived_log import ARCHIVE, LOG, archived_name, is_local
from protocols.wire.batches import START_COLUMN

METADATA_PREFIX = "fjord."
MAX_COMMIT_BYTES = 16 * 1024 * 1024


class AddedFile(msgspec.Struct, frozen=True):
    """A Parquet file that a commit added: path below the table, rows, bytes; first and last stamp, if known."""

    path: str
    rows: int
    bytes: int
    first_us: int | None = None
    last_us: int | None = None


class Commit(msgspec.Struct, frozen=True):
    """One version of a table. ``metadata`` holds the ``fjord.`` entries, without the prefix."""

    version: int
    files: tuple[AddedFile, ...]
    metadata: Mapping[str, str]

    @property
    def rows(self) -> int:
        """Rows this commit added."""
        return sum(file.rows for file in self.files)


class _Add(msgspec.Struct):
    path: str
    size: int = 0
    dataChange: bool = True  # noqa: N815 - the Delta protocol's spelling
    stats: str | None = None


class _Stamps(msgspec.Struct, frozen=True):
    start_us: int | None = msgspec.field(name=START_COLUMN, default=None)


class _Stats(msgspec.Struct):
    numRecords: int = 0  # noqa: N815 - the Delta protocol's spelling
    minValues: _Stamps = _Stamps()  # noqa: N815
    maxValues: _Stamps = _Stamps()  # noqa: N815


class _Action(msgspec.Struct):
    add: _Add | None = None
    commitInfo: dict[str, object] | None = None  # noqa: N815 - the Delta protocol's spelling


_actions = msgspec.json.Decoder(_Action)
_stats = msgspec.json.Decoder(_Stats)


class CommitLog:
    """The commits of one table, read one at a time.

    Parameters
    ----------
    table
        Path or URI of the table.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._files, root = open_files(table)
        self._root = PurePosixPath(root)

    def exists(self, version: int) -> bool:
        """Return whether `version` has been committed."""
        return any(self._files.get_file_info(str(path)).type == fs.FileType.File for path in self._paths(version))

    def first_from(self, version: int) -> int | None:
        """Return the oldest version at or after `version` with a commit in the log; None if there is none."""
        places = [fs.FileSelector(str(self._root / LOG), allow_not_found=True)]
        if is_local(self._table):
            places.append(fs.FileSelector(str(self._root / ARCHIVE), allow_not_found=True, recursive=True))
        names = (PurePosixPath(entry.path) for place in places for entry in self._files.get_file_info(place))
        found = (int(name.stem) for name in names if name.suffix == ".json" and name.stem.isdigit())
        return min((each for each in found if each >= version), default=None)

    def latest(self, known: int) -> int:
        """Return the newest version at or after `known`; looks ahead one version at a time, so keep `known` fresh."""
        version = known
        while self.exists(version + 1):
            version += 1
        return version

    def read(self, version: int) -> Commit:
        """Return one commit.

        Files that only rearrange rows of earlier versions (compaction) are left out.

        Raises
        ------
        StorageError
            If the commit is missing or cannot be read.
        """
        raw = self._raw(version)
        if len(raw) > MAX_COMMIT_BYTES:
            raise StorageError(f"commit {version} of table {self._table} is larger than {MAX_COMMIT_BYTES:,} bytes")
        files: list[AddedFile] = []
        metadata: dict[str, str] = {}
        try:
            for action in (_actions.decode(line) for line in raw.splitlines() if line):
                if action.add is not None and action.add.dataChange:
                    files.append(_added_file(action.add))
                if action.commitInfo is not None:
                    metadata = {
                        key.removeprefix(METADATA_PREFIX): str(value)
                        for key, value in action.commitInfo.items()
                        if key.startswith(METADATA_PREFIX)
                    }
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StorageError(f"commit {version} of table {self._table} is not a Delta commit: {error}") from error
        return Commit(version, tuple(files), metadata)

    def committed_at(self, version: int) -> float:
        """Return when a version was committed, in seconds since 1970.

        Raises
        ------
        StorageError
            If the commit is missing, or has no time.
        """
        for action in (_actions.decode(line) for line in self._raw(version).splitlines() if line):
            stamp = None if action.commitInfo is None else action.commitInfo.get("timestamp")
            if isinstance(stamp, int):
                return stamp / 1_000
        raise StorageError(f"commit {version} of table {self._table} does not say when it was made")

    def metadata_at(self, version: int, key: str) -> str | None:
        """Return the value of `key` at `version`: that of the newest commit up to it that sets the key."""
        for candidate in range(version, -1, -1):
            if not self.exists(candidate):
                return None
            found = self.read(candidate).metadata.get(key)
            if found is not None:
                return found
        return None

    def _raw(self, version: int) -> bytes:
        *others, last = self._paths(version)
        for path in others:
            with contextlib.suppress(FileNotFoundError):
                return self._content(path)
        try:
            return self._content(last)
        except OSError as error:
            raise StorageError(
                f"version {version} of table {self._table} cannot be read: {error}",
                hint="commits are kept for a day: did the engine stand still for longer?",
            ) from error

    def _content(self, path: PurePosixPath) -> bytes:
        with self._files.open_input_stream(str(path)) as stream:
            return bytes(stream.read(MAX_COMMIT_BYTES + 1))

    def _paths(self, version: int) -> tuple[PurePosixPath, ...]:
        """Return the possible places of a commit; it moves from the first to the second."""
        log = self._root / LOG / f"{version:020d}.json"
        return (log, self._root / archived_name(version)) if is_local(self._table) else (log,)


def _added_file(add: _Add) -> AddedFile:
    stats = _stats.decode(add.stats) if add.stats else _Stats()
    first_us, last_us = stats.minValues.start_us, stats.maxValues.start_us
    return AddedFile(unquote(add.path), stats.numRecords, add.size, first_us, last_us)


def open_files(table: str) -> tuple[fs.FileSystem, str]:
    """Return the place of a table: a file system, and the path of its folder there."""
    if "://" in table:
        files, root = fs.FileSystem.from_uri(table)
        return files, str(root)
    return fs.LocalFileSystem(), table


COMMIT, CHECKPOINT, LAST_CHECKPOINT = ".json", ".checkpoint.parquet", "_last_checkpoint"

LINES = f"{METADATA_PREFIX}lines"
"""The entry of a commit with its number of lines: a commit cut off between two lines would look complete."""


class Transaction(msgspec.Struct):
    """The last version of an application."""

    appId: str  # noqa: N815 - the Delta protocol's spelling
    version: int


class Action(msgspec.Struct):
    """The parts of one line of a commit that Fjord reads."""

    txn: Transaction | None = None
    commitInfo: dict[str, object] | None = None  # noqa: N815 - the Delta protocol's spelling


class _LastCheckpoint(msgspec.Struct):
    version: int


_decode = msgspec.json.Decoder(Action).decode


def numbered(folder: Path, ending: str) -> dict[int, Path]:
    """Return commits or checkpoints in a folder by their version; none if there is no folder."""
    if not folder.is_dir():
        return {}
    entries = {path: path.name.removesuffix(ending) for path in folder.iterdir() if path.name.endswith(ending)}
    return {int(number): path for path, number in entries.items() if number.isdigit()}


def actions_in(commit: Path) -> list[Action]:
    """Return the actions of a commit; none if it is not complete, as every complete commit has some.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    lines = commit.read_bytes().splitlines()
    try:
        actions = [_decode(line) for line in lines]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    lines_noted = [
        str(action.commitInfo[LINES]) for action in actions if action.commitInfo and LINES in action.commitInfo
    ]
    return actions if lines_noted in ([], [str(len(lines))]) else []


def is_readable(checkpoint: Path) -> bool:
    """Return whether a checkpoint can be read completely."""
    try:
        pq.read_table(checkpoint)
    except (pa.ArrowException, OSError):
        return False
    return True


def last_checkpoint(log: Path) -> int | None:
    """Return the checkpoint that a log names as the last; -1 if that cannot be read, None if it names none.

    Raises
    ------
    OSError
        If the file exists, but cannot be read.
    """
    try:
        return msgspec.json.decode((log / LAST_CHECKPOINT).read_bytes(), type=_LastCheckpoint).version
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return -1
