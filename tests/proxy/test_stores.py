from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from random import Random

import pytest

from protocols.wire.batches import Batch, encode_batch
from protocols.wire.demands import QueryDemand, encode_piece, encode_query_demand
from protocols.wire.frames import VERSION, encode
from protocols.wire.programs import SLEEP, SamplingProgram
from proxy.drivers.driver_registry import DrivenMote
from proxy.errors import DataFolderError, DataFolderInUseError, StoreCorruptError, StoreError, StoreVersionError
from proxy.fleet.demand_assembly import StoredDemand
from proxy.fleet.stream_state import StreamProgress
from proxy.records.waiting_tuples import MotePosition
from proxy.storage.database import migrations_of, open_database
from proxy.storage.flushing import CatalogChanges
from proxy.storage.quarantine import Quarantine, RejectedFrame
from proxy.storage.spool import DamagedBatchError, Spool, SpooledBatch
from proxy.storage.stores import CatalogStore, open_stores, owned_data_folder
from tests.simulation import disk as disks
from tests.simulation.forked import apart
from tests.simulation.hosts import Host, HostClock, WorldTime

FAST = SamplingProgram(("speed",), 1)
SLOW = SamplingProgram(("speed",), 5)


@pytest.fixture
def spool(tmp_path):
    made = Spool(tmp_path / "spool.sqlite", "p")
    yield made
    made.close()


def batch(sequence, stream="s", payload=b"abc"):
    return SpooledBatch(stream, sequence, 1, payload)


def test_spool_keeps_batches_until_they_are_acknowledged(spool):
    spool.append([batch(1), batch(2, payload=b"defg"), batch(1, "other")])
    assert (spool.batches, spool.size_bytes, spool.read("s", 2)) == (3, 10, b"defg")
    spool.delete_through("s", 1)
    assert (spool.batches, spool.size_bytes, spool.read("s", 1)) == (2, 7, None)
    assert spool.first_waiting() == {"s": 2, "other": 1}


def test_spool_is_the_same_after_it_was_closed(tmp_path):
    path = tmp_path / "spool.sqlite"
    first = Spool(path, "p")
    progress, position = StreamProgress("s", 1, 9, sampling=True), MotePosition("m", 1, 2, 3)
    first.append([batch(1)], [progress], [position])
    first.close()
    again = Spool(path, "p")
    assert (again.epoch, again.batches, again.size_bytes) == (first.epoch, 1, 3)
    assert (again.progress(), again.positions(), again.first_waiting()) == ([progress], {"m": position}, {"s": 1})
    again.close()


def damage(path, stream, sequence, payload):
    """Put other bytes in the place of a batch's, as a failing disk does."""
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE batches SET payload = ? WHERE stream = ? AND sequence = ?", (payload, stream, sequence)
        )
    connection.close()


@pytest.mark.parametrize("payload", [b"abd", b"ab", b"", b"abcd"])
def test_a_batch_whose_bytes_changed_on_disk_is_detected(tmp_path, payload):
    spool = Spool(tmp_path / "spool.sqlite", "p")
    spool.append([batch(1), batch(2)])
    damage(spool.path, "s", 1, payload)
    with pytest.raises(DamagedBatchError) as caught:
        spool.read("s", 1)
    assert caught.value.batch == SpooledBatch("s", 1, 1, payload)
    assert "batch 1 of stream 's'" in caught.value.message
    assert spool.read("s", 2) == b"abc"
    spool.close()


def test_a_spool_keeps_until_when_samples_of_motes_are_missing(tmp_path):
    made = Spool(tmp_path / "s", "p")
    assert made.losses() == {}
    made.append([batch(1)], losses={"m1": 5, "m2": 6})
    made.append([batch(2)], losses={"m1": 7})
    with pytest.raises(StoreError):
        made.append([batch(1)], losses={"m1": 9})
    made.close()
    again = Spool(tmp_path / "s", "p")
    assert again.losses() == {"m1": 7, "m2": 6}
    again.close()


def test_a_spool_keeps_what_drivers_do_with_the_batches_or_not_at_all(tmp_path):
    made = Spool(tmp_path / "s", "p")
    assert made.states() == {}
    made.append([batch(1)], states={"m1": b"a", "m2": b""})
    made.append([batch(2)], states={"m1": b"b"})
    with pytest.raises(StoreError):
        made.append([batch(1)], states={"m1": b"c"})
    made.close()
    again = Spool(tmp_path / "s", "p")
    assert again.states() == {"m1": b"b", "m2": b""}
    again.close()


def test_positions_of_motes_whose_numbers_begin_anew_are_forgotten(spool):
    kept, renewed = MotePosition("m1", 1, 2, 3), MotePosition("m2", 57, 2, 3)
    spool.append([], positions=[kept, renewed])
    spool.forget_positions(["m2", "unknown"])
    assert spool.positions() == {"m1": kept}


def test_a_spool_knows_since_when_the_oldest_batch_waits(tmp_path):
    spool = Spool(tmp_path / "spool.sqlite", "p")
    assert spool.waiting_since_us() is None
    spool.append([batch(1)])
    assert spool.waiting_since_us() is None, "an older version did not note it"
    spool.append([SpooledBatch("s", 2, 1, b"abc", 70), SpooledBatch("t", 1, 1, b"abc", 60)])
    assert spool.waiting_since_us() == 60
    spool.delete_through("s", 1)
    spool.delete_through("t", 1)
    assert spool.waiting_since_us() == 70
    spool.close()


def test_batches_of_an_older_version_without_checksum_are_decoded(tmp_path):
    path = tmp_path / "spool.sqlite"
    sound = [encode_batch(Batch(1, "p", "e", "s", sequence, 0, True, 0, ())) for sequence in (1, 2, 3, 4)]
    other = encode_batch(Batch(1, "p", "e", "s", 9, 0, True, 0, ()))
    with sqlite3.connect(path) as connection:
        connection.executescript(migrations_of("spool")[0] + "; PRAGMA user_version = 1")
        connection.execute("INSERT INTO identity VALUES (1, 'p', 'e')")
        connection.executemany("INSERT INTO batches VALUES ('s', ?, 0, ?)", list(enumerate(sound, 1)))
    connection.close()
    damage(path, "s", 2, sound[1][:-1])
    damage(path, "s", 3, other)
    spool = Spool(path, "p")
    assert spool.read("s", 1) == sound[0]
    for sequence in (2, 3):
        with pytest.raises(DamagedBatchError):
            spool.read("s", sequence)
    assert spool.read("s", 4) == sound[3]
    spool.close()


def test_failed_append_stores_nothing(spool):
    spool.append([batch(1)])
    with pytest.raises(StoreError):
        spool.append([batch(2), batch(1)], [StreamProgress("s", 2)])
    assert (spool.batches, spool.read("s", 2), spool.progress()) == (1, None, [])


def test_each_new_spool_has_an_epoch_of_its_own(tmp_path):
    epochs = set()
    for name in "ab":
        made = Spool(tmp_path / name, "p")
        epochs.add(made.epoch)
        made.close()
    assert len(epochs) == 2


def test_spool_of_another_proxy_is_rejected(tmp_path, spool):
    with pytest.raises(StoreError, match="belongs to proxy 'p', not 'q'"):
        Spool(tmp_path / "spool.sqlite", "q")


@pytest.mark.parametrize("kind", ["spool", "catalog", "quarantine"])
def test_database_of_a_newer_program_is_rejected_and_not_changed(tmp_path, kind):
    path = tmp_path / "x.sqlite"
    open_database(path, kind, durable=True).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreVersionError, match="written by a newer Fjord"):
        open_database(path, kind, durable=True)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (99,)
    connection.close()


@pytest.mark.parametrize("kind", ["spool", "catalog", "quarantine"])
def test_new_database_has_the_version_of_its_last_migration(tmp_path, kind):
    connection = open_database(tmp_path / "x", kind, durable=False)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(migrations_of(kind)),)
    connection.close()


def test_file_that_is_no_database_is_rejected(tmp_path):
    path = tmp_path / "spool.sqlite"
    path.write_bytes(b"these are no tables" * 100)
    with pytest.raises(StoreCorruptError, match="not a readable database"):
        Spool(path, "p")


def test_spool_that_cannot_be_read_raises_a_store_error(tmp_path):
    path = tmp_path / "spool.sqlite"
    made = Spool(path, "p")
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE batches")
    connection.close()
    with pytest.raises(StoreError, match="no such table"):
        made.read("s", 1)
    made.close()
    with pytest.raises(StoreError, match="no such table"):
        Spool(path, "p")


def test_catalog_and_quarantine_that_cannot_be_read_raise_store_errors(tmp_path):
    CatalogStore(tmp_path / "catalog.sqlite").close()
    quarantine = Quarantine(tmp_path / "quarantine.sqlite", 3)
    for kind, table in (("catalog", "programs"), ("quarantine", "frames")):
        with sqlite3.connect(tmp_path / f"{kind}.sqlite") as connection:
            connection.execute(f"DROP TABLE {table}")
        connection.close()
    with pytest.raises(StoreError, match=r"catalog\.sqlite.*no such table"):
        CatalogStore(tmp_path / "catalog.sqlite")
    with pytest.raises(StoreError, match=r"quarantine\.sqlite.*no such table"):
        quarantine.frames()
    quarantine.close()


@pytest.mark.parametrize("table", ["announcements", "programs", "demands"])
@pytest.mark.parametrize("payload", [b"\x94\x01\xa1\xff", b"\x91" * 100_000, b"", b"\xc1"])
def test_a_damaged_catalog_is_rejected(tmp_path, table, payload):
    path = tmp_path / "catalog.sqlite"
    CatalogStore(path).close()
    columns = {"announcements": ("a",), "programs": (1, 1), "demands": ("a",)}[table]
    with sqlite3.connect(path) as connection:
        places = ", ".join("?" * (len(columns) + 1))
        connection.execute(f"INSERT INTO {table} VALUES ({places})", (*columns, payload))
    connection.close()
    store = CatalogStore(path)
    with pytest.raises(StoreCorruptError, match=r"catalog\.sqlite"):
        getattr(store, table)()
    store.close()


def test_damaged_database_is_rejected(tmp_path):
    path = tmp_path / "spool.sqlite"
    made = Spool(path, "p")
    made.append([batch(n, payload=os.urandom(5000)) for n in range(1, 50)])
    made.close()
    raw = bytearray(path.read_bytes())
    raw[4096 : 4096 * 8] = b"\xff" * 4096 * 7
    path.write_bytes(raw)
    with pytest.raises(StoreError):
        Spool(path, "p")


def piece(number, since=1):
    return encode_piece(VERSION, "traffic", number, [(since, encode_query_demand(QueryDemand("q", ("speed",))))])


def test_catalog_remembers(tmp_path, frames):
    path = tmp_path / "catalog.sqlite"
    first = CatalogStore(path)
    demand = frames.demand(("a", ["speed"], None))
    one, two = (
        StoredDemand(encode(demand), {3: piece(3), 4: piece(4)}),
        StoredDemand(encode(frames.demand(epoch=2)), {3: piece(3, 7), 4: None}),
    )
    announced = [frames.announcement("m1"), frames.announcement("m2")]
    first.remember(announced, [FAST, SLEEP, SLOW, FAST], {"traffic": one, "gone": one})
    first.remember([frames.announcement("m1", boot=2)], [], {"traffic": two, "gone": StoredDemand(None)})
    first.close()
    again = CatalogStore(path)
    assert {each.mote: each.boot for each in again.announcements()} == {"m1": 2, "m2": 1}
    assert again.programs() == [SLOW, FAST]
    assert again.demands() == {"traffic": StoredDemand(encode(frames.demand(epoch=2)), {3: piece(3, 7)})}
    again.close()


def test_catalog_remembers_who_drives_a_mote_until_it_announces_itself(tmp_path, frames):
    path = tmp_path / "catalog.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript("; ".join(migrations_of("catalog")[:2]) + "; PRAGMA user_version = 2")
        connection.execute("INSERT INTO announcements VALUES ('old', ?)", (encode(frames.announcement("old", boot=0)),))
    connection.close()
    store = CatalogStore(path)
    assert store.driven() == []
    one, two = DrivenMote("m1", "rooms", "hall/1", 1), DrivenMote("m2", "rooms", "hall/2", 1)
    store.remember([frames.announcement("m1"), frames.announcement("m2")], driven={"m1": one, "m2": two})
    store.remember([frames.announcement("m3")], [FAST])
    store.remember([frames.announcement("m2", boot=7)])
    later = DrivenMote("m1", "flat", "hall/1", 4)
    store.remember([frames.announcement("m1", boot=4)], driven={"m1": later})
    store.close()
    again = CatalogStore(path)
    assert again.driven() == [later]
    assert [each.mote for each in again.announcements()] == ["old", "m3", "m2", "m1"]
    again.close()


def test_changes_that_were_put_back_know_the_last_owner_of_each_mote(frames):
    owned, announced = DrivenMote("m1", "rooms", "hall", 1), frames.announcement("m1")
    driven = CatalogChanges({"m1": announced}, driven={"m1": owned})
    native = CatalogChanges({"m1": frames.announcement("m1", boot=7)})
    assert driven.followed_by(CatalogChanges()).driven == {"m1": owned}
    assert driven.followed_by(native).driven == {}
    assert native.followed_by(driven).driven == {"m1": owned}


@pytest.mark.parametrize("seed", range(6))
def test_demands_survive_a_power_cut(tmp_path, frames, seed):
    """Else samples that are lost until the demand comes again count neither as expected nor as missing."""
    stored = {"traffic": StoredDemand(encode(frames.demand()), {})}

    def cut_and_read():
        disks.install()
        disk = disks.Disk(tmp_path / "disk", Random(seed))
        host = Host("a", HostClock(WorldTime()))
        disks.give("a", disk)
        process = host.start()
        store = process.run(CatalogStore, disk.folder / "catalog.sqlite")
        process.run(lambda: store.remember(demands=stored))
        process.alive, host.incarnation = False, None
        disk.process_died(power_cut=True)
        return host.start().run(CatalogStore, disk.folder / "catalog.sqlite").demands()

    assert apart(cut_and_read) == stored


def test_catalog_with_an_unreadable_row_is_rejected(tmp_path):
    store = CatalogStore(tmp_path / "c")
    store._connection.execute("INSERT INTO announcements VALUES ('m', x'c1')")
    with pytest.raises(StoreCorruptError):
        store.announcements()
    store.close()


def test_quarantine_is_a_ring(tmp_path):
    made = Quarantine(tmp_path / "q", 3)
    for number in range(5):
        made.put(RejectedFrame(number, "topic", "reason", "detail", b"x" * 100_000))
        made.write(made.take_pending())
    assert [(each.received_us, len(each.payload)) for each in made.frames()] == [(2, 65536), (3, 65536), (4, 65536)]
    made.close()


def test_quarantine_keeps_the_latest_of_a_flood_in_memory(tmp_path):
    made = Quarantine(tmp_path / "q", 3)
    for number in range(5):
        made.put(RejectedFrame(number, "", "", "", b""))
    assert [each.received_us for each in made.take_pending()] == [2, 3, 4]
    made.close()


def test_data_folder_has_one_owner(tmp_path):
    first = owned_data_folder(tmp_path / "d")
    with first, pytest.raises(DataFolderInUseError, match=f"process {os.getpid()}"), owned_data_folder(tmp_path / "d"):
        pass
    with owned_data_folder(tmp_path / "d"):
        pass


def test_data_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderError, match="cannot use the data folder"), owned_data_folder(tmp_path / "file" / "d"):
        pass


@pytest.mark.parametrize("target", ["there", "nowhere"])
@pytest.mark.parametrize(
    "name",
    [
        *("lock", "spool.sqlite", "spool.sqlite-wal", "catalog.sqlite", "quarantine.sqlite", "spool.sqlite.reserve"),
        *("counters-link.json", "counters-link.new", "deeper/file"),
    ],
)
def test_nothing_is_written_through_a_link(tmp_path, name, target):
    """A data folder that was restored may have links in place of files."""
    link, other = tmp_path / "d" / name, tmp_path / "other"
    link.parent.mkdir(parents=True)
    if target == "there":
        other.write_bytes(b"of another program")
    link.symlink_to(other)
    with (
        pytest.raises(DataFolderError, match=f"{name} is a link to a file"),
        open_stores(tmp_path / "d", "p", quarantine_entries=9),
    ):
        pass
    assert (other.read_bytes() if other.exists() else None) == (b"of another program" if target == "there" else None)
    assert [each.name for each in (tmp_path / "d").iterdir()] == [name.split("/")[0]]


def test_a_data_folder_and_folders_in_it_may_be_links(tmp_path):
    for name in ("real", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "d").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "inner").symlink_to(tmp_path / "elsewhere")
    with open_stores(tmp_path / "d", "p", quarantine_entries=9):
        assert (tmp_path / "real" / "spool.sqlite").is_file()


KILLED = """
import os, signal, sys
from pathlib import Path
from proxy.storage.stores import open_stores
from proxy.storage.spool import SpooledBatch
from proxy.fleet.demand_assembly import StoredDemand
from proxy.fleet.stream_state import StreamProgress
with open_stores(Path(sys.argv[1]), "p", quarantine_entries=9) as stores:
    for n in range(1, 6):
        stores.spool.append([SpooledBatch("s", n, 1, b"%d" % n)], [StreamProgress("s", n, n, True)])
    stores.spool.delete_through("s", 2)
    print(stores.spool.epoch, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.faults
def test_killed_between_spool_and_ack(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    with open_stores(tmp_path, "p", quarantine_entries=9) as stores:
        assert stores.spool.epoch == killed.stdout.strip()
        assert [stores.spool.read("s", n) for n in range(1, 7)] == [None, None, b"3", b"4", b"5", None]
        assert stores.spool.progress() == [StreamProgress("s", 5, 5, sampling=True)]
