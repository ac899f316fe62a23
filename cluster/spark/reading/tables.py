"""The contents of versions of stream tables, cached until no micro-batch can need them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import polars as pl

from cluster.fjord.batch import ALWAYS, START
from cluster.storage.commit_log import Commit, CommitLog
from cluster.storage.stored_files import StoredFiles
from cluster.storage.stream_tables import watermark_at
from cluster.storage.table_folders import folder_of

_Known = TypeVar("_Known")


class TableVersions:
    """The versions of all stream tables below a folder.

    Parameters
    ----------
    folder
        Of all stream tables.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._logs: dict[str, CommitLog] = {}
        self._latest: dict[str, int] = {}
        self._commits: dict[tuple[str, int], Commit] = {}
        self._stored: dict[tuple[str, int], StoredFiles] = {}
        self._watermarks_us: dict[tuple[str, int], int | None] = {}

    def newest(self, stream: str, known: int) -> int:
        """Return the newest version of a stream's table, given one that is known to exist."""
        self._latest[stream] = self._log(stream).latest(max(known, self._latest.get(stream, known)))
        return self._latest[stream]

    def commit(self, stream: str, version: int) -> Commit:
        """Return what a version added."""
        if (stream, version) not in self._commits:
            self._commits[stream, version] = self._log(stream).read(version)
        return self._commits[stream, version]

    def committed_at(self, stream: str, version: int) -> float:
        """Return when a version was made, in seconds since 1970."""
        return self._log(stream).committed_at(max(version, 0))

    def rows(self, stream: str, version: int) -> int:
        """Return how many rows a version added."""
        return self.commit(stream, version).rows

    def stored(self, stream: str, version: int) -> StoredFiles:
        """Return what the table holds at a version."""
        if (stream, version) not in self._stored:
            self._stored[stream, version] = StoredFiles.at(self._root(stream), version)
        return self._stored[stream, version]

    def watermark_us(self, stream: str, version: int) -> int | None:
        """Return the stream's low watermark at a version; None before the first."""
        if (stream, version) not in self._watermarks_us:
            self._watermarks_us[stream, version] = watermark_at(self._log(stream), version)
        return self._watermarks_us[stream, version]

    def complete_until_us(self, stream: str, version: int) -> int:
        """Return the instant before which no row is added after a version."""
        watermark_us = self.watermark_us(stream, version)
        return ALWAYS if watermark_us is None else watermark_us

    def earliest_us(self, stream: str, path: str, from_us: int) -> int | None:
        """Return the earliest stamp in a file that is not before an instant; None if there is none."""
        stamps = pl.scan_parquet(f"{self._root(stream)}/{path}", glob=False).select(START)
        first: int | None = stamps.filter(pl.col(START) >= from_us).min().collect().item()
        return first

    def forget(self, done: Mapping[str, int]) -> None:
        """Forget what is not needed once each stream that is read has been read up to its version in `done`."""
        self._commits = _from(self._commits, {stream: version + 1 for stream, version in done.items()})
        self._stored = _from(self._stored, done)
        self._watermarks_us = _from(self._watermarks_us, done)

    def _root(self, stream: str) -> str:
        return f"{self._folder}/{folder_of(stream)}"

    def _log(self, stream: str) -> CommitLog:
        if stream not in self._logs:
            self._logs[stream] = CommitLog(self._root(stream))
        return self._logs[stream]


def _from(known: Mapping[tuple[str, int], _Known], first: Mapping[str, int]) -> dict[tuple[str, int], _Known]:
    """Return the cached contents of each stream from a version on, without other streams."""
    return {
        (stream, version): found
        for (stream, version), found in known.items()
        if stream in first and version >= first[stream]
    }
