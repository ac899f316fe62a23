"""Spark's own log of micro-batches, where it needs help."""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster.errors import ClusterError

LOGS = ("offsets", "commits")
PARTS = (*LOGS, "state", "sources")


def forget_unbegun(checkpoint: Path) -> bool:
    """Remove what is left of a first micro-batch that was never logged; return whether there was anything.

    A process killed while Spark writes its first log entry leaves a temporary file, and Spark then refuses to begin:
    its log must be empty at micro-batch 0. As nothing was logged, nothing was done, and nothing is lost.
    """
    if not checkpoint.is_dir() or any(_entries(checkpoint / log) for log in LOGS):
        return False
    left = [checkpoint / part for part in PARTS if (checkpoint / part).is_dir() and any((checkpoint / part).iterdir())]
    if left:
        for part in PARTS:
            shutil.rmtree(checkpoint / part, ignore_errors=True)
    return bool(left)


def check_layout(folder: Path) -> None:
    """Refuse what was written when a Fjord was one Spark query: it says nothing of how far each of two has come.

    Raises
    ------
    ClusterError
        If there is such a checkpoint in the folder.
    """
    if any(_entries(folder / "offsets")):
        raise ClusterError(
            f"{folder} was written by a version of Fjord that ran all queries in one of Spark",
            hint="run the cluster with that version, or start a new data folder",
        )


def _entries(log: Path) -> list[Path]:
    """Return the entries of a log: files named by the number of a micro-batch."""
    return [path for path in log.iterdir() if path.name.isdigit()] if log.is_dir() else []
