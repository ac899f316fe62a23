"""Where a data folder belongs, so that a copy of it is noticed before it runs beside its original.

A folder of which two copies run gives the same numbers to different batches, and answers in one name. Its lock does not
tell: each copy has its own. So the folder records which file its lock is, and on which machine::

    recorded          found                     so
    -                 anything                  it is recorded: a new folder, or one of an earlier version
    inode, machine    the same                  go on; path and host are brought up to date, for messages
                      another inode             copied, or restored from a backup: refused, unless it is adopted
                      another machine           its disk was copied, or moved to another machine: likewise
    cannot be read                              recorded anew: a folder must not be lost for that

A folder that is renamed keeps its inode. Names of hosts decide nothing: each container has another one. Most containers
have no identity of their machine, and then the inode alone decides (docs/decisions/0085-a-data-folder-has-one-home.md).
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from protocols.event_log import get_logger

log = get_logger(__name__)

HOME: Final = "home.json"
MACHINE_ID: Final = Path("/etc/machine-id")
"""The identity of an installation of Linux; see machine-id(5)."""
_MOST_BYTES: Final = 64 * 1024


class Home(msgspec.Struct, frozen=True):
    """Where a data folder is.

    Parameters
    ----------
    inode
        Number of its lock file: a copy has another one.
    machine
        Identity of the machine; None for unknown.
    path, host
        For messages only.
    """

    inode: int
    machine: str | None
    path: str
    host: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A folder that is not where it was used last.

    Parameters
    ----------
    before
        Where it was used last.
    by
        What has changed: its lock file, or the machine.
    """

    before: Home
    by: str

    def described(self, folder: Path) -> str:
        """Return what is wrong with a folder, as a sentence."""
        return (
            f"the data folder {folder} was copied or moved: it was last used as {self.before.host}:{self.before.path} "
            f"({self.by} has changed). If that one runs, too, both send under one name and lose data of each other; "
            "if it was restored from a backup, it may be older than what was sent"
        )

    @property
    def hint(self) -> str:
        """What to do."""
        return (
            "if nothing runs on the original any more, start once with --adopt, and this is its new place; if both are "
            "to run, give this one a --name and a fresh --data of its own"
        )


def moved(before: Home | None, now: Home) -> Moved | None:
    """Decide whether a folder is a copy, or on another machine; None for neither, or if it is not known."""
    if before is None:
        return None
    if before.inode != now.inode:
        return Moved(before, "its lock file")
    if None not in {before.machine, now.machine} and before.machine != now.machine:
        return Moved(before, "the machine")
    return None


def settle(folder: Path, lock: int, *, adopt: bool, machine_id: Path = MACHINE_ID) -> Moved | None:
    """Record where a locked folder is, unless it has been moved; return that it has, and change nothing then.

    Parameters
    ----------
    folder, lock
        The folder, and the descriptor of its lock file.
    adopt
        Whether it belongs here from now on, wherever it was.
    machine_id
        The file with the identity of this machine.
    """
    before = _recorded(folder)
    now = Home(os.fstat(lock).st_ino, _machine(machine_id), str(folder.resolve()), socket.gethostname())
    found = moved(before, now)
    if found is not None and not adopt:
        return found
    if found is None and before is not None and now.machine is None:
        now = msgspec.structs.replace(now, machine=before.machine)  # it runs in a container now
    if found is not None:
        log.warning("the data folder was adopted", folder=str(folder), host=found.before.host, path=found.before.path)
    if now != before:
        _record(folder, now)
    return None


def _recorded(folder: Path) -> Home | None:
    try:
        with (folder / HOME).open("rb") as file:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=Home)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("where the data folder belongs cannot be read", file=str(folder / HOME), error=str(error))
        return None


def _record(folder: Path, home: Home) -> None:
    """Write whole or not at all. On a full disk the folder is used all the same: it goes on where it was."""
    draft = folder / f"{HOME}.new"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(home))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / HOME)
    except OSError as error:
        log.warning("where the data folder belongs could not be recorded", folder=str(folder), error=str(error))


def _machine(file: Path) -> str | None:
    """Return the identity of this machine; None if there is none, or it is not drawn yet."""
    try:
        found = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return found if found and found != "uninitialized" else None
