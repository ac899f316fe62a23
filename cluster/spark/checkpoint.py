"""Spark's own log of micro-batches: synced, corrected where it was moved, repaired where Spark cannot continue.

**Syncs Spark's log of micro-batches and their state, so that they survive a power cut: Spark itself syncs nothing.**

    offsets/7 ── tasks, state/.../8 ── sync ── results of 7 ── commits/7 ── offsets/8 ── ...

If the results of a micro-batch were on disk and its offset were not, another offset would be planned under its number,
and what that reads would count as stored. If an offset or a commit were on disk and the state before it were not, Spark
could not go on.

**Corrects a checkpoint that was moved, or copied to another place: Spark stores full paths of its schemas.**

Stored in ``state/0/_metadata/v2/0``: ``"stateSchemaFilePaths": ["file:/old/state/0/_stateSchema/default/0_da92"]``. The
schema itself has moved with everything else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from cluster.errors import StorageError
from cluster.storage.synced_files import sync, write_whole
from protocols.event_log import get_logger

log = get_logger(__name__)

OFFSETS, COMMITS = LOGS = ("offsets", "commits")
PARTS = (*LOGS, "state", "sources")


def discard_unstarted(checkpoint: Path) -> bool:
    """Remove what is left of a first micro-batch that was never logged; return whether there was anything.

    A process killed while Spark writes its first log entry leaves a temporary file, and Spark then refuses to begin:
    its log must be empty at micro-batch 0. As nothing was logged, nothing was done, and nothing is lost.
    """
    if not checkpoint.is_dir() or any(_entries(checkpoint / log) for log in LOGS):
        return False
    left = [checkpoint / part for part in PARTS if (checkpoint / part).is_dir() and any((checkpoint / part).iterdir())]
    if left:
        for part in PARTS:
            shutil.rmtree(checkpoint / part, ignore_errors=True)
    return bool(left)


def discard_truncated(checkpoint: Path, stored: Callable[[int], bool]) -> None:
    """Remove what a power cut may have left half written of the last micro-batch, which is then run again.

    Nothing came of it: what a micro-batch has written is synced before its results are stored, and before the next one
    is logged.

    Parameters
    ----------
    checkpoint
        The folder; there need not be one.
    stored
        Returns whether there are results of a micro-batch.

    Raises
    ------
    StorageError
        If the last offset is damaged, though there are results of it. Planned again, the micro-batch would have another
        end, and what lies between the two would count as answered.
    OSError
        If something cannot be read, removed or synced.
    """
    metadata = checkpoint / "metadata"
    if metadata.exists() and not _is_json([metadata.read_bytes()]):
        metadata.unlink()
    for name, is_whole in ((OFFSETS, _is_offset), (COMMITS, _is_commit)):
        newest = max(_entries(checkpoint / name), key=_number, default=None)
        if newest is not None and not is_whole(newest):
            if name == OFFSETS and stored(_number(newest)):
                raise StorageError(
                    f"{newest} is damaged, though the results of its micro-batch are stored",
                    hint="restore the data folder from a copy, or choose another --data",
                )
            log.warning("an entry of Spark's log that was cut off is removed", entry=str(newest))
            newest.unlink()
            if name == OFFSETS:
                (checkpoint / COMMITS / newest.name).unlink(missing_ok=True)  # Spark makes each only once
    offsets = sorted(_entries(checkpoint / OFFSETS), key=_number)
    if [offset.name for offset in offsets] == ["0"] and not _entries(checkpoint / COMMITS) and not stored(0):
        # What Spark writes only once, before the first micro-batch, may be cut off as well.
        offsets.pop().unlink()
    # What is run again from it may be stored already, so that no other may take its place.
    sync(offsets[-1:], anew=True)
    if len(offsets) > 1:
        # With the one before the last, everything was synced that was there.
        _forget_snapshots(checkpoint / "state", offsets[-2].stat().st_mtime_ns)


def _forget_snapshots(state: Path, after_ns: int) -> None:
    """Remove snapshots that Spark can rebuild from older ones and the changes since, which it keeps for long."""
    for partition in state.glob("*/*"):
        # The oldest stays in any case: without any, Spark cannot load what has changed since.
        for snapshot in sorted(partition.glob("*.zip"), key=lambda path: int(path.stem.partition("_")[0]))[1:]:
            if snapshot.stat().st_mtime_ns >= after_ns:
                snapshot.unlink()


def has_begun(checkpoint: Path) -> bool:
    """Return whether a Spark query has logged a micro-batch in a folder."""
    return any(_entries(checkpoint / OFFSETS))


def newest_versions(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield streams and the versions of their tables up to which the Spark queries below a folder have logged them."""
    for offset in _newest_offsets(folder):
        yield from offset.versions.items()


def newest_epochs(folder: Path) -> Iterator[int]:
    """Yield the epochs that the Spark queries below a folder have logged last."""
    for offset in _newest_offsets(folder):
        yield offset.epoch


class _Offset(msgspec.Struct):
    epoch: int = 0
    versions: dict[str, int] = {}


def _newest_offsets(folder: Path) -> Iterator[_Offset]:
    for log_ in folder.glob(f"*/{OFFSETS}"):
        newest = max(_entries(log_), key=_number, default=None)
        offset = None if newest is None else _offset_in(newest)
        if offset is not None:
            yield offset


def _offset_in(entry: Path) -> _Offset | None:
    """Return the offset in an entry of the log of offsets; None if it is damaged."""
    if not _is_whole(entry, 3):
        return None
    try:
        return msgspec.json.decode(entry.read_bytes().split(b"\n")[2], type=_Offset)
    except msgspec.ValidationError:
        return None


def _is_offset(entry: Path) -> bool:
    return _offset_in(entry) is not None


def _is_commit(entry: Path) -> bool:
    return _is_whole(entry, 2)


def _entries(log: Path) -> list[Path]:
    """Return the entries of a log: files named by the number of a micro-batch."""
    return [path for path in log.iterdir() if path.name.isdigit()] if log.is_dir() else []


def _number(entry: Path) -> int:
    return int(entry.name)


def _is_whole(entry: Path, lines: int) -> bool:
    """Return whether an entry has so many lines: its format's version, then JSON."""
    found = entry.read_bytes().split(b"\n")
    return len(found) >= lines and found[0].startswith(b"v") and _is_json(found[1:])


def _is_json(texts: Iterable[bytes]) -> bool:
    try:
        for text in texts:
            msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


_Seen = tuple[int, int]
"""When a file was changed last, and its size."""


class CheckpointFiles:
    """The files of a checkpoint, and which of them are on disk.

    Parameters
    ----------
    folder
        The checkpoint of one of the two Spark queries; it may not be there yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced: dict[Path, _Seen] = {}

    def sync(self) -> None:
        """Sync what has been written since the last time; on return it is on disk.

        Raises
        ------
        OSError
            If something cannot be synced.
        """
        found = dict(_folder_entries(self._folder)) if self._folder.is_dir() else {}
        new = [path for path, seen in found.items() if self._synced.get(path) != seen]
        sync((path for path in new if not path.is_dir()), missing_ok=True)
        sync((path.parent for path in new), missing_ok=True)
        if self._folder in new:  # Spark has made it, and the folder of both checkpoints
            sync([self._folder.parent.parent])
        self._synced = found


def _folder_entries(folder: Path) -> Iterator[tuple[Path, _Seen]]:
    """Yield a folder and everything below it, except files that are being written."""
    yield folder, (0, 0)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _folder_entries(Path(entry.path))
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:  # Spark removes what is old
                continue
            yield Path(entry.path), (status.st_mtime_ns, status.st_size)


_SCHEMAS = "_stateSchema"
_PATHS, _STORES = "stateSchemaFilePaths", "stateStoreInfo"


def relocate_checkpoint(checkpoint: Path) -> None:
    """Correct the paths stored in a checkpoint, if it is not where it was written.

    Parameters
    ----------
    checkpoint
        Its folder; there need not be one.

    Raises
    ------
    OSError
        If something cannot be read or written; then it is as it was.
    """
    for stored in checkpoint.glob("state/*/_metadata/v2/*"):
        if not stored.name.isdigit():
            continue
        before = stored.read_bytes()
        operator = stored.parents[2]
        after = corrected(before, f"file:{operator.resolve()}")
        if after != before:
            log.warning("the data folder was moved: paths that Spark has stored are corrected", operator=str(operator))
            stored.with_name(f".{stored.name}.crc").unlink(missing_ok=True)  # of what was there
            write_whole(stored, after)


def corrected(content: bytes, operator: str) -> bytes:
    r"""Return what Spark stores of a stateful operator, with the path where its folder is now.

    What cannot be read is returned as it is: Spark raises an error about it.

    >>> stored = b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/a/state/0/_stateSchema/default/0_da"]}]}'
    >>> corrected(stored, "file:/b/state/0")
    b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/b/state/0/_stateSchema/default/0_da"]}]}'
    """
    version, _, text = content.partition(b"\n")
    try:
        found = msgspec.json.decode(text)
        for store in found[_STORES]:
            store[_PATHS] = [_below(operator, path) for path in store[_PATHS]]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return content
    return version + b"\n" + msgspec.json.encode(found)


def _below(operator: str, path: str) -> str:
    _, found, name = path.rpartition(f"/{_SCHEMAS}/")
    return f"{operator}{found}{name}" if found else path
