"""How much memory a piece of work takes, whatever its process has held at most before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FORGET_PEAK = "5"


def growth_kib(work: Callable[[], object]) -> int:
    """Do work; return by how many KiB the resident memory of this process was greater at most than before."""
    Path("/proc/self/clear_refs").write_text(_FORGET_PEAK)
    before_kib = _peak_kib()
    work()
    return _peak_kib() - before_kib


def _peak_kib() -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])
