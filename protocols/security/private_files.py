"""Files that are written whole or not at all, never overwritten unasked, and readable by their owner only if secret.

What a part keeps on its disk is for its user only, too: samples, answers, logs, and frames that were refused.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from protocols.event_log import get_logger
from protocols.security.errors import SecurityError

SECRET, PUBLIC = 0o600, 0o644
FOLDER = 0o700
LINK_HINT = "put the file itself there, or remove the link; a folder may be a link"
"""What to do about a link in place of a file."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write_file(file: Path, content: bytes, *, mode: int, overwrite: bool = False) -> None:
    """Write a file; other processes see all of it, or what was there before.

    Parameters
    ----------
    file, content
        What is written where; the folder is made, for its owner only, if there is none.
    mode
        ``SECRET`` or ``PUBLIC``.
    overwrite
        Whether it may be there already.

    Raises
    ------
    SecurityError
        If the file is there and must not be overwritten, or cannot be written.
    """
    beside = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    try:
        file.parent.mkdir(mode=FOLDER, parents=True, exist_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                os.fchmod(opened.fileno(), mode)  # whatever the umask is
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            if overwrite:
                beside.replace(file)
            else:
                os.link(beside, file)  # fails if the file is there
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
    except OSError as error:
        if isinstance(error, FileExistsError) and file.exists():
            raise SecurityError(f"{file} is there already", hint="it is not overwritten") from error
        raise SecurityError(f"cannot write {file}: {error.strerror}") from error


def keep_private() -> None:
    """Let all files and folders that this process makes from now on, and its children, be for its user only."""
    os.umask(_OTHERS)


def make_private(folder: Path, *, sync: Callable[[Path], object] = lambda _: None) -> None:
    """Make a folder, and those above it that are missing, for their user only; one that is there stays as it is.

    Parameters
    ----------
    folder
        The folder.
    sync
        Called with the one above each folder that was made, for what must outlive a power cut: it has the new name.

    Raises
    ------
    OSError
        If it cannot be made, or `sync` raises it.
    """
    if folder.is_dir():
        return
    make_private(folder.parent, sync=sync)
    folder.mkdir(mode=FOLDER, exist_ok=True)
    sync(folder.parent)


def file_link(folder: Path) -> Path | None:
    """Return a link in a folder, or in one of its folders, that would be written through; None if there is none.

    A folder that came from elsewhere, as from a backup, may have them. Links to folders are followed: an operator may
    keep a part of a folder on another disk.

    Raises
    ------
    OSError
        If a folder cannot be read; one that is missing has no links.
    """
    if not folder.is_dir():
        return None
    with os.scandir(folder) as found:
        entries = list(found)
    for each in entries:
        if each.is_symlink() and not each.is_dir():
            return Path(each.path)
    for each in entries:
        if each.is_dir(follow_symlinks=False):
            with os.scandir(each.path) as inner:
                for entry in inner:
                    if entry.is_symlink() and not entry.is_dir():
                        return Path(entry.path)
    return None


def warn_of_open(path: Path) -> None:
    """Log a folder, as those of earlier versions are, or a file that other users of this machine may read."""
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        if mode & _OTHERS:
            what, wanted = ("folder", FOLDER) if stat.S_ISDIR(mode) else ("file", SECRET)
            get_logger(__name__).warning(
                f"other users of this machine may read a {what}", path=str(path), hint=f"chmod {wanted:o} {path}"
            )
