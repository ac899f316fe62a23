"""Which files relations may read: those below allowed folders, and never the cluster's own.

A path is followed to where it really is, through links and `..`, each time that it is read: a link may have been
changed meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cluster.language.errors import masked
from cluster.relations.source import SourceAwayError, SourceRefusedError

OF_PROCESSES: Final = (Path("/proc"), Path("/sys"), Path("/dev"))
"""What the system shows of processes, with their environment, and devices: no tables."""
KEYS: Final = frozenset({".key", ".keys"})
"""Endings of files with keys, as `fjord security` makes them: no tables either, wherever they are."""
HINT: Final = "name the folder with `fjord cluster --relation-folder`, or put the file where the cluster was started"


class AllowedFiles:
    """The files that relations may read.

    Parameters
    ----------
    folders
        Files below them may be read, but for files and folders whose names begin with a dot, such as keys and settings
        of the user, and files of keys; a folder that is itself below such a one may be named.
    never
        Files and folders that may not be read, wherever they are: the cluster's data, its tokens and credentials.
    """

    def __init__(self, folders: Iterable[Path] = (), *, never: Iterable[Path] = ()) -> None:
        self.folders = tuple(dict.fromkeys(folder.resolve() for folder in folders))
        self._never = (*never, *OF_PROCESSES)

    def file(self, path: Path) -> Path:
        """Return where a file really is; it need not exist.

        Raises
        ------
        SourceRefusedError
            If relations may not read it, it is something else than a file, or it may be one of another folder, under a
            second name, that not all users may read.
        """
        found = self._place(path)
        if _is_there(found) and not found.is_file():
            raise SourceRefusedError(f"{_shown(path)} is not a file")
        if may_be_of_elsewhere(found):
            raise SourceRefusedError(
                f"{_shown(path)} has a second name, and not all users may read it",
                hint="copy it, or let all users read it",
            )
        return found

    def folder(self, path: Path) -> Path:
        """Return where a folder really is; errors are those of :meth:`file`."""
        found = self._place(path)
        if _is_there(found) and not found.is_dir():
            raise SourceRefusedError(f"{_shown(path)} is not a folder")
        return found

    @contextmanager
    def reading(self, path: Path) -> Iterator[Path]:
        """Give the place of a file while it is read; errors are those of :meth:`file`.

        Raises
        ------
        SourceAwayError
            If the path leads to another file after it was read.
        """
        found = self.file(path)
        yield found
        if self.file(path) != found:
            raise SourceAwayError(f"{_shown(path)} was replaced while it was read")

    def _place(self, path: Path) -> Path:
        try:
            found = path.resolve()
        except (OSError, RuntimeError, ValueError):  # links in a circle, names too long or with a zero
            raise SourceRefusedError(f"{_shown(path)} is not the name of a file") from None
        if not any(_is_open(found, folder) for folder in self.folders):
            raise SourceRefusedError(f"{_shown(path)} is outside of the folders that relations may read", hint=HINT)
        if found.suffix in KEYS or any(_leads_into(found, each) for each in self._never):
            raise SourceRefusedError(f"{_shown(path)} belongs to the cluster or the system, not to relations")
        return found


def may_be_of_elsewhere(place: Path) -> bool:
    """Return whether a file has a second name (a hard link), which may be in a closed folder, and is not open to all.

    Whatever may write into an allowed folder can give a file another name there without being able to read it. What all
    users may read is no secret to what reaches it.
    """
    try:
        state = place.stat()
    except OSError:
        return False
    return stat.S_ISREG(state.st_mode) and state.st_nlink > 1 and not state.st_mode & stat.S_IROTH


def _is_there(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:  # a name too long for the disk, a folder that may not be entered
        return False


def _is_open(found: Path, folder: Path) -> bool:
    return found.is_relative_to(folder) and not any(part.startswith(".") for part in found.relative_to(folder).parts)


def _leads_into(found: Path, closed: Path) -> bool:
    """Return whether a place is one that is closed, or below it, even if the disk gives it another name."""
    if found.is_relative_to(closed.resolve()):
        return True
    try:
        state = closed.stat()
    except OSError:
        return False
    return any(_is_same(each, state) for each in (found, *found.parents))


def _is_same(path: Path, state: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), state)
    except OSError:
        return False


def _shown(path: Path) -> str:
    return masked(str(path)[:200])
