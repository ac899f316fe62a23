"""The spool: batches on disk until the cluster has acknowledged them.

One transaction stores batches together with the progress of each stream, the last packet of each mote, until when
samples of it are missing, the stamps that its next published tuples may lie next to, and what drivers keep of their
devices. So after a crash numbers continue without a gap, nothing is stored twice, and samples lost in memory are
counted as lost, as are those whose loss was known in memory only.

SQLite detects damage to its own pages only, not to the bytes of a batch: these have a checksum of ours. The cluster
would reject a damaged batch as a garbled message, and acknowledge nothing, as it cannot know which batch it is.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from protocols.errors import FrameError
from protocols.wire.batches import WRITER_BYTES, decode_batch
from proxy.errors import StoreError, StoreFullError
from proxy.fleet.batching import KeptStamps
from proxy.fleet.stream_state import StreamProgress
from proxy.records.waiting_tuples import MotePosition
from proxy.storage.database import RESERVE_BYTES, DiskRoom, open_database, reading, transaction

_DELETED_AT_ONCE = 16
"""Batches that are deleted in one transaction where there is no room but the reserve."""
MOST_SESSION_MESSAGES = 10_000
"""The latest messages of a session that are known again. There are 65,535 numbers: none of these has come round."""
NO_LOSSES: Mapping[str, int] = MappingProxyType({})
NO_STATES: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """An encoded batch."""

    stream: str
    sequence: int
    rows: int
    payload: bytes
    spooled_us: int | None = None
    """Real time at which it was spooled; None if that is not known."""
    writer: bytes = b""
    """The process that wrote it; empty for one of an earlier version."""


class SessionMessage(NamedTuple):
    """A message of the devices' session: the number that the broker gave it, and a digest of topic and payload."""

    number: int
    digest: bytes


class DamagedBatchError(StoreError):
    """The bytes of a batch are not those that were spooled."""

    def __init__(self, path: Path, batch: SpooledBatch) -> None:
        super().__init__(
            path,
            f"batch {batch.sequence:,} of stream {batch.stream!r} is damaged, its {batch.rows:,} rows are lost",
            hint="check the disk",
        )
        self.batch = batch


class Spool:
    """Batches on disk. Used by one thread at a time.

    Parameters
    ----------
    path
        Of the database.
    proxy
        Name of the proxy; the spool of another proxy is rejected.
    reserve_bytes
        Room on the disk that is held for deletions.
    same_writer
        Whether this is the same process again: a replay of its log.

    Attributes
    ----------
    epoch
        Random token drawn when the spool was made.
    writer
        Random number of this process, which its batches name: numbers of two processes on copies of a folder are the
        same.
    size_bytes, batches
        How much waits to be acknowledged.
    room
        The room for its files.
    cluster
        The cluster whose acknowledgements are obeyed; None before the first.
    writers_read
        Whether the cluster has shown that it reads the writers of batches.
    has_session
        Whether the broker was asked to keep messages of devices, and agreed.
    session_filters
        Topic filters of subscriptions that this session may have.
    last_commit_us
        When batches or positions were stored last, in real time; None if that is not known.

    Raises
    ------
    StoreError
        It cannot be opened, or belongs to another proxy.
    """

    def __init__(
        self, path: Path, proxy: str, *, reserve_bytes: int = RESERVE_BYTES, same_writer: bool = False
    ) -> None:
        self.path = path
        self.room = DiskRoom(path, reserve_bytes=reserve_bytes)
        self.cluster: str | None = None
        self.batches = self.size_bytes = 0
        self.has_session = False
        self.session_filters: frozenset[str] = frozenset()
        self.last_commit_us: int | None = None
        self.writers_read = False
        try:
            self._connection, self.epoch = self._open(proxy)
        except StoreFullError:
            self.room.release()  # opening needs room, too
            self._connection, self.epoch = self._open(proxy)
        self._last_writers = self._read_last_writers()
        self.writer = self._stored_writer() if same_writer else self._draw_writer()

    def _open(self, proxy: str) -> tuple[sqlite3.Connection, str]:
        """Open the database and read what is in it; return its connection and its epoch."""
        connection = open_database(self.path, "spool", durable=True)
        try:
            self.room.watch(connection)
            epoch = self._identify(connection, proxy)
            with reading(self.path):
                obeyed = connection.execute("SELECT identity FROM cluster").fetchone()
                found = connection.execute("SELECT count(*), coalesce(sum(length(payload)), 0) FROM batches").fetchone()
                self.has_session = connection.execute("SELECT 1 FROM device_session").fetchone() is not None
                filters = connection.execute("SELECT filter FROM session_filters").fetchall()
                self.writers_read = connection.execute("SELECT 1 FROM writers_read").fetchone() is not None
                last = connection.execute("SELECT at_us FROM last_commit").fetchone()
        except StoreError:
            connection.close()
            raise
        self.session_filters = frozenset(str(each) for (each,) in filters)
        self.last_commit_us = None if last is None else int(last[0])
        self.cluster = None if obeyed is None else str(obeyed[0])
        self.batches, self.size_bytes = int(found[0]), int(found[1])
        return connection, epoch

    def _identify(self, connection: sqlite3.Connection, proxy: str) -> str:
        with transaction(connection, self.path):
            row = connection.execute("SELECT proxy, epoch FROM identity").fetchone()
            if row is None:
                row = (proxy, secrets.token_hex(8))
                connection.execute("INSERT INTO identity VALUES (1, ?, ?)", row)
        if row[0] != proxy:
            raise StoreError(
                self.path,
                f"belongs to proxy {row[0]!r}, not {proxy!r}",
                hint="give each proxy a data folder of its own",
            )
        return str(row[1])

    def _draw_writer(self) -> bytes:
        number = secrets.token_bytes(WRITER_BYTES)
        with contextlib.suppress(StoreFullError), transaction(self._connection, self.path):  # only a replay needs it
            self._connection.execute("INSERT OR REPLACE INTO writer VALUES (1, ?)", (number,))
        return number

    def _stored_writer(self) -> bytes:
        with reading(self.path):
            row = self._connection.execute("SELECT number FROM writer").fetchone()
        return b"" if row is None else bytes(row[0])

    def _read_last_writers(self) -> dict[str, bytes]:
        with reading(self.path):
            rows = self._connection.execute("SELECT stream, writer FROM progress WHERE writer IS NOT NULL").fetchall()
        return {stream: bytes(writer) for stream, writer in rows}

    def last_writer(self, stream: str) -> bytes:
        """Return the writer of the last batch of a stream; zeros if there is none, or it is of an earlier version."""
        return self._last_writers.get(stream, bytes(WRITER_BYTES))

    def writers(self) -> dict[str, list[tuple[int, bytes]]]:
        """Return, by stream, the writers of the batches that wait, each with its first; raises StoreError."""
        with reading(self.path):
            rows = self._connection.execute(
                "SELECT stream, min(sequence), writer FROM batches GROUP BY stream, writer ORDER BY 1, 2"
            ).fetchall()
        found: dict[str, list[tuple[int, bytes]]] = {}
        for stream, first, writer in rows:
            found.setdefault(stream, []).append((int(first), bytes(writer or b"")))
        return found

    def append(
        self,
        batches: Sequence[SpooledBatch],
        progress: Iterable[StreamProgress] = (),
        positions: Iterable[MotePosition] = (),
        losses: Mapping[str, int] = NO_LOSSES,
        *,
        stamps: Iterable[tuple[str, KeptStamps]] = (),
        session: Sequence[SessionMessage] = (),
        now_us: int | None = None,
        states: Mapping[str, bytes] = NO_STATES,
    ) -> None:
        """Store batches and the progress that they bring; on return they are on disk.

        Parameters
        ----------
        batches, progress, positions
            The batches, and of streams and motes how far they go.
        losses
            By mote: samples stamped before this instant are missing, and perhaps not counted in a batch yet.
        stamps
            Of published tuples, each with the name of its stream.
        session
            Messages of the devices' session that have led to these batches, and are acknowledged next.
        now_us
            Real time; None if that is not to be noted.
        states
            By mote: what its driver keeps of it, as of the tuples in these batches and in those before.

        Raises
        ------
        StoreFullError, StoreError
            Nothing was stored.
        """
        size_bytes = sum(len(each.payload) for each in batches)
        last = {each.stream: each.writer for each in batches if each.writer}
        with self.room.writing(size_bytes), transaction(self._connection, self.path):
            self._connection.executemany(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *(each.stream, each.sequence, each.rows, each.payload, zlib.crc32(each.payload)),
                        *(each.spooled_us, each.writer or None),
                    )
                    for each in batches
                ],
            )
            self._connection.executemany(
                "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?)",
                [
                    (each.stream, each.sequence, each.watermark_us, each.sampling, last.get(each.stream))
                    for each in progress
                ],
            )
            self._connection.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)", list(positions))
            self._connection.executemany("INSERT OR REPLACE INTO losses VALUES (?, ?)", list(losses.items()))
            for stream, kept in stamps:
                self._connection.execute(
                    "DELETE FROM published_stamps WHERE stream = ? AND mote = ? AND stamp_us < ?",
                    (stream, kept.mote, kept.since_us),
                )
                # One statement for many stamps takes half the time of one for each.
                self._connection.execute(
                    "INSERT OR IGNORE INTO published_stamps SELECT ?, ?, value FROM json_each(?)",
                    (stream, kept.mote, msgspec.json.encode(kept.stamps_us).decode()),
                )
            if session:
                self._connection.executemany(
                    "INSERT INTO session_messages (number, digest) VALUES (?, ?)", list(session)
                )
                self._connection.execute(
                    "DELETE FROM session_messages WHERE place <= (SELECT max(place) FROM session_messages) - ?",
                    (MOST_SESSION_MESSAGES,),
                )
            if now_us is not None:
                self._connection.execute("INSERT OR REPLACE INTO last_commit VALUES (1, ?)", (now_us,))
            self._connection.executemany("INSERT OR REPLACE INTO device_states VALUES (?, ?)", list(states.items()))
        self.batches += len(batches)
        self.size_bytes += size_bytes
        self._last_writers |= last

    def read(self, stream: str, sequence: int) -> bytes | None:
        """Return a batch's bytes, None if it is not there any more.

        Raises
        ------
        DamagedBatchError
            The bytes have changed since they were spooled.
        StoreError
            They cannot be read.
        """
        with reading(self.path):
            row = self._connection.execute(
                "SELECT rows, payload, checksum FROM batches WHERE stream = ? AND sequence = ?", (stream, sequence)
            ).fetchone()
        if row is None:
            return None
        batch = SpooledBatch(stream, sequence, int(row[0]), bytes(row[1]))
        if not (_decodes(batch) if row[2] is None else zlib.crc32(batch.payload) == row[2]):
            raise DamagedBatchError(self.path, batch)
        return batch.payload

    def obey(self, cluster: str) -> None:
        """Note the cluster whose acknowledgements are obeyed from now on; raises StoreError."""
        try:
            self._obey(cluster)
        except StoreFullError:
            self.room.release()
            try:
                self._obey(cluster)
            finally:
                self.room.regain()
        self.cluster = cluster

    def _obey(self, cluster: str) -> None:
        with transaction(self._connection, self.path):
            self._connection.execute("INSERT OR REPLACE INTO cluster VALUES (1, ?)", (cluster,))

    def note_writers_read(self) -> None:
        """Note that the cluster reads the writers of batches; raises StoreError."""
        with transaction(self._connection, self.path):
            self._connection.execute("INSERT OR IGNORE INTO writers_read VALUES (1)")
        self.writers_read = True

    def replace_session(self, *, lasts: bool) -> None:
        """Forget the messages of the session before, whose numbers are given to others; raises StoreError.

        Parameters
        ----------
        lasts
            Whether the broker keeps the new one.
        """
        with transaction(self._connection, self.path):
            self._connection.execute("DELETE FROM session_messages")
            self._connection.execute("DELETE FROM device_session")
            if lasts:
                self._connection.execute("INSERT INTO device_session VALUES (1, 1)")
        self.has_session = lasts

    def keep_filters(self, filters: Iterable[str]) -> None:
        """Note the topic filters of subscriptions that the session may have; raises StoreError."""
        kept = frozenset(filters)
        with transaction(self._connection, self.path):
            self._connection.execute("DELETE FROM session_filters")
            self._connection.executemany("INSERT INTO session_filters VALUES (?)", [(each,) for each in sorted(kept)])
        self.session_filters = kept

    def session_messages(self) -> list[SessionMessage]:
        """Return the messages of the session that were stored last, the latest last; raises StoreError."""
        with reading(self.path):
            rows = self._connection.execute("SELECT number, digest FROM session_messages ORDER BY place").fetchall()
        return [SessionMessage(int(number), bytes(digest)) for number, digest in rows]

    def delete_through(self, stream: str, sequence: int) -> None:
        """Delete the batches of a stream up to and including this one, on a full disk with the room in reserve.

        Raises
        ------
        StoreFullError, StoreError
            Some of them are still there.
        """
        try:
            self._delete_through(stream, sequence)
        except StoreFullError:
            self.room.release()
            try:
                for last in self._steps(stream, sequence):
                    self._delete_through(stream, last)
            finally:
                self.room.regain()
        self.room.deleted()

    def _steps(self, stream: str, sequence: int) -> list[int]:
        """Return up to which batches to delete in turn, so that each transaction is small."""
        with reading(self.path):
            numbers = [
                int(row[0])
                for row in self._connection.execute(
                    "SELECT sequence FROM batches WHERE stream = ? AND sequence <= ? ORDER BY sequence",
                    (stream, sequence),
                )
            ]
        return [*numbers[_DELETED_AT_ONCE - 1 : -1 : _DELETED_AT_ONCE], sequence]

    def _delete_through(self, stream: str, sequence: int) -> None:
        with transaction(self._connection, self.path):
            rows = self._connection.execute(
                "DELETE FROM batches WHERE stream = ? AND sequence <= ? RETURNING length(payload)", (stream, sequence)
            ).fetchall()
        self.batches -= len(rows)
        self.size_bytes -= sum(int(row[0]) for row in rows)

    def progress(self) -> list[StreamProgress]:
        """Return the progress of each stream; raises StoreError."""
        with reading(self.path):
            rows = self._connection.execute("SELECT stream, sequence, watermark_us, sampling FROM progress").fetchall()
        return [StreamProgress(row[0], row[1], row[2], bool(row[3])) for row in rows]

    def positions(self) -> dict[str, MotePosition]:
        """Return, by mote, the last packet whose samples are stored; raises StoreError."""
        with reading(self.path):
            rows = self._connection.execute("SELECT mote, boot, sequence, clock_us FROM positions").fetchall()
        return {row[0]: MotePosition(*row) for row in rows}

    def forget_positions(self, motes: Iterable[str]) -> None:
        """Forget the last packets of motes, whose numbers begin anew; raises StoreError."""
        with transaction(self._connection, self.path):
            self._connection.executemany("DELETE FROM positions WHERE mote = ?", [(each,) for each in motes])

    def losses(self) -> dict[str, int]:
        """Return, by mote, until when samples were missing; raises StoreError."""
        with reading(self.path):
            return dict(self._connection.execute("SELECT mote, until_us FROM losses").fetchall())

    def stamps(self) -> dict[str, dict[str, list[int]]]:
        """Return, by stream and mote, the stamps that published tuples may still lie next to; raises StoreError."""
        found: dict[str, dict[str, list[int]]] = {}
        with reading(self.path):
            rows = self._connection.execute("SELECT stream, mote, stamp_us FROM published_stamps").fetchall()
        for stream, mote, stamp_us in rows:
            found.setdefault(stream, {}).setdefault(mote, []).append(int(stamp_us))
        return found

    def states(self) -> dict[str, bytes]:
        """Return, by mote, what its driver kept of it; raises StoreError."""
        with reading(self.path):
            return dict(self._connection.execute("SELECT mote, state FROM device_states").fetchall())

    def first_waiting(self) -> dict[str, int]:
        """Return, by stream, the number of the first batch that is not acknowledged; raises StoreError."""
        with reading(self.path):
            rows = self._connection.execute("SELECT stream, min(sequence) FROM batches GROUP BY stream").fetchall()
        return {row[0]: int(row[1]) for row in rows}

    def waiting_since_us(self) -> int | None:
        """Return when the oldest batch was spooled; None if there is none or it is not known; raises StoreError."""
        with reading(self.path):
            row = self._connection.execute(
                "SELECT min(spooled_us) FROM batches"
                " WHERE (stream, sequence) IN (SELECT stream, min(sequence) FROM batches GROUP BY stream)"
            ).fetchone()
        return None if row[0] is None else int(row[0])

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def _decodes(batch: SpooledBatch) -> bool:
    """Return whether a batch may be undamaged; for one that an earlier version spooled without a checksum."""
    try:
        found = decode_batch(batch.payload)
    except FrameError:
        return False
    return (found.stream, found.sequence, found.rows) == (batch.stream, batch.sequence, batch.rows)
