"""Errors of files that should be tables."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from cluster.errors import ClusterError

SHOWN_ROWS = 5
"""Most rows that a message names."""


class TableFileError(ClusterError):
    """A file that cannot be read as a table, or lacks what the query needs."""


@contextmanager
def explained(shown: str) -> Iterator[None]:
    """Convert errors of reading a file into Fjord's own."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:  # the latter two of files that are compressed
        reason = error.strerror if isinstance(error, OSError) else None
        raise TableFileError(f"{shown} cannot be read: {reason or error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        mixed = "--text COLUMN reads values of several types as texts" if reason.startswith("cannot parse") else None
        raise TableFileError(f"{shown} cannot be read: {reason}", hint=mixed) from None
