"""Reading the entries of a table's log, and whether they are complete: a power cut leaves them cut off, or empty."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.storage.commit_log import METADATA_PREFIX

COMMIT, CHECKPOINT, LAST_CHECKPOINT = ".json", ".checkpoint.parquet", "_last_checkpoint"

LINES = f"{METADATA_PREFIX}lines"
"""The entry of a commit with its number of lines: a commit cut off between two lines would look complete."""


class Transaction(msgspec.Struct):
    """The last version of an application."""

    appId: str  # noqa: N815 - the Delta protocol's spelling
    version: int


class Action(msgspec.Struct):
    """The parts of one line of a commit that Fjord reads."""

    txn: Transaction | None = None
    commitInfo: dict[str, object] | None = None  # noqa: N815 - the Delta protocol's spelling


class _LastCheckpoint(msgspec.Struct):
    version: int


_decode = msgspec.json.Decoder(Action).decode


def numbered(folder: Path, ending: str) -> dict[int, Path]:
    """Return commits or checkpoints in a folder by their version; none if there is no folder."""
    if not folder.is_dir():
        return {}
    entries = {path: path.name.removesuffix(ending) for path in folder.iterdir() if path.name.endswith(ending)}
    return {int(number): path for path, number in entries.items() if number.isdigit()}


def actions_in(commit: Path) -> list[Action]:
    """Return the actions of a commit; none if it is not complete, as every complete commit has some.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    lines = commit.read_bytes().splitlines()
    try:
        actions = [_decode(line) for line in lines]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    lines_noted = [
        str(action.commitInfo[LINES]) for action in actions if action.commitInfo and LINES in action.commitInfo
    ]
    return actions if lines_noted in ([], [str(len(lines))]) else []


def is_readable(checkpoint: Path) -> bool:
    """Return whether a checkpoint can be read completely."""
    try:
        pq.read_table(checkpoint)
    except (pa.ArrowException, OSError):
        return False
    return True


def last_checkpoint(log: Path) -> int | None:
    """Return the checkpoint that a log names as the last; -1 if that cannot be read, None if it names none.

    Raises
    ------
    OSError
        If the file exists, but cannot be read.
    """
    try:
        return msgspec.json.decode((log / LAST_CHECKPOINT).read_bytes(), type=_LastCheckpoint).version
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return -1
