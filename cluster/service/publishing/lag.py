"""How far queries are behind their streams: rows that are stored and not yet answered, and for how long.

    versions   ... 6    7    8    9        lag in rows: those of 8 and 9
                        |    ^             lag in seconds: since 8 was stored
                        read

All queries that one of the engine's two Spark queries runs are equally far behind a stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from cluster.errors import ClusterError
from cluster.physical.nodes import Fragment, Host
from cluster.spark.offsets import SparkPositions
from cluster.storage.stream_tables import StreamTable, watermark_at


class Lag(NamedTuple):
    """Rows that are stored and not yet answered, and the age of the oldest."""

    rows: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, float]:
        """Return it as the API shows it."""
        return {"rows": self.rows, "seconds": round(self.seconds, 3)}


LagBy = Mapping[tuple[str, Host], Lag]
"""By stream, and by which of the two Spark queries reads it; streams without a reader are left out."""


def greatest(lags: Iterable[Lag]) -> Lag | None:
    """Return the most rows and the longest time; None without any lag."""
    known = list(lags)
    return Lag(max(each.rows for each in known), max(each.seconds for each in known)) if known else None


def lag_behind(table: StreamTable, read: int, now: float) -> Lag:
    """Return how far a reader of a stream's table is behind it.

    Parameters
    ----------
    table
        The table.
    read
        The last version read.
    now
        Seconds since 1970.

    Raises
    ------
    StorageError
        If the table cannot be read.
    """
    newest = table.version
    if read >= newest:
        return Lag()
    rows = table.rows_stored(newest) - (table.rows_stored(read) if read >= 0 else 0)
    return Lag(max(0, rows), max(0.0, now - table.log.committed_at(max(read + 1, 0))))


class Lags:
    """How far queries are behind.

    Parameters
    ----------
    positions
        How far the Spark queries have come.
    tables
        Returns all stream tables, by stream.
    clock
        Seconds since 1970.
    """

    def __init__(
        self,
        positions: SparkPositions,
        tables: Callable[[], Mapping[str, StreamTable]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._positions = positions
        self._tables = tables
        self._clock = clock

    def now(self) -> LagBy:
        """Return the present lags, without those that cannot be determined."""
        found: dict[tuple[str, Host], Lag] = {}
        tables, now = self._tables(), self._clock()
        for host in Host:
            with suppress(ClusterError):
                for stream, version in self._positions.read_by(host, tables).items():
                    with suppress(ClusterError):
                        found[stream, host] = lag_behind(tables[stream], version, now)
        return found


def instants_read(
    positions: SparkPositions, tables: Mapping[str, StreamTable], host: Host, streams: Iterable[str]
) -> dict[str, int]:
    """Return, by stream, its low watermark behind what a Spark query has read and committed.

    Raises
    ------
    ClusterError
        If that cannot be read.
    """
    known = [each for each in streams if each in tables]
    read = positions.read_by(host, known).items()
    found = {stream: watermark_at(tables[stream].log, version) for stream, version in read if version >= 0}
    return {stream: passed_us for stream, passed_us in found.items() if passed_us is not None}


def lag_of_fragment(fragment: Fragment, lags: LagBy) -> Lag | None:
    """Return the greatest lag of the queries of a fragment behind its streams; None if it is unknown.

    Parameters
    ----------
    fragment
        The fragment.
    lags
        Of all streams.
    """
    host = fragment.host
    return greatest(lags[stream, host] for stream in fragment.streams if (stream, host) in lags)


def lag_of_stream(stream: str, lags: LagBy) -> Lag | None:
    """Return how far the slowest reader of a stream is behind it; None if it has none."""
    return greatest(lag for (name, _), lag in lags.items() if name == stream)
