"""What a Fjord's source asks of stream tables, remembered until no micro-batch can ask again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cluster.fjord.batch import ALWAYS
from cluster.storage.commit_log import Commit, CommitLog
from cluster.storage.stored_files import StoredFiles
from cluster.storage.stream_tables import watermark_at

MANY_FILES = 64
"""From so many files on that hold tuples to come, it is looked whether compaction has made fewer of them."""


class _Unread(NamedTuple):
    """The files that hold tuples to come, at a version; and from how many on there may be too many of them."""

    version: int
    files: StoredFiles
    many_from: int = MANY_FILES


class TablesRead:
    """The stream tables below a folder, as far as they are being read.

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

    def unread(self, stream: str, begin: int, end: int) -> StoredFiles:
        """Return what the table holds at version `end`, as far as the watermark had not passed it at `begin`."""
        known = self._unread.get(stream)
        if known is None or known.version > begin:
            known = self._unread[stream] = _Unread(begin, self.stored(stream, begin))
        commits = [self.commit(stream, version) for version in range(known.version + 1, end + 1)]
        return known.files.and_of(commits, from_us=self.passed_us(stream, begin))

    def forget(self, done: Mapping[str, int]) -> None:
        """Forget what is not asked for again once all streams that are read have been read up to these versions."""
        self._unread = {stream: self._advanced(stream, done[stream]) for stream in self._unread if stream in done}
        self._commits = {place: commit for place, commit in self._commits.items() if _later(place, done, by=1)}
        self._stored = {place: files for place, files in self._stored.items() if _later(place, done)}
        self._watermarks_us = {place: found for place, found in self._watermarks_us.items() if _later(place, done)}

    def _advanced(self, stream: str, version: int) -> _Unread:
        files, many_from = self.unread(stream, version, version), self._unread[stream].many_from
        if len(files.files) >= many_from:
            files = self.stored(stream, version).and_of((), from_us=self.passed_us(stream, version))
            many_from = max(MANY_FILES, 2 * len(files.files))
        return _Unread(version, files, many_from)

    def _log(self, stream: str) -> CommitLog:
        if stream not in self._logs:
            self._logs[stream] = CommitLog(f"{self._folder}/{stream}")
        return self._logs[stream]


def _later(place: tuple[str, int], done: Mapping[str, int], *, by: int = 0) -> bool:
    """Return whether a stream and version are still to be read; streams that nobody reads are forgotten."""
    stream, version = place
    return stream in done and version >= done[stream] + by
