"""Folders named after the process that made them, so that those of processes that were killed can be removed."""

from __future__ import annotations

import shutil
from pathlib import Path


def own_prefix(purpose: str, process: int) -> str:
    """Return how the names of a process's folders begin."""
    return f"{purpose}-{process}-"


def remove_stale_folders(purpose: str, within: Path) -> None:
    """Remove what processes that have ended left in a folder; others' folders stay."""
    for folder in within.glob(f"{purpose}-*-*"):
        number = folder.name.removeprefix(f"{purpose}-").partition("-")[0]
        if number.isdigit() and not Path("/proc", number).exists():
            shutil.rmtree(folder, ignore_errors=True)
