"""The registry's SQLite file: what goes wrong with it is an error of ours.

A disk that is full, or gone, fails whoever asks for something to be written; it never ends the process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Literal

from cluster.errors import UnwritableError

WHAT = "the registry"


class RegistryFile(sqlite3.Connection):
    """A connection that raises StorageError where SQLite would raise an error of its own; open it with :meth:`at`."""

    def execute(self, sql: str, parameters: Iterable[Any] = (), /) -> sqlite3.Cursor:  # type: ignore[override] # fewer
        """Execute a statement.

        Raises
        ------
        UnwritableError
            If SQLite cannot.
        """
        try:
            return super().execute(sql, tuple(parameters))
        except sqlite3.Error as error:
            raise UnwritableError(WHAT, error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]:
        """Commit what the block has done, or take it back if it failed, or if it cannot be committed."""
        try:
            super().__exit__(kind, error, trace)
        except sqlite3.Error as failure:
            raise UnwritableError(WHAT, failure) from failure
        return False
