"""
commits   ---|-------------------------|------------ now
             needed                    a day ago
kept         |==============================>
"""  # fmt: skip

from __future__ import annotations

import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.storage import archived_log, delta_tables
from cluster.storage.archived_log import HOUR_SECONDS, KEEP_HOURS, hours_kept, may_go, names_hold
from cluster.storage.compaction import SECONDS_BETWEEN, Compaction
from cluster.storage.stream_retention import StoredFiles
from cluster.storage.stream_tables import StreamTable
from tests.cluster.storage.test_tables import TRAFFIC, at, rows

COMMITS = 90
instants = st.floats(0, 1e11)


@given(instants, st.none() | instants)
def test_what_is_needed_is_kept_and_a_day_at_least(now: float, needed: float | None) -> None:
    hours = hours_kept(now, needed)
    assert hours >= KEEP_HOURS
    if needed is not None:
        assert now - hours * HOUR_SECONDS <= needed
    if needed is None or needed >= now - (KEEP_HOURS - 1) * HOUR_SECONDS:
        assert hours == KEEP_HOURS, "and no longer"


@given(st.integers(0, 10**9), instants, instants, st.none() | st.integers(0, 10**9))
def test_commits_go_after_a_day_unless_they_are_needed(
    last: int, changed: float, now: float, first: int | None
) -> None:
    old = changed < now - KEEP_HOURS * HOUR_SECONDS
    assert may_go(last, changed, now=now, first_needed=first) == (old and (first is None or last < first))


@given(instants, st.none() | instants, st.floats(0, 1e6))
def test_a_name_that_holds_is_of_a_file_that_is_there(now: float, needed: float | None, named_for: float) -> None:
    named_since = now - named_for
    if names_hold(now, named_since):
        assert now - hours_kept(now, needed) * HOUR_SECONDS < named_since, "it was not replaced before that"
        assert names_hold(now + HOUR_SECONDS, now), "there is time to read it"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day is over at once, logs are short, and folders small."""
    monkeypatch.setattr(archived_log, "KEEP_HOURS", 0)
    monkeypatch.setattr(archived_log, "COMMITS_KEPT", 20)
    monkeypatch.setattr(archived_log, "COMMITS_A_FOLDER", 16)
    monkeypatch.setattr(delta_tables, "COMMITS_BETWEEN_CHECKPOINTS", 20)
    monkeypatch.setitem(delta_tables.CONFIGURATION, "delta.checkpointInterval", "20")


def filled(folder: Path, needed: int | None, commits: int = COMMITS) -> StreamTable:
    table = StreamTable(str(folder), TRAFFIC, compaction=Compaction(30, needed=lambda: needed))
    for number in range(commits):
        table.append([rows(number)], at(number), {("p", "e"): number})
    return table


def read_on(table: StreamTable, version: int) -> list[int]:
    """Return what the versions after one have added, as a reader reads it."""
    found = [file for each in range(version + 1, table.version + 1) for file in table.log.read(each).files]
    stamps = [pl.read_parquet(f"{table.root}/{file.path}")["fjord_start_us"].to_list() for file in found]
    return [stamp for each in stamps for stamp in each]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("needed", [-1, 5, 55])
def test_a_reader_that_is_behind_for_days_reads_on_where_it_was(tmp_path: Path, needed: int) -> None:
    table = filled(tmp_path / "t", needed)
    later = time.time() + 30 * KEEP_HOURS * HOUR_SECONDS
    archived_log.forget_archived(tmp_path / "t", needed=needed, now=later)
    before = [pl.read_parquet(f"{table.root}/{each.path}") for each in StoredFiles.at(table.root, needed).files]
    read = sorted(pl.concat(before)["fjord_start_us"]) if before else []
    assert read == list(range(len(read))), "a replay opens the version it opened before"
    assert len(read) >= min(needed, 50)
    assert [*read, *read_on(table, needed)] == list(range(COMMITS))


@pytest.mark.usefixtures("small")
def test_what_no_reader_needs_goes(tmp_path: Path) -> None:
    table = filled(tmp_path / "t", None)
    parquet = len(list((tmp_path / "t").glob("*.parquet")))
    assert parquet < 45, "those merged are gone"
    archived = list((tmp_path / "t" / archived_log.ARCHIVE).iterdir())
    archived_log.forget_archived(tmp_path / "t", needed=None, now=time.time() + 1)
    assert archived
    assert not list((tmp_path / "t" / archived_log.ARCHIVE).iterdir())
    assert StoredFiles.at(table.root, table.version).rows_between(0, None) == COMMITS


def test_a_position_that_cannot_be_read_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> int:
        raise archived_log_error

    archived_log_error = OSError("the disk is away")
    monkeypatch.setattr(archived_log, "KEEP_HOURS", 0)
    table = StreamTable(str(tmp_path / "t"), TRAFFIC, compaction=Compaction(5, needed=unreadable))
    for number in range(20):
        table.append([rows(number)], at(number), {("p", "e"): number})
    assert read_on(table, 0) == list(range(20))


def test_a_table_with_few_commits_is_looked_after_now_and_then() -> None:
    now = 0.0
    compaction = Compaction(1_000, clock=lambda: now)
    assert not compaction.due(5)
    now = float(SECONDS_BETWEEN)
    assert not compaction.due(5), "nothing has come"
    assert compaction.due(6)
    now = -float(SECONDS_BETWEEN)
    assert compaction.due(6), "the clock was set back"
