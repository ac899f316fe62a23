"""
commits     1    2    3    4    5    6    7    8     each adds ten rows, and the watermark follows
            [=== merged ====]    [=== merged ===]
passed           ---|                               the first four stay: they are one file by now
"""  # fmt: skip

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from cluster.errors import ClusterError
from cluster.storage import archived_log
from cluster.storage.budgets import Blocked, Budget, Passed
from cluster.storage.compaction import Compaction
from cluster.storage.stream_retention import Dropped, StoredFiles, StreamRetention
from cluster.storage.stream_tables import StreamTable, open_stream_tables
from tests.cluster.storage.test_tables import TRAFFIC, at, rows

EACH = 10


def opened(
    folder: Path,
    budget: Budget,
    passed: Callable[[], Passed | None] = lambda: None,
    *,
    every: int = 4,
    needed: Callable[[], int | None] = lambda: None,
) -> StreamTable:
    compaction = Compaction(every, needed=needed, budget=lambda: budget)
    return StreamTable(str(folder), TRAFFIC, compaction=compaction, retention=StreamRetention(lambda: budget, passed))


def fill(table: StreamTable, first: int, last: int) -> None:
    for number in range(first, last):
        stamps = range(number * EACH, (number + 1) * EACH)
        table.append([rows(*stamps)], at((number + 1) * EACH), {("p", "e"): number + 1})


def stamps(table: StreamTable) -> list[int]:
    """Return all stamps as another program sees the table: DuckDB, over what Delta says of it."""
    seen = DeltaTable(table.root).to_pyarrow_dataset()
    with duckdb.connect() as database:
        database.register("seen", seen)
        found = [stamp for (stamp,) in database.execute("SELECT fjord_start_us FROM seen ORDER BY 1").fetchall()]
    assert found == sorted(pl.read_delta(table.root)["fjord_start_us"])
    return found


def test_without_a_budget_everything_stays(tmp_path: Path) -> None:
    table = opened(tmp_path / "t", Budget())
    fill(table, 0, 40)
    assert stamps(table) == list(range(400))
    assert (table.retention.dropped, table.retention.blocked) == (Dropped(), Blocked())


def test_what_is_too_old_goes_and_is_counted(tmp_path: Path) -> None:
    table = opened(tmp_path / "t", Budget(age_us=100))
    fill(table, 0, 60)
    left, dropped = stamps(table), table.retention.dropped
    assert left == list(range(left[0], 600)), "what is left is everything from some instant on"
    assert 600 - 100 - 2 * 4 * EACH - 100 // 8 <= left[0] <= 600 - 100, "no more than must, and little less"
    assert dropped.rows == left[0]
    assert dropped.from_us is not None
    assert left[0] <= dropped.from_us <= 500
    assert table.rows_stored(table.version) == 600, "rows that are gone were stored all the same"


def test_what_is_too_much_goes_oldest_first(tmp_path: Path) -> None:
    table = opened(tmp_path / "t", Budget(bytes=20_000))
    fill(table, 0, 80)
    left = stamps(table)
    assert left == list(range(left[0], 800))
    assert 0 < left[0] < 790
    table.append([], at(800), {("p", "e"): 81})
    for _ in range(4):  # until it is looked after again
        table.append([], at(800), {})
    assert sum(pl.Series(DeltaTable(table.root).get_add_actions(flatten=True).column("size_bytes"))) <= 20_000


def test_what_a_reader_still_needs_stays_and_is_reported(tmp_path: Path) -> None:
    passed = Passed(75, "queries have not read it yet")
    table = opened(tmp_path / "t", Budget(age_us=100), lambda: passed)
    fill(table, 0, 60)
    assert stamps(table)[0] <= 75
    assert set(range(75, 600)) <= set(stamps(table))
    blocked = table.retention.blocked
    assert blocked.by == "queries have not read it yet"
    assert blocked.rows > 300
    assert blocked.bytes > 0
    passed = Passed(10_000)
    fill(table, 60, 70)
    assert table.retention.blocked == Blocked()
    assert stamps(table)[0] > 400


def test_nothing_goes_that_the_watermark_has_not_passed(tmp_path: Path) -> None:
    table = opened(tmp_path / "t", Budget(bytes=1))
    for number in range(20):
        table.append([rows(100 + number)], at(100), {("p", "e"): number + 1})
    assert stamps(table) == [100 + number for number in range(20)]
    assert "watermark" in table.retention.blocked.by


def test_a_position_that_cannot_be_read_removes_nothing(tmp_path: Path) -> None:
    def unreadable() -> Passed:
        raise ClusterError("the disk is away")

    table = opened(tmp_path / "t", Budget(age_us=10), unreadable)
    fill(table, 0, 30)
    assert stamps(table) == list(range(300))


def test_a_table_opened_anew_knows_what_has_gone(tmp_path: Path) -> None:
    table = opened(tmp_path / "t", Budget(age_us=100))
    fill(table, 0, 60)
    again = open_stream_tables(tmp_path)["t"]
    assert again.retention.dropped == table.retention.dropped != Dropped()
    assert again.position() == table.position()
    assert again.last_sequence("p", "e") == 60
    fill(again, 60, 64)
    assert StreamTable(again.root).retention.dropped == table.retention.dropped
    assert StreamTable(again.root).rows_stored(again.version) == 640


def test_a_replay_reads_files_that_have_left_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archived_log, "KEEP_HOURS", 0)
    needed = 3
    table = opened(tmp_path / "t", Budget(age_us=50), every=10, needed=lambda: needed)
    fill(table, 0, 60)
    assert stamps(table)[0] > 100
    read = [pl.read_parquet(f"{table.root}/{file.path}") for file in StoredFiles.at(table.root, needed).files]
    assert sorted(pl.concat(read)["fjord_start_us"]) == list(range(30))
    added = [file for version in range(needed + 1, table.version + 1) for file in table.log.read(version).files]
    stored = [stamp for each in added for stamp in pl.read_parquet(f"{table.root}/{each.path}")["fjord_start_us"]]
    assert stored == list(range(30, 600)), "readers read on"


def test_what_is_about_to_go_is_announced_before_positions_are_looked_at(tmp_path: Path) -> None:
    announced: list[int | None] = []

    def look() -> Passed:
        announced.append(table.retention.kept_from_us)
        return Passed(0, "a reader")

    table = opened(tmp_path / "t", Budget(age_us=50), look)
    fill(table, 0, 20)
    assert announced
    assert all(each is not None for each in announced), "a query with history would not be seen, nor informed"
    assert announced == sorted(announced)  # type: ignore[type-var] # none of them is None
    assert table.retention.kept_from_us is None, "nothing has gone"
