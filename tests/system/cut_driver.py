"""The process of fjord_driver.py on a disk whose power is cut: leaves a folder as it may be then, and ends.

    python -m tests.system.cut_driver <folder> <folder afterwards> <instant> <seed>

An instant is a number, counted in syncs, or the end of a path: the power is cut when that is about to be synced, and
all that was not synced is lost.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from threading import Lock

import pytest

from tests.power_cuts.disk import RecordedDisk
from tests.system import fjord_driver


class _Power:
    def __init__(self, folder: Path, after: Path, instant: str, seed: str) -> None:
        self._after = after
        self._path = None if instant.isdigit() else instant
        self._left = int(instant) if instant.isdigit() else 0
        self._dice = random.Random(seed)
        self._lock = Lock()
        self.disk = RecordedDisk(folder, self._instant, without=frozenset({"spark"}))

    def _instant(self, path: Path) -> None:
        with self._lock:
            self._left -= 1
            if self._path is None and self._left == 0:
                self.disk.cut(self._after, self._dice)
            elif self._path is not None and str(path).endswith(self._path):
                self.disk.cut(self._after, None)
            else:
                return
            fjord_driver.say("cut")
            os._exit(0)


def main(folder: Path, after: Path, instant: str, seed: str) -> None:
    """Answer what is stored, as far as the power lasts."""
    with pytest.MonkeyPatch.context() as patch:
        _Power(folder, after, instant, seed).disk.record(patch)
        fjord_driver.main(folder, "local[2]")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
