"""The batches of proxies that a dropped stream had stored.

Proxies have deleted those batches and go on numbering. If the stream is created again, perhaps with other columns, its
table begins with these numbers; otherwise it would wait for batches that no proxy has any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cluster.errors import StorageError, UnwritableError
from cluster.storage.synced_files import make_folder, rename
from cluster.storage.table_folders import folder_of

FOLDER = ".dropped"
"""Below that of the streams; no stream has such a name."""

Lane = tuple[str, str]
"""A proxy and an epoch of its spool."""


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    proxy: str
    epoch: str
    sequence: int


_decode = msgspec.json.Decoder(tuple[_Stored, ...])


class DroppedStreams:
    """Sequence numbers of streams that have been dropped.

    Parameters
    ----------
    streams
        Folder of the streams' tables.
    """

    def __init__(self, streams: Path) -> None:
        self._folder = streams / FOLDER

    def remember(self, stream: str, sequences: Mapping[Lane, int]) -> None:
        """Note the highest numbers stored; on return they are on disk.

        Raises
        ------
        UnwritableError
            If they cannot be written now.
        """
        path = self._path(stream)
        stored = tuple(_Stored(*lane, sequence) for lane, sequence in sorted(sequences.items()))
        try:
            make_folder(self._folder)
            unfinished = path.with_suffix(".new")
            unfinished.write_bytes(msgspec.json.encode(stored))
            rename(unfinished, path)
        except OSError as error:
            raise UnwritableError(f"what was stored of stream {stream!r}", error) from error

    def recall(self, stream: str) -> Mapping[Lane, int]:
        """Return the highest numbers stored of a stream when it was dropped; empty if it never was.

        Raises
        ------
        StorageError
            If they cannot be read.
        """
        path = self._path(stream)
        try:
            stored = _decode.decode(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StorageError(f"what was stored of dropped stream {stream!r} cannot be read: {error}") from error
        return {(each.proxy, each.epoch): each.sequence for each in stored}

    def forget(self, stream: str) -> None:
        """Remove the numbers when a table has them. If they stay, they do no harm."""
        with contextlib.suppress(OSError):
            self._path(stream).unlink(missing_ok=True)

    def _path(self, stream: str) -> Path:
        return self._folder / f"{folder_of(stream)}.json"
