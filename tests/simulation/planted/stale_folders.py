"""Folders in memory of searches that were killed: named after their process, they are removed once that is gone."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

_PREFIX = "fjord-planted-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-")


def own_prefix() -> str:
    """Return how the names of this process's folders begin."""
    return f"{_PREFIX}{os.getpid()}-"


def remove_stale_folders(within: Path) -> None:
    """Remove what processes that have ended left in a folder; others' folders stay."""
    for folder in within.glob(f"{_PREFIX}*"):
        named = _NAME.match(folder.name)
        if named is not None and not _runs(int(named[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
