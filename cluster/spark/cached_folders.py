"""Folders of links to parts of other folders, made once for all processes that need the same one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path


def cached_folder(cache: Path, kind: str, contents: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder with the given contents; create it if it does not exist.

    It appears at once and complete, so that many processes may make it at the same time.

    Parameters
    ----------
    cache
        Where such folders are.
    kind
        What its name begins with; the rest is a digest.
    contents
        Distinguishes the folder from others of its kind.
    fill
        Puts the contents into a new folder.
    """
    wanted = cache / f"{kind}-{hashlib.sha256(contents.encode()).hexdigest()[:16]}"
    if wanted.exists():
        return wanted
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=cache))
    try:
        fill(draft)
        with contextlib.suppress(OSError):  # another process was first, with the same contents
            draft.rename(wanted)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return wanted


def link_entries(source: Path, folder: Path, *, without: Collection[str] = ()) -> None:
    """Make links in a folder to all entries of another one except some names."""
    folder.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry.name not in without:
            (folder / entry.name).symlink_to(entry)


def cache_folder(variables: Mapping[str, str]) -> Path:
    """Return a folder that only this user writes to."""
    base = variables.get("XDG_CACHE_HOME") or (Path(variables["HOME"]) / ".cache" if variables.get("HOME") else None)
    if base is not None:
        folder = Path(base) / "fjord"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    folder = Path(tempfile.gettempdir()) / f"fjord-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        # Another user could have put a program there for us to run.
        return Path(tempfile.mkdtemp(prefix="fjord-"))
    return folder
