"""What a micro-batch reads live: without state, slices between watermarks, each tuple once and in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import StorageError
from cluster.fjord.batch import ALWAYS
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host, host_of
from cluster.plan.epoch import Plan
from cluster.spark import bucket_processor
from cluster.spark.offsets import UNCHANGED_PLANS
from cluster.spark.reading import live
from cluster.spark.reading.live import MANY_FILES, READS, LiveReads
from cluster.spark.reading.reads import StreamRead, TableVersions
from cluster.storage.archived_log import HOUR_SECONDS, KEEP_HOURS
from cluster.storage.commit_log import AddedFile, Commit, CommitLog
from cluster.storage.compaction import _remove_old
from cluster.storage.stream_retention import StoredFile, stamped
from cluster.storage.stream_tables import StreamTable
from tests.cluster.spark.hosted_run import plan_node, queries
from tests.cluster.spark.reader_run import ReaderRun

DAY = 24 * HOUR_SECONDS
PLAN = lower(Plan(1, queries(q="SELECT sensor, speed FROM traffic"))).hosted(Host.STATELESS)


class Reading:
    """Reads `traffic` live, as the driver of a Spark query does."""

    def __init__(self, streams: Path, host: Host = Host.STATELESS, *, clock: Callable[[], float] = time.time) -> None:
        self.tables = TableVersions(str(streams))
        self.live = LiveReads(host, self.tables, clock=clock)

    def read(self, begin: int, end: int) -> StreamRead:
        (read,) = self.live.between(PLAN, {"traffic": begin}, {"traffic": end})
        return read

    def passed(self, begin: int, end: int) -> Sequence[StoredFile]:
        return self.live.passed("traffic", begin, end)

    def forget(self, version: int) -> None:
        self.live.forget({"traffic": version})
        self.tables.forget({"traffic": version})


def stamps_in(read: StreamRead, table: StreamTable) -> list[int]:
    """Return the stamps of the rows that are read."""
    assert read.between_us is not None
    low, high = read.between_us
    paths = [f"{table.root}/{path}" for path, _ in read.files]
    stamps = pl.read_parquet(paths)["fjord_start_us"].to_list() if paths else []
    return sorted(at for at in stamps if low <= at < high)


@pytest.mark.parametrize(("sql", "host"), [
    ("SELECT * FROM traffic WHERE speed > 3", Host.STATELESS),
    ("SELECT sensor FROM traffic WINDOW(RANGE 5 SECONDS SLIDE 1 SECOND)", Host.STATELESS),
    ("SELECT t.speed, p.name FROM traffic t LEFT JOIN places p ON p.sensor = t.sensor", Host.STATELESS),
    ("SELECT sensor FROM traffic UNION ALL SELECT sensor FROM traffic WHERE speed > 3", Host.STATEFUL),
    ("SELECT DISTINCT sensor FROM traffic", Host.STATEFUL),
    ("SELECT COUNT(*) FROM traffic WINDOW(RANGE 5 SECONDS)", Host.STATEFUL),
])  # fmt: skip
def test_plans_are_hosted_by_whether_they_need_state(sql: str, host: Host) -> None:
    assert host_of(plan_node(sql)) is host


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_slices_are_the_stream_in_order(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    run = ReaderRun(tmp_path_factory.mktemp("run"))
    table, folder = run.tables["traffic"], run.plans.folder.parent / "streams"
    soon, late = st.integers(0, 3), st.integers(6, 12)
    reading, known, watermark, stored, found = Reading(folder), 0, 0, list[int](), list[int]()
    with patch.object(live, "READS", data.draw(st.sampled_from((1, 2, 8)), label="reads")):
        for _ in range(data.draw(st.integers(1, 8), label="micro-batches")):
            for _ in range(data.draw(st.integers(0, 3), label="versions")):
                ahead = data.draw(st.lists(soon | late, max_size=8), label="ahead")
                rows = [(watermark + each, "a", len(stored) + number) for number, each in enumerate(ahead)]
                watermark += data.draw(st.integers(0, 6), label="passes")
                run.append("traffic", rows, watermark)
                stored += [at for at, _, _ in rows]
            if data.draw(st.booleans(), label="compact"):
                run.compact("traffic")
            version = table._table.version()
            if data.draw(st.booleans(), label="new driver"):
                reading = Reading(folder)
            found += stamps_in(reading.read(known, version), table)
            reading.forget(version)
            known = version
    passed = reading.tables.complete_until_us("traffic", known)
    assert found == sorted(at for at in stored if at < passed)


def test_with_state_it_reads_what_is_new_as_it_came(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path)
    for watermark in (10, 20, 30):
        run.append("traffic", [(watermark, "a", 1), (watermark + 50, "a", 2)], watermark)
    read = Reading(tmp_path / "streams", Host.STATEFUL).read(1, 3)
    assert [rows for _, rows in read.files] == [2, 2]
    assert read.watermark_us == 30
    assert read.between_us is None


def test_without_a_watermark_nothing_can_be_read_in_order(tmp_path: Path) -> None:
    ReaderRun(tmp_path)
    read = Reading(tmp_path / "streams").read(-1, 0)
    assert (read.files, read.between_us) == ((), (ALWAYS, ALWAYS))


def test_many_small_pending_files_are_read_as_compaction_has_left_them(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path)
    reading = Reading(tmp_path / "streams")
    run.append("traffic", [(0, "a", 1)], 1)
    reading.passed(1, 1)
    for at in range(MANY_FILES):
        run.append("traffic", [(at + 1_000, "a", 1)], 2)
    run.append("traffic", [], 5_000)
    run.compact("traffic")
    last = MANY_FILES + 2
    assert len(reading.passed(1, last)) == MANY_FILES
    compacted = run.tables["traffic"]._table.version()
    reading.forget(compacted - 1)
    assert reading.passed(last, compacted) == []

    run.append("traffic", [(at + 6_000, "a", 1) for at in range(3)], 6_001)
    assert len(reading.passed(compacted, compacted + 1)) == 1


def test_a_plan_that_changes_for_the_other_host_only_causes_no_micro_batch(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path)
    run.add("kept", "SELECT DISTINCT sensor FROM traffic")
    run.append("traffic", [(5, "a", 1)], 10)
    run.drain()
    assert run.micro_batches == {Host.STATELESS: 1, Host.STATEFUL: 1}
    for number in range(2 * UNCHANGED_PLANS):
        run.add(f"q{number}", "SELECT sensor FROM traffic")
        run.drain()
    assert run.micro_batches[Host.STATELESS] == 1 + 2 * UNCHANGED_PLANS
    assert run.micro_batches[Host.STATEFUL] == 1 + 2, "now and then, so that there is never much to look through"
    built = set(bucket_processor._kept)
    run.append("traffic", [(15, "b", 1)], 20)
    run.drain()
    assert set(bucket_processor._kept) == built, "what has been built for the plan goes on"
    assert [row["sensor"] for _, _, row in run.rows["kept"]] == ["a", "b"]
    assert [row["sensor"] for _, _, row in run.rows["q0"]] == ["b"]


@pytest.mark.parametrize("behind", [False, True], ids=["a day passes", "days behind"])
def test_tuples_that_wait_for_a_day_are_read_from_the_files_they_were_merged_into(
    tmp_path: Path, *, behind: bool
) -> None:
    """Tuples of tomorrow wait; the files they came in are merged, and gone a day later, as no version needs them."""
    now = [time.time() + (3 * DAY if behind else 0)]
    run = ReaderRun(tmp_path)
    table, reading = run.tables["traffic"], Reading(tmp_path / "streams", clock=lambda: now[0])

    def read() -> list[int]:
        version = table._table.version()
        found = reading.read(done[-1], version)
        reading.forget(version)
        done.append(version)
        return stamps_in(found, table)

    done = [0]
    for at in (5, 6, 7):
        run.append("traffic", [(at, "a", 1), (at + 1_000, "a", 1)], at + 1)
        assert read() == [at]
    run.compact("traffic")
    assert read() == []
    now[0] += 25 * HOUR_SECONDS
    assert _remove_old(table._appended, 0) == 3
    run.append("traffic", [], 5_000)
    assert read() == [1_005, 1_006, 1_007]


def test_pending_files_are_listed_again_after_half_a_day_and_not_each_time(tmp_path: Path) -> None:
    run, versions = ReaderRun(tmp_path), 50
    reading = Reading(tmp_path / "streams", clock=lambda: version * HOUR_SECONDS)
    with (
        patch.object(CommitLog, "committed_at", lambda _, version: version * HOUR_SECONDS),
        patch.object(reading.tables, "stored", wraps=reading.tables.stored) as stored,
    ):
        for version in range(1, versions + 1):
            run.append("traffic", [(version + 1_000, "a", 1)], version)
            reading.passed(version - 1, version)
            reading.forget(version)
    assert 1 < stored.call_count <= 1 + versions / (KEEP_HOURS / 2 - 1)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_mote_whose_clock_is_a_day_ahead_does_not_keep_every_file_pending(tmp_path: Path, *, restarted: bool) -> None:
    tomorrow = 1_000_000
    run = ReaderRun(tmp_path)
    reading, read = Reading(tmp_path / "streams"), list[int]()
    for at in range(0, 1_000, 10):
        run.append("traffic", [(at, "a", 1), (tomorrow + at, "b", 2)], at + 10)
        version = run.tables["traffic"].version
        if restarted and version % 20 == 0:
            reading = Reading(tmp_path / "streams")
        found = reading.read(version - 1, version)
        read.append(len(found.files))
        reading.forget(version)
    usual = [count for number, count in enumerate(read, 1) if not restarted or number % 20]
    assert max(usual) <= READS
    run.append("traffic", [], tomorrow + 500)
    version = run.tables["traffic"].version
    found = reading.read(version - 1, version)
    assert 50 <= len(found.files) < 50 + READS, "when tomorrow comes, what was stored for it is found"


def test_a_file_without_its_first_and_last_stamp_is_an_error() -> None:
    with pytest.raises(StorageError, match="b does not say between which stamps"):
        list(stamped(Commit(1, (AddedFile("b", 3, 100),), {})))
    assert list(stamped(Commit(1, (AddedFile("b", 0, 100),), {}))) == []
