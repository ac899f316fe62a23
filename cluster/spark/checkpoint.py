"""Repairs Spark's own log of micro-batches where Spark itself cannot continue."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from cluster.errors import StorageError
from cluster.storage.synced_files import sync
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
    is logged (:mod:`cluster.spark.checkpoint_files`).

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
