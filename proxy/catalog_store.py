"""What a proxy knows about its motes, kept over restarts: announcements, recent programs, last demands."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from protocols.demands import StreamDemand, decode_demand
from protocols.errors import FjordError
from protocols.frames import encode
from protocols.packets import Announcement, decode_announcement
from protocols.programs import SLEEP, SamplingProgram, program_number
from proxy.database import open_database, transaction
from proxy.errors import StoreCorruptError
from proxy.program_book import MOST_PROGRAMS

T = TypeVar("T")

_programs = msgspec.msgpack.Decoder(SamplingProgram)


class CatalogStore:
    """The catalog on disk. Used by one thread at a time.

    Raises
    ------
    StoreError
        It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = open_database(path, "catalog", durable=False)
        row = self._connection.execute("SELECT coalesce(max(wanted), 0) FROM programs").fetchone()
        self._wanted = int(row[0])

    def remember(
        self,
        announcements: Iterable[Announcement] = (),
        programs: Iterable[SamplingProgram] = (),
        demands: Iterable[StreamDemand] = (),
    ) -> None:
        """Store what is new; the least recently wanted programs beyond a thousand are forgotten."""
        with transaction(self._connection, self.path):
            self._connection.executemany(
                "INSERT OR REPLACE INTO announcements VALUES (?, ?)",
                [(each.mote, encode(each)) for each in announcements],
            )
            for program in programs:
                if program == SLEEP:
                    continue
                self._wanted += 1
                self._connection.execute(
                    "INSERT OR REPLACE INTO programs VALUES (?, ?, ?)",
                    (program_number(program), self._wanted, msgspec.msgpack.encode(program)),
                )
            self._connection.execute("DELETE FROM programs WHERE wanted <= ?", (self._wanted - MOST_PROGRAMS,))
            self._connection.executemany(
                "INSERT OR REPLACE INTO demands VALUES (?, ?)", [(each.stream, encode(each)) for each in demands]
            )

    def announcements(self) -> list[Announcement]:
        """Return what the motes are, in the order in which they last said so.

        Raises
        ------
        StoreCorruptError
            What is stored cannot be read.
        """
        return self._read(decode_announcement, "SELECT payload FROM announcements ORDER BY rowid")

    def programs(self) -> list[SamplingProgram]:
        """Return the programs known, the most recently wanted last; raises as :meth:`announcements`."""
        return self._read(_programs.decode, "SELECT payload FROM programs ORDER BY wanted")

    def demands(self) -> list[StreamDemand]:
        """Return the last demand on each stream; raises as :meth:`announcements`."""
        return self._read(decode_demand, "SELECT payload FROM demands")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _read(self, decode: Callable[[bytes], T], query: str) -> list[T]:
        try:
            return [decode(row[0]) for row in self._connection.execute(query)]
        except (FjordError, msgspec.MsgspecError, sqlite3.DatabaseError) as error:
            raise StoreCorruptError(self.path, str(error)) from error
