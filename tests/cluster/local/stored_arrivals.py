"""What stream tables got since they were last read, as arrivals of the local engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster.fjord.stream_scan import RowsInFile
from cluster.local.engine import Arrival
from cluster.storage.stream_tables import StreamTable


class StoredArrivals:
    """Reads tables version by version.

    Parameters
    ----------
    folder
        Of all stream tables.
    tables
        The streams.
    """

    def __init__(self, folder: Path, tables: Mapping[str, StreamTable]) -> None:
        self._folder = folder
        self._tables = tables
        self._read = dict.fromkeys(tables, 0)

    def new(self) -> dict[str, Arrival]:
        """Return what has not been read: every version since, and how far the stream has come."""
        return {
            stream: Arrival(
                tuple(
                    RowsInFile(str(self._folder / stream / file.path))
                    for version in range(self._read[stream] + 1, table.version + 1)
                    for file in table.log.read(version).files
                ),
                table.position().watermark_us,
            )
            for stream, table in self._tables.items()
        }

    def passed(self) -> None:
        """Note that all of it has been read."""
        self._read = {stream: table.version for stream, table in self._tables.items()}
