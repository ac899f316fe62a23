import sqlite3
from random import Random

import pytest

from tests.simulation import disk as disks
from tests.simulation.disk import Disk
from tests.simulation.forked import apart
from tests.simulation.hosts import Host, HostClock, WorldTime

TABLE = "CREATE TABLE IF NOT EXISTS seen (number INTEGER)"


class Machine:
    """A host with a disk, whose processes open one database."""

    def __init__(self, folder, seed, synchronous):
        disks.install()
        self.disk = Disk(folder / "disk", Random(seed))
        self.host = Host("a", HostClock(WorldTime()))
        disks.give("a", self.disk)
        self.synchronous = synchronous
        self.open()

    def open(self):
        self.process = self.host.start()
        self.connection = self.process.run(self._connect)

    def _connect(self):
        connection = sqlite3.connect(self.disk.folder / "x.sqlite", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        connection.execute(TABLE)
        return connection

    def write(self, number):
        self.process.run(self._write, number)

    def _write(self, number):
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.executemany("INSERT INTO seen VALUES (?)", [(number,)])
            self.connection.execute("COMMIT")
        except sqlite3.DatabaseError:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def end(self, *, power_cut):
        self.process.alive, self.host.incarnation = False, None
        self.disk.process_died(power_cut=power_cut)
        self.open()

    @property
    def seen(self):
        return [number for (number,) in self.connection.execute("SELECT number FROM seen ORDER BY rowid")]


def run(folder, work, *, seed=1, synchronous="FULL"):
    def inside():
        return work(Machine(folder / str(seed), seed, synchronous))

    return apart(inside)


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_synced_stays(tmp_path, power_cut, seed):
    def work(machine):
        for number in range(10):
            machine.write(number)
        machine.end(power_cut=power_cut)
        return machine.seen

    assert run(tmp_path, work, seed=seed) == list(range(10))


def test_what_is_not_synced_survives_a_kill_but_not_every_power_cut(tmp_path):
    def found(seed, *, power_cut):
        def work(machine):
            for number in range(10):
                machine.write(number)
            machine.end(power_cut=power_cut)
            return machine.seen

        return run(tmp_path / str(power_cut), work, seed=seed, synchronous="NORMAL")

    assert all(found(seed, power_cut=False) == list(range(10)) for seed in range(5))
    lengths = set()
    for seed in range(12):
        seen = found(seed, power_cut=True)
        assert seen == list(range(len(seen)))
        lengths.add(len(seen))
    assert 10 in lengths
    assert len(lengths) > 2


@pytest.mark.parametrize(
    ("faults", "error"),
    [({"full": True}, "SQLITE_FULL"), ({"error_before": 1.0}, "SQLITE_IOERR_WRITE")],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_commit_that_fails_has_no_effect(tmp_path, faults, error, seed):
    def work(machine):
        machine.write(1)
        for name, value in faults.items():
            setattr(machine.disk.faults, name, value)
        with pytest.raises(sqlite3.OperationalError) as caught:
            machine.write(2)
        assert caught.value.sqlite_errorname == error
        assert machine.seen == [1]
        machine.disk.faults = disks.DiskFaults()
        machine.write(3)
        machine.end(power_cut=True)
        return machine.seen, machine.disk.failed.total()

    assert run(tmp_path, work, seed=seed) == ([1, 3], 1)


def test_a_commit_that_fails_after_taking_effect_is_found_by_some_next_process(tmp_path):
    def found(seed, *, more):
        def work(machine):
            machine.write(1)
            machine.disk.faults.error_after = 1.0
            with pytest.raises(sqlite3.OperationalError):
                machine.write(2)
            assert machine.seen == [1]
            machine.disk.faults.error_after = 0.0
            if more:
                machine.write(3)
            machine.end(power_cut=False)
            return tuple(machine.seen)

        return run(tmp_path / str(more), work, seed=seed)

    assert {found(seed, more=False) for seed in range(12)} == {(1,), (1, 2)}
    assert {found(seed, more=True) for seed in range(12)} == {(1, 3)}


def test_a_dead_process_touches_nothing(tmp_path):
    def work(machine):
        machine.write(1)
        old, process = machine.connection, machine.process
        machine.end(power_cut=False)
        with pytest.raises(sqlite3.OperationalError, match="dead"):
            process.run(old.execute, "BEGIN IMMEDIATE")
        return machine.seen

    assert run(tmp_path, work) == [1]


def test_reads_fail_too(tmp_path):
    def work(machine):
        machine.disk.faults.unreadable = 1.0
        with pytest.raises(sqlite3.OperationalError, match="I/O"):
            machine.seen  # noqa: B018
        return machine.disk.failed["read error"]

    assert run(tmp_path, work) == 1
