"""The folders of streams and relations, each named after its own; and the batches that dropped streams had stored.

A name of ASCII that begins with a letter or digit is the folder's, as in earlier versions. Any other is written in
base 32 behind ``@``, which no name has: file systems and libraries disagree about letters beyond ASCII, and Hadoop
takes folders that begin with ``_`` for hidden ones. 128 bytes of UTF-8, the longest name, make 206 letters.

**The batches of proxies that a dropped stream had stored.**

Proxies have deleted those batches and go on numbering. If the stream is created again, perhaps with other columns, its
table begins with these numbers; otherwise it would wait for batches that no proxy has any more.
"""

from __future__ import annotations

import contextlib
import re
from base64 import b32hexdecode, b32hexencode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from cluster.errors import StorageError, UnwritableError
from cluster.storage.synced_files import make_folder, rename

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_MARK: Final = "@"
_LETTERS: Final = 8
"""Letters that base 32 pads to."""


def folder_of(stream: str) -> str:
    """Return the name of the folder of a stream's table.

    >>> folder_of("traffic"), folder_of("größe")
    ('traffic', '@ctpc7dm3jtig')
    """
    if _PLAIN.fullmatch(stream):
        return stream
    return _MARK + b32hexencode(stream.encode()).decode().rstrip("=").lower()


def relation_folder(identity: str) -> str:
    """Return the name of the folder of a relation's versions, given its identity, a name and a number.

    >>> relation_folder("places@1")
    'places@1'
    """
    name, mark, number = identity.rpartition(_MARK)
    return f"{folder_of(name)}{mark}{number}" if mark else identity


def stream_of(folder: str) -> str:
    """Return the stream whose table is in a folder.

    Raises
    ------
    StorageError
        If the name of the folder is not one of :func:`folder_of`.
    """
    if not folder.startswith(_MARK):
        return folder
    letters = folder.removeprefix(_MARK).upper()
    try:
        return b32hexdecode(letters + "=" * (-len(letters) % _LETTERS)).decode()
    except ValueError as error:
        raise StorageError(f"no stream has a folder called {folder!r}") from error


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
