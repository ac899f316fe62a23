"""Makes a table readable again whose log was damaged: by a power cut, or a process that ended while it made the table.

What is damaged is kept beside the log, under another name, and versions stay what they are: a reader goes on at the
version that it has reached. What cannot be made readable is set aside as a whole, so that the table can be made anew.
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
from cluster.storage.archived_log import ARCHIVE, LOG
from cluster.storage.delta_tables import created
from cluster.storage.log_entries import (
    CHECKPOINT,
    COMMIT,
    LAST_CHECKPOINT,
    Action,
    actions_in,
    is_readable,
    last_checkpoint,
    numbered,
)

DAMAGED = "_fjord_damaged"
"""Below a table: what was in the place of commits and checkpoints that were put right."""
ASIDE = ".damaged"
"""Below the folder of tables: those that could not be put right; no stream has such a name."""
LOST_COMMIT = b'{"commitInfo":{"operation":"LOST"}}\n'
"""The content of a commit that replaces one whose content is gone."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was wrong with a table.

    Parameters
    ----------
    table
        Name of its folder.
    lost_commits
        How many of its commits are gone; what they held is lost.
    set_aside
        Where the table is now, if it could not be made readable.
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

    An honest commit is never empty, not even one that adds nothing.
    """
    return any(not path.stat().st_size for path in numbered(root / LOG, COMMIT).values())


def mended(root: Path, name: str, schema: pa.Schema | None = None) -> Damage:
    """Put the log of a table right, in place.

    Parameters
    ----------
    root
        Folder of the table.
    name, schema
        Of the table; unless given, the schema is that of the data it holds.

    Returns
    -------
    Damage
        What was wrong with it.

    Raises
    ------
    StorageError
        If nothing in it shows what its columns are.
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
            if version == 0:  # it describes the table, and holds nothing else
                content = _first_commit(schema or _schema_of_data(root), name)
            else:
                content, lost = LOST_COMMIT, lost + 1
            _write(root / LOG / f"{version:020d}{COMMIT}", content)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"table {root} is damaged and cannot be mended: {error}") from error
    return Damage(root.name, lost)


def set_aside(root: Path) -> Damage:
    """Move a table out of the way.

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
    """Return the version of the newest checkpoint that can be read; what cannot is put out of the way."""
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
    """Move commits from the archive back to the log, from the newest checkpoint there on; return its version."""
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
    # Those that have most columns come first, as rows with further ones came later.
    return pa.unify_schemas(sorted(schemas, key=len, reverse=True))


def _sequences(commits: Iterable[Path]) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield by proxy and epoch the sequence numbers that commits contain, oldest first."""
    for path in commits:
        for action in _actions(path):
            if action.txn is not None and action.txn.appId.count("/") > 1:
                _, proxy, epoch = action.txn.appId.split("/", 2)
                yield (proxy, epoch), action.txn.version


def _actions(commit: Path) -> list[Action]:
    try:
        return actions_in(commit)
    except OSError:
        return []  # what cannot be read is lost


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
