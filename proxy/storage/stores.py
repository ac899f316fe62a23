"""The proxy's databases, that of its motes' catalog among them, and the one thread that waits for their disk."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ParamSpec, TypeVar

import msgspec

from protocols.errors import FjordError, FrameError
from protocols.event_log import get_logger
from protocols.presence.folder_home import settle
from protocols.security.private_files import LINK_HINT, file_link, make_private, warn_of_open
from protocols.wire.demands import DemandPiece, WholeDemand, decode_demand_piece, read_head
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Announcement, decode_announcement
from protocols.wire.programs import SLEEP, SamplingProgram, program_number
from proxy.drivers.driver_registry import DrivenMote
from proxy.errors import DataFolderError, DataFolderInUseError, DataFolderMovedError, StoreCorruptError, StoreError
from proxy.fleet.demand_assembly import StoredDemand
from proxy.records.program_routes import MOST_PROGRAMS
from proxy.storage.database import open_database, reading, transaction
from proxy.storage.quarantine import Quarantine
from proxy.storage.spool import Spool

T = TypeVar("T")

log = get_logger(__name__)

_NONE: Mapping[str, StoredDemand] = MappingProxyType({})
_NATIVE: Mapping[str, DrivenMote] = MappingProxyType({})
_programs = msgspec.msgpack.Decoder(SamplingProgram)
_NOT_READABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of decoders for damaged bytes."""


class CatalogStore:
    """The catalog on disk. Used by one thread at a time.

    Raises
    ------
    StoreError
        It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = open_database(path, "catalog", durable=True)
        try:
            with reading(path):
                row = self._connection.execute("SELECT coalesce(max(wanted), 0) FROM programs").fetchone()
        except StoreError:
            self._connection.close()
            raise
        self._wanted = int(row[0])

    def remember(
        self,
        announcements: Iterable[Announcement] = (),
        programs: Iterable[SamplingProgram] = (),
        demands: Mapping[str, StoredDemand] = _NONE,
        driven: Mapping[str, DrivenMote] = _NATIVE,
    ) -> None:
        """Store changes; the least recently demanded programs beyond a thousand are deleted.

        A mote that announces itself and is none of `driven` belongs to no driver any more.
        """
        announced = {each.mote: each for each in announcements}
        with transaction(self._connection, self.path):
            self._connection.executemany(
                "INSERT OR REPLACE INTO announcements VALUES (?, ?)",
                [(mote, encode(each)) for mote, each in announced.items()],
            )
            self._connection.executemany(
                "DELETE FROM driven_motes WHERE mote = ?", [(mote,) for mote in announced if mote not in driven]
            )
            self._connection.executemany(
                "INSERT OR REPLACE INTO driven_motes VALUES (?, ?, ?, ?)",
                [(each.mote, each.driver, each.device, each.boot) for each in driven.values()],
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
            for stream, each in demands.items():
                self._remember_demand(stream, each)

    def announcements(self) -> list[Announcement]:
        """Return the announcements of motes, the latest last.

        Without those that do not fit their format any more: their motes are asked to announce themselves again.

        Raises
        ------
        StoreCorruptError
            The stored bytes cannot be read.
        """
        return self._read(decode_announcement, "SELECT payload FROM announcements ORDER BY rowid")

    def driven(self) -> list[DrivenMote]:
        """Return the motes that drivers own; raises StoreError."""
        with reading(self.path):
            rows = self._connection.execute("SELECT mote, driver, device, boot FROM driven_motes ORDER BY rowid")
            return [DrivenMote(*row) for row in rows]

    def programs(self) -> list[SamplingProgram]:
        """Return the programs, the most recently demanded last; raises as :meth:`announcements`."""
        return self._read(_programs.decode, "SELECT payload FROM programs ORDER BY wanted")

    def demands(self) -> dict[str, StoredDemand]:
        """Return the last demand on each stream, as it came; raises as :meth:`announcements`."""
        heads = self._read(_head_of, "SELECT payload FROM demands")
        pieces: dict[str, dict[int, bytes | None]] = {}
        for piece, payload in self._read(_piece_of, "SELECT payload FROM demand_pieces"):
            pieces.setdefault(piece.stream, {})[piece.number] = payload
        return {stream: StoredDemand(payload, pieces.get(stream, {})) for stream, payload in heads}

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _remember_demand(self, stream: str, stored: StoredDemand) -> None:
        if stored.head is None:
            self._connection.execute("DELETE FROM demands WHERE stream = ?", (stream,))
            self._connection.execute("DELETE FROM demand_pieces WHERE stream = ?", (stream,))
        else:
            self._connection.execute("INSERT OR REPLACE INTO demands VALUES (?, ?)", (stream, stored.head))
        for number, payload in stored.pieces.items():
            if payload is None:
                where = "DELETE FROM demand_pieces WHERE stream = ? AND number = ?"
                self._connection.execute(where, (stream, number))
            else:
                row = stream, number, payload
                self._connection.execute("INSERT OR REPLACE INTO demand_pieces VALUES (?, ?, ?)", row)

    def _read(self, decode: Callable[[bytes], T], query: str) -> list[T]:
        found: list[T] = []
        try:
            for (payload,) in self._connection.execute(query):
                try:
                    found.append(decode(payload))
                except FrameError as error:
                    if error.reason != "shape" or not _is_frame(payload):
                        raise
                    log.warning("left out what an earlier version stored", file=self.path.name, reason=error.message)
        except (FjordError, *_NOT_READABLE, sqlite3.DatabaseError) as error:
            raise StoreCorruptError(self.path, str(error)) from error
        return found


def _head_of(payload: bytes) -> tuple[str, bytes]:
    found = read_head(payload)
    return (found.head if isinstance(found, WholeDemand) else found).stream, payload


def _piece_of(payload: bytes) -> tuple[DemandPiece, bytes]:
    return decode_demand_piece(payload), payload


def _is_frame(payload: bytes) -> bool:
    """Return whether a payload is one of our frames, whatever its content: then it is not damaged."""
    found = msgspec.msgpack.decode(payload)
    return isinstance(found, list) and found[:1] == [VERSION]


@contextlib.contextmanager
def owned_data_folder(folder: Path, *, adopt: bool = False) -> Iterator[Path]:
    """Make the folder if necessary and own it until the context ends, or the process does.

    Parameters
    ----------
    folder
        The folder.
    adopt
        Whether it belongs here from now on, even if it was copied from another place.

    Raises
    ------
    DataFolderInUseError
        Another process owns it.
    DataFolderMovedError
        It was copied, or is on another machine; nothing in it has been changed.
    DataFolderError
        It cannot be made or written, or a file in it is a link.
    """
    try:
        link = file_link(folder)
        if link is not None:
            raise DataFolderError(f"in the data folder, {link} is a link to a file", hint=LINK_HINT)
        # Its name survives a power cut, as the files of SQLite in it do.
        make_private(folder, sync=_sync)
        lock = (folder / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise DataFolderError(
            f"cannot use the data folder {folder}: {error.strerror}", hint="choose another with --data"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            owner = lock.read().strip()
            raise DataFolderInUseError(folder, f" (process {owner})" if owner.isdigit() else "") from error
        found = settle(folder, lock.fileno(), adopt=adopt)
        if found is not None:
            raise DataFolderMovedError(folder, found.described(folder), found.hint)
        with contextlib.suppress(OSError):  # on a full disk: only the message of another process needs it
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), f"{os.getpid()}\n".encode())
        warn_of_open(folder)
        yield folder


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Stores:
    """All databases of a data folder."""

    spool: Spool
    catalog: CatalogStore
    quarantine: Quarantine
    thread: Executor

    async def in_thread(self, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Do disk work in the stores' thread; calls run in the order in which they are made."""
        future = self.thread.submit(work, *arguments, **keywords)
        return await asyncio.wrap_future(future)


@contextlib.contextmanager
def open_stores(
    folder: Path, proxy: str, *, quarantine_entries: int, adopt: bool = False, same_writer: bool = False
) -> Iterator[Stores]:
    """Own the data folder and its databases for the duration of the context.

    `adopt` is as in :func:`proxy.storage.stores.owned_data_folder`, and `same_writer` as in
    :class:`proxy.storage.spool.Spool`.

    Raises
    ------
    DataFolderError
        The folder cannot be used, or another process does.
    StoreError
        A database cannot be used.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(owned_data_folder(folder, adopt=adopt))
        spool = Spool(folder / "spool.sqlite", proxy, same_writer=same_writer)
        stack.callback(spool.close)
        catalog = CatalogStore(folder / "catalog.sqlite")
        stack.callback(catalog.close)
        quarantine = Quarantine(folder / "quarantine.sqlite", quarantine_entries)
        stack.callback(quarantine.close)
        spool.room.shrink()  # the reserve comes last: on a full disk, opening needs room, too
        thread = stack.enter_context(ThreadPoolExecutor(max_workers=1, thread_name_prefix="proxy stores"))
        yield Stores(spool, catalog, quarantine, thread)
