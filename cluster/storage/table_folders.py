"""The folders of streams and relations: each is named after its own, whatever letters the name has.

A name of ASCII that begins with a letter or digit is the folder's, as in earlier versions. Any other is written in
base 32 behind ``@``, which no name has: file systems and libraries disagree about letters beyond ASCII, and Hadoop
takes folders that begin with ``_`` for hidden ones. 128 bytes of UTF-8, the longest name, make 206 letters.
"""

from __future__ import annotations

import re
from base64 import b32hexdecode, b32hexencode
from typing import Final

from cluster.errors import StorageError

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
