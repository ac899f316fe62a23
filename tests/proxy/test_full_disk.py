"""A proxy whose disk is full: what was acknowledged is deleted all the same, and then there is room again.

free room   ####  ##  -      -      -     ##  ####
            append    full   full   ack   append        the room in reserve lets the acknowledged batches go
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.errors import StoreError, StoreFullError
from proxy.fleet.stream_state import StreamProgress
from proxy.running.settings import ProxySettings, fitting
from proxy.storage.database import RESERVE_BYTES, migrations_of
from proxy.storage.flushing import delete_acknowledged
from proxy.storage.quarantine import Quarantine, RejectedFrame
from proxy.storage.spool import Spool, SpooledBatch
from proxy.storage.stores import open_stores, owned_data_folder

KIB, MIB = 1024, 1024 * 1024
COMMIT_BYTES = 32 * KIB
"""The room that each transaction of the fake disk takes in the log, beside payloads."""


class FakeDisk:
    """A disk of a fixed size that others use, too; besides, transactions and checkpoints fail at random."""

    def __init__(self, folder: Path, size_bytes: int, dice: Random) -> None:
        self.folder = folder
        self.size_bytes = size_bytes
        self.others_bytes = 0
        self.fails = 0.0
        self._dice = dice

    @property
    def free_bytes(self) -> int:
        used = sum(each.stat().st_size for each in self.folder.iterdir() if not each.name.endswith("-shm"))
        return max(0, self.size_bytes - self.others_bytes - used)

    def needs(self, size_bytes: int) -> None:
        """Raise what SQLite does if there is no room for so many bytes, and at random."""
        if size_bytes > self.free_bytes or self._dice.random() < self.fails:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error

    @contextlib.contextmanager
    def installed(self) -> Iterator[FakeDisk]:
        disk, connect, fallocate = self, sqlite3.connect, os.posix_fallocate

        class Connection(sqlite3.Connection):
            written_bytes = 0

            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                if sql.startswith("BEGIN"):
                    self.written_bytes = COMMIT_BYTES
                elif sql == "COMMIT":
                    disk.needs(self.written_bytes)
                elif "wal_checkpoint" in sql:
                    pages = super().execute("PRAGMA page_count").fetchone()[0]
                    disk.needs(pages * 4 * KIB - (disk.folder / "spool.sqlite").stat().st_size)
                return super().execute(sql, parameters)

            def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
                rows = list(parameters)
                self.written_bytes += sum(len(value) for row in rows for value in row if isinstance(value, bytes))
                return super().executemany(sql, rows)

        def allocate(descriptor: int, offset: int, length: int) -> None:
            if length > disk.free_bytes:
                raise OSError(28, "No space left on device")
            fallocate(descriptor, offset, length)

        def statvfs(_: object) -> SimpleNamespace:
            return SimpleNamespace(f_bavail=disk.free_bytes, f_blocks=disk.size_bytes, f_frsize=1)

        with (
            mock.patch("sqlite3.connect", lambda *args, **keywords: connect(*args, factory=Connection, **keywords)),
            mock.patch("os.posix_fallocate", allocate),
            mock.patch("os.statvfs", statvfs),
        ):
            yield self


class Flushes:
    """What a proxy does with its spool: batches of a failed write are written again, deletions that failed, too."""

    def __init__(self, spool: Spool) -> None:
        self.stores: Any = SimpleNamespace(spool=spool)
        self.cut = 0
        self.unwritten: list[SpooledBatch] = []
        self.received: list[int] = []
        """What the cluster has; it acknowledges all of it."""

    def flush(self) -> None:
        spool = self.stores.spool
        with contextlib.suppress(StoreError):
            while self.unwritten:
                batch = self.unwritten[0]
                spool.append([batch], [StreamProgress("s", batch.sequence, 0, sampling=True)])
                del self.unwritten[0]
        with contextlib.suppress(StoreError):
            if self.received:
                delete_acknowledged(self.stores, {"s": self.received[-1]}, "c/1")
            if spool.room.shrinks:
                spool.room.shrink()

    def add(self, size_bytes: int) -> None:
        self.cut += 1
        self.unwritten.append(SpooledBatch("s", self.cut, 1, os.urandom(size_bytes)))

    def deliver(self, most: int) -> None:
        """Let the cluster have the next batches, and acknowledge them."""
        spool = self.stores.spool
        for _ in range(most):
            number = len(self.received) + 1
            if spool.read("s", number) is None:
                return
            self.received.append(number)


STEPS = st.one_of(
    st.tuples(st.just("batch"), st.integers(1, 300 * KIB)),
    st.tuples(st.just("deliver"), st.integers(1, 40)),
    st.tuples(st.just("others"), st.integers(0, 4 * MIB)),
    st.tuples(st.just("restart"), st.just(0)),
)
FILLED = [("batch", 250 * KIB)] * 16


@settings(deadline=None)
@given(st.lists(STEPS, max_size=40), st.sampled_from([0.0, 0.1, 0.5]), st.integers(0, 9))
@example([*FILLED, ("others", 4 * MIB)], 0.0, 1)
@example([*FILLED, ("restart", 0), ("others", 4 * MIB), *FILLED], 0.5, 1)
def test_a_spool_on_a_full_disk_empties_once_it_is_acknowledged(
    steps: list[tuple[str, int]], fails: float, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        disk = stack.enter_context(FakeDisk(folder, 4 * MIB, Random(seed)).installed())
        proxy = Flushes(Spool(folder / "spool.sqlite", "p"))
        stack.callback(lambda flushes: flushes.stores.spool.close(), proxy)
        proxy.stores.spool.room.shrink()
        disk.fails = fails
        for kind, amount in steps:
            match kind:
                case "batch":
                    proxy.add(amount)
                case "deliver":
                    proxy.deliver(amount)
                case "others":
                    disk.others_bytes = min(amount, disk.others_bytes + disk.free_bytes)
                case _:
                    proxy.stores.spool.close()
                    disk.fails = 0.0
                    proxy.stores = SimpleNamespace(spool=Spool(folder / "spool.sqlite", "p"))
                    disk.fails = fails
            proxy.flush()
        disk.fails = 0.0
        disk.others_bytes += disk.free_bytes  # others have taken what was left
        for _ in range(3):
            proxy.deliver(10**6)
            proxy.flush()
        assert disk.others_bytes <= disk.size_bytes
        spool = proxy.stores.spool
        assert (spool.batches, spool.size_bytes, spool.first_waiting()) == (0, 0, {})
        disk.others_bytes = 0  # the others have gone: what waited for room is written now
        for _ in range(len(proxy.unwritten) + 3):
            proxy.flush()
            proxy.deliver(10**6)
        proxy.flush()
        assert proxy.received == list(range(1, proxy.cut + 1)), "a batch is missing, or its number was used twice"
        assert (spool.batches, spool.room.shrinks) == (0, False)
        assert spool.room.file_bytes <= 3 * MIB


def test_a_file_shrinks_once_most_of_it_is_free(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite", "p")
    with contextlib.closing(sqlite3.connect(spool.path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,), "it would have to be written anew to shrink"
    for number in range(1, 101):
        spool.append([SpooledBatch("s", number, 1, os.urandom(100 * KIB))])
    assert spool.room.file_bytes > 10 * MIB
    spool.delete_through("s", 99)
    assert spool.room.shrinks
    assert spool.room.occupied_bytes < 2 * MIB, "free pages are used again before the file grows"
    while spool.room.shrinks:
        spool.room.shrink()
    assert spool.room.file_bytes == sum(each.stat().st_size for each in tmp_path.iterdir() if "reserve" not in each.name
                                        and not each.name.endswith("-shm"))  # fmt: skip
    assert spool.room.file_bytes < 2 * MIB
    assert spool.read("s", 100) is not None
    spool.close()


def test_a_spool_of_an_earlier_version_shrinks_too(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("; ".join([*migrations_of("spool")[:5], "PRAGMA user_version = 5"]))
        connection.execute("INSERT INTO identity VALUES (1, 'p', 'epoch')")
        connection.executemany(
            "INSERT INTO batches VALUES ('s', ?, 1, ?, NULL, NULL)", [(n, os.urandom(100 * KIB)) for n in range(1, 51)]
        )
        connection.commit()
    spool = Spool(path, "p")
    assert (spool.epoch, spool.batches) == ("epoch", 50)
    spool.delete_through("s", 50)
    while spool.room.shrinks:
        spool.room.shrink()
    assert spool.room.file_bytes < MIB
    spool.append([SpooledBatch("s", 51, 1, os.urandom(5 * MIB))])
    spool.delete_through("s", 51)
    while spool.room.shrinks:
        spool.room.shrink()
    assert spool.room.file_bytes < 2 * MIB, "it was written anew once, and now shrinks by pages"
    spool.close()


def test_the_log_of_a_spool_is_cut_off(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite", "p")
    spool.append([SpooledBatch("s", 1, 1, os.urandom(20 * MIB))])
    for number in range(2, 5):
        spool.append([SpooledBatch("s", number, 1, b"abc")])
    assert (tmp_path / "spool.sqlite-wal").stat().st_size <= 2 * MIB
    spool.close()


def test_deleting_does_not_write_what_it_deletes(tmp_path: Path) -> None:
    """Some builds of SQLite overwrite it, which takes as much room in the log as the batches have."""
    spool = Spool(tmp_path / "spool.sqlite", "p")
    spool.append([SpooledBatch("s", 1, 1, os.urandom(8 * MIB))])
    spool.room.regain()
    spool.delete_through("s", 1)
    assert (tmp_path / "spool.sqlite-wal").stat().st_size < 256 * KIB
    spool.close()


def test_a_batch_that_has_no_room_leaves_the_reserve_alone(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path, 3 * MIB, Random(0))
    with disk.installed():
        spool = Spool(tmp_path / "spool.sqlite", "p")
        spool.room.shrink()
        with pytest.raises(StoreFullError, match="let the cluster acknowledge"):
            spool.append([SpooledBatch("s", 1, 1, os.urandom(MIB))])
        assert (tmp_path / "spool.sqlite-reserve").stat().st_size == RESERVE_BYTES
        spool.append([SpooledBatch("s", 1, 1, os.urandom(MIB // 2))])
        spool.close()


def test_a_proxy_starts_on_a_full_disk_with_the_room_in_reserve(tmp_path: Path) -> None:
    """Opening needs room: for the index of a log, for the number of the process."""
    with open_stores(tmp_path, "p", quarantine_entries=9) as stores:
        stores.spool.append([SpooledBatch("s", 1, 1, b"abc")])
    reserve = tmp_path / "spool.sqlite-reserve"
    assert reserve.stat().st_size == RESERVE_BYTES
    connect = sqlite3.connect

    def no_room(path: Path, **keywords: Any) -> sqlite3.Connection:
        if reserve.exists():
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
            raise error
        return connect(path, **keywords)

    with mock.patch("sqlite3.connect", no_room), open_stores(tmp_path, "p", quarantine_entries=9) as stores:
        assert stores.spool.read("s", 1) == b"abc"
        assert reserve.stat().st_size == RESERVE_BYTES, "there is room again"


def test_the_owner_of_a_data_folder_need_not_write_its_number(tmp_path: Path) -> None:
    with mock.patch("os.write", side_effect=OSError(28, "No space left on device")), owned_data_folder(tmp_path):
        pass


def frame(number: int, size_bytes: int = 10) -> RejectedFrame:
    return RejectedFrame(number, "topic", "reason", "detail", bytes(size_bytes))


def test_a_quarantine_on_a_nearly_full_disk_drops_frames_and_counts_them(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path, 8 * MIB, Random(0))
    with disk.installed():
        quarantine = Quarantine(tmp_path / "quarantine.sqlite", 1_000)
        quarantine.write([frame(1)])
        disk.others_bytes = disk.free_bytes - MIB
        with pytest.raises(StoreFullError, match="nearly full"):
            quarantine.write([frame(2), frame(3)])
        disk.others_bytes = 0
        quarantine.write([frame(4)])
        assert [each.received_us for each in quarantine.frames()] == [1, 4]
        assert quarantine.dropped == 2
        quarantine.close()


def test_a_quarantine_takes_no_more_than_its_share_of_a_small_disk(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path, 16 * MIB, Random(0))
    with disk.installed():
        quarantine = Quarantine(tmp_path / "quarantine.sqlite", 1_000)
        for number in range(100):
            quarantine.write([frame(number, 64 * KIB)])
        assert (tmp_path / "quarantine.sqlite").stat().st_size <= 2 * MIB
        assert [each.received_us for each in quarantine.frames()][-1] == 99
        assert quarantine.dropped == 0
        quarantine.close()


def test_frames_that_come_faster_than_they_are_written_are_counted(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "quarantine.sqlite", 3)
    for number in range(5):
        quarantine.put(frame(number))
    assert quarantine.dropped == 2
    quarantine.close()


@pytest.mark.parametrize(("disk_bytes", "batch_bytes"), [(8 * MIB, 512 * KIB), (1 << 40, 4 * MIB), (1, 64 * KIB)])
def test_batches_fit_on_the_disk(disk_bytes: int, batch_bytes: int) -> None:
    assert fitting(ProxySettings(), disk_bytes).batch_size == batch_bytes


SMALL_DISK = """
import os, sys
from pathlib import Path
from proxy.errors import StoreFullError
from proxy.storage.spool import SpooledBatch
from proxy.storage.stores import open_stores

folder = Path(sys.argv[1])
folder.chmod(0o700)  # others may read what has just been mounted, which is logged
with open_stores(folder, "p", quarantine_entries=9) as stores:
    spool, number = stores.spool, 0
    try:
        while True:
            spool.append([SpooledBatch("s", number + 1, 1, os.urandom(40_000))])
            number += 1
    except StoreFullError:
        pass
    others = (folder / "others").open("wb", buffering=0)
    try:
        while True:
            others.write(bytes(4096))
    except OSError:
        pass
    full = os.statvfs(folder).f_bavail
    spool.delete_through("s", number)
    for _ in range(20):
        spool.room.shrink()
    print(number > 100, full, spool.batches, spool.room.file_bytes < 3_000_000)
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_a_spool_on_a_real_disk_of_eight_mebibytes_empties(tmp_path: Path) -> None:
    """On a file system in memory that is mounted for this process alone."""
    mount = f'mount -t tmpfs -o size=8m tmpfs "{tmp_path}"'
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*unshared, mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted")
    script = f'{mount} && exec "{sys.executable}" -c "$0" "{tmp_path}"'
    found = subprocess.run([*unshared, script, SMALL_DISK], capture_output=True, text=True, check=False, timeout=60)
    assert found.stdout.split() == ["True", "0", "0", "True"], found.stderr
