"""Where streams begin in a micro-batch, from the commits that it reads (cluster/physical/beginnings.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.physical.beginnings import beginning_us
from cluster.spark.reading.tables import TableVersions


class Beginnings:
    """Where streams begin.

    Parameters
    ----------
    tables
        Of the streams.
    """

    def __init__(self, tables: TableVersions) -> None:
        self._tables = tables
        self._begun: dict[str, int] = {}  # by stream: a version at which it has begun

    def between(self, streams: Iterable[str], begins: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """Return where streams begin that do so between two versions; others that have begun may be among them.

        Parameters
        ----------
        streams
            Which ones.
        begins, ends
            By stream: the versions after which and up to which a micro-batch reads.
        """
        found = {}
        for stream in sorted(streams):
            begin = begins[stream]
            if begin >= self._begun.get(stream, begin + 1):
                continue
            first_us = self._tables.stored(stream, begin).first_us
            if beginning_us(first_us, [(None, self._tables.watermark_us(stream, begin))]) is not None:
                self._begun[stream] = begin
                continue
            commits = (
                (self._earliest_us(stream, version), self._tables.watermark_us(stream, version))
                for version in range(begin + 1, ends[stream] + 1)
            )
            begins_us = beginning_us(first_us, commits)
            if begins_us is not None:
                found[stream] = begins_us
        return found

    def _earliest_us(self, stream: str, version: int) -> int | None:
        stamps = (file.first_us for file in self._tables.commit(stream, version).files)
        return min((each for each in stamps if each is not None), default=None)
