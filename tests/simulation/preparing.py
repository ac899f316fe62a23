"""What a process needs before it imports the product: fixed hashes, and simulated clocks, chance, threads and disks."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path

from tests.simulation import disk, sources

HASH_SEED = "0"
MEMORY = Path("/dev/shm")


def folder_in_memory() -> Path:
    """Return a folder whose files are in memory; that for temporary files where there is none."""
    return MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def fix_hashes(module: str = "tests.simulation") -> None:
    """Begin a module again unless texts have the same hashes, and so sets the same order, in each run."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])


def prepare(log_level: str | None = None) -> None:
    """Replace clocks, chance, threads and disks; show logs from this level on, or none."""
    sources.install()
    disk.install()
    if log_level is not None:
        from protocols.event_log import configure_logging

        configure_logging(log_level)
        return
    import structlog

    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
