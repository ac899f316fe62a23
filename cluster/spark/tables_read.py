"""What a Fjord's source asks of stream tables, remembered until no micro-batch can ask again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import polars as pl

from cluster.fjord.batch import ALWAYS, START
from cluster.spark.unread_files import UnreadFiles
from cluster.storage.commit_log import Commit, CommitLog
from cluster.storage.retention import names_hold
from cluster.storage.stored_files import StoredFile, StoredFiles, stamped
from cluster.storage.stream_tables import watermark_at


class _Unread(NamedTuple):
    """What waits of a stream; all files up to a version are there, but what the watermark had passed at another."""

    files: UnreadFiles
    version: int
    passed_version: int
    named_since: float
    """When the oldest version was made from whose log files are named."""


class TablesRead:
    """The stream tables below a folder, as far as they are being read.

    Parameters
    ----------
    folder
        Of all stream tables.
    clock
        Seconds since 1970.
    """

    def __init__(self, folder: str, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._logs: dict[str, CommitLog] = {}
        self._latest: dict[str, int] = {}
        self._commits: dict[tuple[str, int], Commit] = {}
        self._stored: dict[tuple[str, int], StoredFiles] = {}
        self._watermarks_us: dict[tuple[str, int], int | None] = {}
        self._unread: dict[str, _Unread] = {}

    def newest(self, stream: str, known: int) -> int:
        """Return the newest version of a stream's table, given one that is known to exist."""
        self._latest[stream] = self._log(stream).latest(max(known, self._latest.get(stream, known)))
        return self._latest[stream]

    def commit(self, stream: str, version: int) -> Commit:
        """Return what a version added."""
        if (stream, version) not in self._commits:
            self._commits[stream, version] = self._log(stream).read(version)
        return self._commits[stream, version]

    def rows(self, stream: str, version: int) -> int:
        """Return how many rows a version added."""
        return self.commit(stream, version).rows

    def stored(self, stream: str, version: int) -> StoredFiles:
        """Return what the table holds at a version."""
        if (stream, version) not in self._stored:
            self._stored[stream, version] = StoredFiles.at(f"{self._folder}/{stream}", version)
        return self._stored[stream, version]

    def watermark_us(self, stream: str, version: int) -> int | None:
        """Return the stream's low watermark at a version; None before the first."""
        if (stream, version) not in self._watermarks_us:
            self._watermarks_us[stream, version] = watermark_at(self._log(stream), version)
        return self._watermarks_us[stream, version]

    def passed_us(self, stream: str, version: int) -> int:
        """Return the instant before which nothing will come any more after a version."""
        watermark_us = self.watermark_us(stream, version)
        return ALWAYS if watermark_us is None else watermark_us

    def unread(self, stream: str, begin: int, end: int) -> Sequence[StoredFile]:
        """Return the files that may hold tuples which the watermark passes between two versions, in order of time.

        There may be files of later versions among them: no tuple of theirs is stamped before the watermark.
        """
        known = self._unread.get(stream)
        # Tuples of tomorrow wait in files that compaction replaces, and removes a day later. What the table holds at
        # `begin` stays for as long as it is read from there.
        if known is None or known.passed_version > begin or not names_hold(self._clock(), known.named_since):
            known = self._begun(stream, begin)
        return self._extended(stream, known, end).files.before(self.passed_us(stream, end))

    def forget(self, done: Mapping[str, int]) -> None:
        """Forget what is not asked for again once all streams that are read have been read up to these versions."""
        self._unread = {stream: unread for stream, unread in self._unread.items() if stream in done}
        for stream, unread in list(self._unread.items()):
            self._forget_passed(stream, unread, done[stream])
        self._commits = {place: commit for place, commit in self._commits.items() if _later(place, done, by=1)}
        self._stored = {place: files for place, files in self._stored.items() if _later(place, done)}
        self._watermarks_us = {place: found for place, found in self._watermarks_us.items() if _later(place, done)}

    def _begun(self, stream: str, version: int) -> _Unread:
        files = UnreadFiles(partial(self._earliest, stream))
        files.begin_with(self.stored(stream, version).between(self.passed_us(stream, version), None))
        return _Unread(files, version, version, self._log(stream).committed_at(max(version, 0)))

    def _extended(self, stream: str, unread: _Unread, version: int) -> _Unread:
        for each in range(unread.version + 1, version + 1):
            unread.files.add(stamped(self.commit(stream, each)))
        self._unread[stream] = unread._replace(version=max(unread.version, version))
        return self._unread[stream]

    def _forget_passed(self, stream: str, unread: _Unread, version: int) -> None:
        unread = self._extended(stream, unread, version)
        if unread.files.many:
            unread = self._begun(stream, version)
        unread.files.forget_before(self.passed_us(stream, version))
        self._unread[stream] = unread._replace(passed_version=version)

    def _earliest(self, stream: str, path: str, from_us: int) -> int | None:
        stamps = pl.scan_parquet(f"{self._folder}/{stream}/{path}").select(START)
        first: int | None = stamps.filter(pl.col(START) >= from_us).min().collect().item()
        return first

    def _log(self, stream: str) -> CommitLog:
        if stream not in self._logs:
            self._logs[stream] = CommitLog(f"{self._folder}/{stream}")
        return self._logs[stream]


def _later(place: tuple[str, int], done: Mapping[str, int], *, by: int = 0) -> bool:
    """Return whether a stream and version are still to be read; streams that nobody reads are forgotten."""
    stream, version = place
    return stream in done and version >= done[stream] + by
