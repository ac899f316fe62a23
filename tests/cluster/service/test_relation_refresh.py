"""Relations are read once a period: changed rows make a version, and sources that stay away a failure.

seconds   0        30       60                    ...  360
source    [====================]  away            ...            [=== back
version   1        -        2                          3 (fails)  4
"""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from cluster.operators.columns import Column
from cluster.relations.refresh_decisions import Freshness, State
from cluster.relations.source import SourceTooLargeError
from cluster.service.catalog.relation_refresh import LONGEST_READ_SECONDS
from cluster.service.catalog.relation_store import RelationStore
from protocols.wire.streams import FieldType
from tests.cluster.service.relation_cases import CREATE, DECLARED, Relations


@pytest.fixture
def relations(service, tmp_path):
    return Relations(service, tmp_path / "relations")


async def test_a_new_relation_has_a_first_version(relations):
    shown = await relations.create()
    assert (shown["rows"], shown["version"], shown["state"], shown["age"]) == (1, 1, "fresh", 0)
    assert relations.rows() == [("s1", False)]
    assert relations.known.identity == "roads@1"


async def test_unchanged_rows_make_no_version(relations):
    relations.source.table = [("s1", False), (None, None), ("s1", False)]
    await relations.create()
    relations.source.table = [(None, None), ("s1", False), ("s1", False)]
    await relations.passes(30)
    assert (relations.shown["version"], relations.shown["age"], relations.source.reads) == (1, 0, 2)


@pytest.mark.parametrize(
    "table", [[("s1", False)] * 2, [("s1", False), (None, None)], [], [("s1", True), ("s1", False), ("s1", False)]]
)
async def test_changed_rows_or_multiplicities_make_a_version(relations, table):
    relations.source.table = [("s1", False), ("s1", False), (None, None)]
    await relations.create()
    relations.source.table = table
    await relations.passes(30)
    assert relations.shown["version"] == 2
    assert sorted(map(repr, relations.rows())) == sorted(map(repr, table))


async def test_a_version_begins_after_all_accepted_rows_of_every_stream(relations):
    admission = relations.service.ingest.writers["traffic"].admission
    await relations.create()
    assert relations.known.last.begins_us == {}
    admission.note_stamp(500)
    relations.source.table = []
    await relations.passes(30)
    assert relations.known.last.begins_us == {"traffic": 501}
    admission.advance("p", 900, sampling=True, now_seconds=0)
    relations.source.table = [("s2", True)]
    await relations.passes(30)
    assert relations.known.last.begins_us == {"traffic": 900}


async def test_a_source_is_read_once_a_period_and_retried_soon_after_a_failure(relations):
    await relations.create()
    await relations.passes(29)
    assert relations.source.reads == 1
    await relations.passes(1)
    assert relations.source.reads == 2
    relations.source.away()
    await relations.passes(30)
    for seconds in (1, 2, 4, 8, 16, 30, 30):
        before = relations.source.reads
        await relations.passes(seconds - 0.5)
        assert relations.source.reads == before
        await relations.passes(0.5)
        assert relations.source.reads == before + 1


async def test_while_the_source_is_away_the_last_version_is_used_and_stale(relations):
    await relations.create()
    relations.source.away()
    await relations.passes(30)
    await relations.passes(10)
    shown = relations.shown
    assert (shown["state"], shown["reason"], shown["age"], shown["version"]) == ("stale", "connection refused", 40, 1)
    relations.source.back()
    await relations.passes(30)
    assert (relations.shown["state"], relations.shown["version"], relations.shown["reason"]) == ("fresh", 1, "")


async def test_a_relation_that_is_stale_for_too_long_fails_once_and_recovers(relations):
    await relations.create()
    relations.source.away()
    for _ in range(15):
        await relations.passes(30)
    assert relations.shown["state"] == "away"
    assert relations.known.last.number == 2
    assert relations.known.last.failure == "relation roads has been stale for 5 minutes: connection refused"
    relations.source.back()
    await relations.passes(30)
    assert (relations.known.last.number, relations.known.last.failure, relations.known.last.data) == (3, "", 1)
    assert relations.shown["state"] == "fresh"


async def test_a_relation_that_comes_back_changed_gets_a_version(relations):
    await relations.create()
    relations.source.away()
    await relations.passes(30)
    await relations.passes(300)
    assert relations.known.last.failure
    relations.source.back()
    relations.source.table = [("s9", True)]
    await relations.passes(30)
    assert (relations.known.last.number, relations.known.last.failure) == (3, "")
    assert relations.rows() == [("s9", True)]


async def test_without_a_limit_the_last_version_is_used_for_ever(relations):
    await relations.create(CREATE.replace(" STALE AFTER 5 MINUTES", ""))
    relations.source.away()
    for _ in range(100):
        await relations.passes(86_400)
    assert (relations.shown["state"], relations.known.last.number) == ("stale", 1)


async def test_a_column_that_was_removed_or_changed_is_named(relations):
    await relations.create()
    relations.source.given = (Column("segment", FieldType.TEXT), Column("shut", FieldType.BOOLEAN))
    await relations.passes(30)
    assert (relations.shown["state"], relations.shown["reason"]) == ("stale", "it has no column 'closed'")
    relations.source.given = (Column("segment", FieldType.TEXT), Column("closed", FieldType.TEXT))
    await relations.passes(30)
    assert relations.shown["reason"] == "column 'closed' is text there, which cannot be boolean"
    relations.source.given = (*relations.source.given[:1], Column("closed", FieldType.BOOLEAN), *relations.source.given)
    relations.source.given = (*relations.source.given[:2], Column("more", FieldType.REAL))
    await relations.passes(30)
    assert relations.shown["state"] == "fresh"


async def test_a_source_that_became_too_large_leaves_the_last_version(relations):
    await relations.create()
    relations.source.error = SourceTooLargeError("it takes 3 bytes, the limit is 2 bytes")
    await relations.passes(30)
    assert (relations.shown["state"], relations.shown["rows"]) == ("stale", 1)
    assert "3 bytes" in relations.shown["reason"]


async def test_an_unexpected_failure_concerns_one_relation_only(relations, capsys):
    await relations.create()
    relations.source.error = RuntimeError("postgresql://u:secret@h is odd")
    await relations.passes(30)
    assert relations.shown["reason"] == "RuntimeError; the log of the cluster has the place"
    shown = capsys.readouterr()
    assert "in rows" in shown.out + shown.err, "the log names the place"
    assert "secret" not in shown.out + shown.err


async def test_a_source_that_never_answers_is_away_and_holds_one_thread_only(relations):
    await relations.create()
    begun, ends = threading.Event(), threading.Event()

    def never(*_):
        begun.set()
        ends.wait()

    async def until_it_has_begun(_seconds):
        await asyncio.to_thread(begun.wait)

    rows, relations.source.rows = relations.source.rows, never
    relations.pause = until_it_has_begun
    await relations.passes(30)
    assert relations.shown["reason"] == f"it did not answer within {LONGEST_READ_SECONDS:g} seconds"
    relations.pause = asyncio.sleep
    await relations.passes(30)
    assert (relations.shown["state"], relations.shown["reason"]) == ("stale", "reading it has not ended yet")
    ends.set()
    assert await asyncio.to_thread(relations.known.idle.wait, 60)
    relations.source.rows = rows
    await relations.passes(30)
    assert relations.shown["state"] == "fresh"


async def test_after_a_restart_the_last_version_is_used_at_once(relations):
    await relations.create()
    await relations.passes(30)
    relations.clock.now += 1000
    relations.start()
    assert (relations.shown["version"], relations.shown["age"], relations.shown["state"]) == (1, 1000, "fresh")
    relations.source.away()
    await relations.passes(0)
    assert (relations.shown["state"], relations.known.last.number) == ("away", 2)
    relations.start()
    assert relations.known.last.failure
    relations.source.back()
    await relations.passes(30)
    assert (relations.shown["state"], relations.known.last.failure) == ("fresh", "")


async def test_a_relation_that_is_dropped_while_it_is_read_gets_no_version(relations):
    await relations.create()
    relation = relations.known
    relations.source.table = []
    reading = asyncio.ensure_future(relations.queries.refresher.refresh(relation))
    await asyncio.sleep(0)
    await relations.queries.relations.drop("roads")
    await reading
    assert relation.last.number == 1
    assert relations.known is None


async def test_versions_of_a_dropped_relation_stay_for_replays_and_its_identity_never_comes_back(relations, tmp_path):
    await relations.create()
    await relations.queries.relations.drop("roads")
    await relations.create(DECLARED)
    assert relations.known.identity == "roads@2"
    relations.store.remove_dropped()
    assert (tmp_path / "relations" / "roads@1").exists()
    relations.start()
    relations.clock.now += 3601
    relations.store.remove_dropped()
    assert sorted(path.name for path in (tmp_path / "relations").iterdir()) == ["roads@2"]


def test_periods_between_reads_vary_a_little():
    fresh = Freshness(30.0)
    assert (fresh.pause(0), fresh.pause(0.5), fresh.pause(1)) == pytest.approx((27, 30, 33))
    failed = fresh
    for _ in range(50):
        failed = failed.failed("no")
    assert failed.pause(0.5) == 30.0
    assert Freshness(3600.0, failures=50).pause(0.5) == 60.0


def test_a_relation_that_was_never_read_is_away():
    assert Freshness(30.0).failed("no").state(0) is State.AWAY


SIX_HOURS = 6 * 3600


@pytest.mark.parametrize("set_back", [SIX_HOURS, -SIX_HOURS])
async def test_setting_the_wall_clock_changes_no_period(relations, set_back):
    await relations.create()
    relations.set_back = set_back
    await relations.passes(29)
    assert relations.source.reads == 1
    await relations.passes(1)
    assert (relations.source.reads, relations.shown["age"], relations.shown["state"]) == (2, 0, "fresh")
    relations.source.away()
    await relations.passes(30)
    assert (relations.shown["state"], relations.shown["age"]) == ("stale", 30)


async def test_the_age_of_a_relation_is_known_after_a_restart(relations):
    await relations.create()
    relations.clock.now += 100
    relations.start()
    assert relations.shown["age"] == 100
    relations.set_back = SIX_HOURS
    relations.start()
    assert relations.shown["age"] == 0, "it is unknown, so the source is read at once"
    await relations.passes(0)
    assert relations.source.reads == 2


def test_periods_are_measured_by_the_monotonic_clock(service, tmp_path):
    store = RelationStore(service.registry.relations, tmp_path / "relations")
    assert store.clock is time.monotonic
