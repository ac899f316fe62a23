"""Which threads keep a process from being forked."""

from __future__ import annotations

import os
from pathlib import Path

TASKS = Path("/proc/self/task")

HARMLESS_THREADS = {
    "jemalloc_bg_thd": "jemalloc takes its locks around a fork",
    "polars-ooc-clea": "waits for files that Polars has spilled, from its import on",
}
"""Names of threads, as the kernel cuts them, and why a process that has them may be forked.

Any other one could hold a lock, which would stay taken for ever in the fork.
"""


def unsafe_threads() -> list[str]:
    """Return the names of threads of this process with which it should not be forked; Python knows only its own."""
    others = (task for task in TASKS.iterdir() if int(task.name) != os.getpid())
    names = ((task / "comm").read_text().rstrip("\n") for task in others)
    return sorted(name for name in names if name not in HARMLESS_THREADS)
