"""Repairing a table whose log was damaged by a power cut, or by a process that ended while it made the table.

**Removing entries from a table's log that a power cut left incomplete, before the table is opened.**

Nothing relied on these entries: a commit is synced before anything relies on it, and before the next one is made; a
checkpoint is synced before the commits that it replaces are moved away.

Damaged files are kept beside the log, under another name, and versions keep their numbers: a reader goes on at the
version that it has reached. A table that cannot be repaired is set aside as a whole, so that it can be made anew.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import StorageError
from cluster.storage.archived_log import ARCHIVE, LOG, is_local
from cluster.storage.commit_log import (
    CHECKPOINT,
    COMMIT,
    LAST_CHECKPOINT,
    Action,
    actions_in,
    is_readable,
    last_checkpoint,
    numbered,
)
from cluster.storage.delta_tables import created
from cluster.storage.synced_files import sync
from protocols.event_log import get_logger

log = get_logger(__name__)


def repair_log(root: str) -> None:
    """Remove the newest commit and checkpoints of a table if they are incomplete; then sync the rest of the log.

    Parameters
    ----------
    root
        Folder (or URI) of a table, which need not exist.

    Raises
    ------
    OSError
        If the log cannot be read or synced.
    """
    folder = Path(root, LOG)
    if not is_local(root) or not folder.is_dir():
        return
    _mend_checkpoints(folder)
    newest = max(numbered(folder, COMMIT).values(), default=None)
    if newest is not None and not actions_in(newest):
        log.warning("a commit that was cut off is removed", commit=str(newest))
        newest.unlink()
        newest = None
    # A process that was killed may have made a commit and not synced it, or failed to; now it counts.
    sync([newest] if newest is not None else [], anew=True)
    sync([folder, folder.parent])


def _mend_checkpoints(folder: Path) -> None:
    for checkpoint in sorted(numbered(folder, CHECKPOINT).values()):
        if checkpoint.is_file() and not is_readable(checkpoint):
            log.warning("a checkpoint that was cut off is removed", checkpoint=str(checkpoint))
            checkpoint.unlink()
    named = last_checkpoint(folder)
    if named is not None and not (folder / f"{named:020d}{CHECKPOINT}").is_file():
        (folder / LAST_CHECKPOINT).unlink()  # then the existing checkpoints are searched for


DAMAGED = "_fjord_damaged"
"""Below a table: the damaged files in place of which commits and checkpoints were repaired."""
ASIDE = ".damaged"
"""Below the folder of tables: those that could not be repaired; no stream has such a name."""
LOST_COMMIT = b'{"commitInfo":{"operation":"LOST"}}\n'
"""The content of a commit that replaces one whose content is lost."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage of a table.

    Parameters
    ----------
    table
        Name of its folder.
    lost_commits
        How many of its commits are lost, with their rows.
    set_aside
        The new place of the table, if it could not be repaired.
    sequences
        By proxy and epoch: the highest sequence number found in a table that was set aside.
    """

    table: str
    lost_commits: int
    set_aside: str | None = None
    sequences: Mapping[tuple[str, str], int] | None = None

    def __str__(self) -> str:
        if self.set_aside is not None:
            return f"its table could not be read, and is begun anew; what is left of it is in {self.set_aside}"
        return f"{self.lost_commits} commits of its table were damaged, and what they held is lost"


def is_suspicious(root: Path) -> bool:
    """Return whether a table has a commit without content: it can be opened if that is not its first, but it is lost.

    A valid commit is never empty, not even one that adds no rows.
    """
    return any(not path.stat().st_size for path in numbered(root / LOG, COMMIT).values())


def mended(root: Path, name: str, schema: pa.Schema | None = None) -> Damage:
    """Repair the log of a table, in place.

    Parameters
    ----------
    root
        Folder of the table.
    name, schema
        Its name and schema; the default schema is that of its data.

    Returns
    -------
    Damage
        The damage found.

    Raises
    ------
    StorageError
        If nothing in it shows its columns.
    """
    try:
        checkpoint = _newest_checkpoint(root)
        commits = numbered(root / LOG, COMMIT)
        if checkpoint is None and 0 not in commits:
            checkpoint = _bring_back(root)
            commits = numbered(root / LOG, COMMIT)
        readable = {version for version, path in commits.items() if _actions(path)}
        if checkpoint is None and not readable and schema is None:
            raise StorageError(f"table {root} holds no commit")
        first = 0 if checkpoint is None else checkpoint
        lost = 0
        for version in sorted(set(range(first, max(commits, default=first) + 1)) - readable):
            _keep_aside(root, commits.get(version))
            if version == 0:  # it describes the table, and has no other content
                content = _first_commit(schema or _schema_of_data(root), name)
            else:
                content, lost = LOST_COMMIT, lost + 1
            _write(root / LOG / f"{version:020d}{COMMIT}", content)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"table {root} is damaged and cannot be mended: {error}") from error
    return Damage(root.name, lost)


def set_aside(root: Path) -> Damage:
    """Move a table to another place.

    Raises
    ------
    StorageError
        If it cannot be moved.
    """
    commits = numbered(root / LOG, COMMIT)
    sequences = dict(_sequences(path for _, path in sorted(commits.items())))
    aside = root.parent / ASIDE
    number = 1
    while (place := aside / f"{root.name}-{number}").exists():
        number += 1
    try:
        aside.mkdir(exist_ok=True)
        root.rename(place)
    except OSError as error:
        raise StorageError(f"damaged table {root} cannot be set aside: {error}") from error
    return Damage(root.name, len(commits), str(place), sequences)


def _newest_checkpoint(root: Path) -> int | None:
    """Return the version of the newest readable checkpoint; unreadable ones are moved away."""
    readable = []
    for version, path in numbered(root / LOG, CHECKPOINT).items():
        if is_readable(path):
            readable.append(version)
        else:
            _keep_aside(root, path)
    named = last_checkpoint(root / LOG)
    if named is not None and named not in readable:
        _keep_aside(root, root / LOG / LAST_CHECKPOINT)
    return max(readable, default=None)


def _bring_back(root: Path) -> int | None:
    """Move commits from the archive back to the log, from its newest checkpoint on; return the version of that."""
    folders = sorted((root / ARCHIVE).glob("*"), reverse=True)
    checkpoints = {
        version: path
        for folder in folders
        for version, path in numbered(folder, CHECKPOINT).items()
        if is_readable(path)
    }
    first = max(checkpoints, default=0)
    for folder in folders:
        for version, path in [*numbered(folder, COMMIT).items(), *checkpoints.items()]:
            if version >= first and path.parent == folder:
                path.rename(root / LOG / path.name)
    return first if checkpoints else None


def _first_commit(schema: pa.Schema, name: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="fjord-table-") as folder:
        created(folder, schema, name)
        return (Path(folder) / LOG / f"{0:020d}{COMMIT}").read_bytes()


def _schema_of_data(root: Path) -> pa.Schema:
    schemas = [pq.read_schema(path) for path in sorted(root.glob("*.parquet")) if _is_parquet(path)]
    if not schemas:
        raise StorageError(f"table {root} has lost its first commit, and holds nothing that says what its columns are")
    # Files with most columns come first, because rows with further columns came later.
    return pa.unify_schemas(sorted(schemas, key=len, reverse=True))


def _sequences(commits: Iterable[Path]) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield, by proxy and epoch, the sequence numbers in commits, oldest first."""
    for path in commits:
        for action in _actions(path):
            if action.txn is not None and action.txn.appId.count("/") > 1:
                _, proxy, epoch = action.txn.appId.split("/", 2)
                yield (proxy, epoch), action.txn.version


def _actions(commit: Path) -> list[Action]:
    try:
        return actions_in(commit)
    except OSError:
        return []  # commits that cannot be read are lost


def _is_parquet(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    return True


def _keep_aside(root: Path, path: Path | None) -> None:
    if path is not None:
        (root / DAMAGED).mkdir(exist_ok=True)
        path.replace(root / DAMAGED / path.name)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
